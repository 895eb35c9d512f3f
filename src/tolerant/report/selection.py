"""Which stored rows stand behind a table or a figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tolerant.experiment.names import method_name, protocol_changes, protocol_name
from tolerant.experiment.papers import find_experiment
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


def select(store: Store, name: str, *, changed: str = "") -> list[Row]:
    """The rows of an experiment's protocol as it stands, or as `changed` ("epochs=2"), or of "all".

    Of several rows of one cell and seed (the training code's version rose in between, or the spec got a new
    field) the newest counts: two of them would pass for two seeds.
    """
    changed = ",".join(sorted(word.strip() for word in changed.split(",")))
    paper, experiment = find_experiment(name)
    wanted = paper.protocol(experiment)
    chosen: dict[tuple[object, ...], Row] = {}
    for row in store.rows():
        spec = row["spec"]
        protocol = spec["protocol"]
        if protocol_name(protocol) == wanted and changed in (protocol_changes(protocol), "all"):
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
    return (spec["protocol"], spec["dataset"], spec["noise"], spec["noise_rate"], method_name(spec))


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


def cost(rows: Sequence[Row]) -> str:
    """What the rows took, by hardware. A run that shared its device counts for its share.

    >>> cost([{"device_s": 60.0, "hardware": "H200"}])
    '1 run, 1.0 minutes of H200'
    """
    minutes: dict[str, float] = {}
    for row in rows:
        minutes.setdefault(row["hardware"], 0.0)
        minutes[row["hardware"]] += row["device_s"] / 60
    parts = [f"{value:.1f} minutes of {name}" for name, value in sorted(minutes.items())]
    return ", ".join([f"{len(rows)} run{'s' * (len(rows) != 1)}", *parts])


def _age(row: Mapping[str, Any]) -> tuple[int, str]:
    return (row["versions"]["training"], row["finished"])
