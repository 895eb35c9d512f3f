"""Short tables for the README and the docs: a part of table 1, and the benchmarks' rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tolerant.experiment.paper import method
from tolerant.experiment.store import Row
from tolerant.report.document import cost
from tolerant.report.rows import NO_ROWS
from tolerant.report.stats import summary
from tolerant.report.table import METHODS, Line, data_set_title, lines, number

# Enough to see what the losses do: moderate and heavy uniform noise, and one class taken for another.
CELLS = (("uniform", 0.4), ("uniform", 0.8), ("class-dependent", 0.4))
SHOWN = ("cce", "lq", "truncated-lq")
AUDIT_METHODS = {"cce": "cross entropy", "cleanlab": "cleanlab", "tolerant": "tolerant"}
AUDIT_DATA = {
    "digits": "digits, uniform",
    "copies": "the same, a fifth of the rows four times",
    "fashion-mnist": "Fashion-MNIST, class-dependent",
    "trec": "TREC questions, labels by keyword rules",
    "table": "a made-up table",
}


def table1(rows: Sequence[Row], by_people: Sequence[Row]) -> str:
    """A part of table 1, one line a cell: ours, and in brackets the paper's number.

    Below it the same ``by_people``, the rows of CIFAR-N, of which the paper has none.
    """
    shown = [
        row
        for row in rows
        if (row["spec"]["noise"], row["spec"]["noise_rate"]) in CELLS and method(row["spec"]) in SHOWN
    ]
    table = [*lines(shown, "table1"), *lines(by_people, "cifar-n")]
    if not table:
        return NO_ROWS
    places = list(dict.fromkeys((line.dataset, line.noise, line.rate) for line in table))
    found = {(line.dataset, line.noise, line.rate, line.method): line for line in table}
    body = []
    for place in places:
        cells = [found.get((*place, name)) for name in SHOWN]
        runs = [cell.main.n for cell in cells if cell is not None]
        span = f"{min(runs)}" + (f" to {max(runs)}" if len(set(runs)) > 1 else "")
        rate = f"{place[2]:g}" if place[1] != "human" else ""  # nobody set it
        body.append([data_set_title(place[0]), place[1], rate, *map(_beside, cells), span])
    head = ["data set", "noise", "rate", *(METHODS[name] for name in SHOWN), "runs"]
    note = (
        "Clean test accuracy in per cent at the epoch of best noisy-validation accuracy, "
        "mean ± sample standard deviation over runs; in brackets the paper's."
    )
    return f"{markdown(head, body, 3)}\n\n{note} {cost([*shown, *by_people])}."


def _beside(line: Line | None) -> str:
    if line is None:
        return ""
    return number(line.main) + ("" if line.paper is None else f" ({number(line.paper)})")


def audit(results: Path) -> str:
    """Three ways to find wrong labels, from the rows of `benchmarks/bench_audit.py`."""
    rows = read_rows(results / "bench" / "audit.jsonl")
    if not rows:
        return NO_ROWS
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["method"]), []).append(row)
    body = []
    for data in dict.fromkeys(row["data"] for row in rows):
        here = {way: groups[data, way] for way in AUDIT_METHODS if (data, way) in groups}
        some = next(iter(here.values()))
        wrong = summary([100 * row["noise_rate"] for row in some])
        about = f"{AUDIT_DATA.get(data, data)}: {some[0]['rows']:,} rows, {wrong.mean:.0f} % wrong"
        for what, column in (("accuracy", "test_accuracy"), ("ranking", "average_precision")):
            means = {way: summary([100 * row[column] for row in group]) for way, group in here.items()}
            numbers = [number(means.get(way), 1, absent="–") for way in AUDIT_METHODS]
            body.append([about if what == "accuracy" else "", what, *numbers, str(len(some))])
    # Two lines a data set: in one, GitHub cuts off the last columns, which are those of `tolerant`.
    text = markdown(["data", "measure", *AUDIT_METHODS.values(), "seeds"], body, 2)
    machines = sorted({row["hardware"] for row in rows if "hardware" in row})
    return text + (f"\n\nOn {', '.join(machines)}." if machines else "")


def prune(results: Path) -> str:
    """Memory and time of `Pruner`, from the rows of `benchmarks/bench_prune.py`."""
    body = [
        [
            f"{row['rows']:,}",
            f"{row['state_bytes_per_row']:.2f}",
            f"{row['resident_bytes_per_row']:.2f}",
            f"{row['build_s']:.2f}",
            f"{row['pass_s']:.2f}",
            f"{row['ns_per_row']:.0f}",
            f"{row['shuffled_ns_per_row']:.0f}",
            f"{row['update_128_us']:.0f}",
        ]
        for row in read_rows(results / "bench" / "prune.jsonl")
    ]
    head = ["rows", "state, bytes a row", "resident, bytes a row", "build, s", "all rows once, s"]
    head += ["ns a row, in order", "ns a row, 10⁶ at random", "128 rows, µs"]
    return markdown(head, body, 0) if body else NO_ROWS


BENCHES = {"bench-audit": audit, "bench-prune": prune}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file; none where there is no file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def markdown(head: Sequence[str], body: Sequence[Sequence[str]], left: int) -> str:
    """A table whose first columns are aligned to the left, the others to the right."""
    align = ["---"] * left + ["---:"] * (len(head) - left)
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in [head, align, *body])
    return text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")  # no line ends within a number
