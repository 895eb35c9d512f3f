"""Which stored rows stand behind a table or a figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tolerant.experiment.paper import method
from tolerant.experiment.protocol import changes_of, name_of
from tolerant.experiment.store import Row, Store

# The three ways to choose the epoch whose test accuracy is reported. Only the first two can be
# used without clean labels; the third shows what they lose.
RULES = {
    "noisy_validation": "noisy validation",
    "last_epoch": "last epoch",
    "best_test": "best test (oracle)",
}

# Protocol, data set, noise, rate and method.
Cell = tuple[str, str, str, float, str]

NO_ROWS = "No stored rows yet."

PROTOCOLS = {
    "table1": "gce2018-table1",
    "table2": "gce2018-table2",
    "figure1": "gce2018-adam",
    "figure2": "gce2018-adam",
    "cifar-n": "gce2018-cifar-n",
    "digits": "digits",
}


def select(store: Store, report: str, *, changed: str = "") -> list[Row]:
    """The rows of a report's protocol as it stands, or as `changed` ("epochs=2"), or of "all".

    Of several rows of one cell and seed (the training code's version rose in between, or the spec got a new
    field) the newest counts: two of them would pass for two seeds.
    """
    changed = ",".join(sorted(word.strip() for word in changed.split(",")))
    chosen: dict[tuple[object, ...], Row] = {}
    for row in store.rows():
        spec = row["spec"]
        protocol = spec["protocol"]
        if name_of(protocol) == PROTOCOLS[report] and changed in (changes_of(protocol), "all"):
            identity = (*cell(row), spec["loss_args"].get("q"), spec["recipe"]["seed"])
            known = chosen.get(identity)
            if known is None or _age(known) <= _age(row):
                chosen[identity] = row
    return list(chosen.values())


def accuracy(row: Mapping[str, Any], rule: str) -> float:
    """Clean test accuracy in per cent at the epoch a rule chooses."""
    return 100 * float(row["result"][rule]["test_accuracy"])


def cell(row: Mapping[str, Any]) -> Cell:
    """What rows must share to be seeds of one number."""
    spec = row["spec"]
    return (spec["protocol"], spec["dataset"], spec["noise"], spec["noise_rate"], method(spec))


def by_cell(rows: Iterable[Row]) -> dict[Cell, list[Row]]:
    """Rows grouped into cells, each in the order of its seeds."""
    groups: dict[Cell, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["spec"]["recipe"]["seed"]):
        groups.setdefault(cell(row), []).append(row)
    return groups


def mixed_versions(rows: Iterable[Row]) -> str:
    """Which versions of the training code made the rows, where it was more than one.

    >>> mixed_versions([{"versions": {"training": 1}}, {"versions": {"training": 2}}])
    'training code of versions 1 and 2'
    """
    found = sorted({row["versions"]["training"] for row in rows})
    return f"training code of versions {' and '.join(map(str, found))}" if len(found) > 1 else ""


def _age(row: Mapping[str, Any]) -> tuple[int, str]:
    return (row["versions"]["training"], row["finished"])
