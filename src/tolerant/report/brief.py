"""A short table for the README: a part of table 1, and labels by people."""

from __future__ import annotations

from collections.abc import Sequence

from tolerant.experiment.names import method_name
from tolerant.experiment.papers import gce2018
from tolerant.experiment.store import Row
from tolerant.markdown import markdown_table
from tolerant.report.comparison import Line, data_set_title, lines, number, unbroken
from tolerant.report.selection import NO_ROWS, cost

# Enough to see what the losses do: moderate and heavy uniform noise, and one class taken for another.
CELLS = (("uniform", 0.4), ("uniform", 0.8), ("class-dependent", 0.4))
SHOWN = ("cce", "lq", "truncated-lq")


def brief_table1(rows: Sequence[Row], by_people: Sequence[Row]) -> str:
    """A part of table 1, one line a cell: ours, and in brackets the paper's number.

    Below it the same ``by_people``, the rows of CIFAR-N, of which the paper has none.
    """
    shown = [
        row
        for row in rows
        if (row["spec"]["noise"], row["spec"]["noise_rate"]) in CELLS and method_name(row["spec"]) in SHOWN
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
    head = ["data set", "noise", "rate", *(gce2018.PAPER.methods[name] for name in SHOWN), "runs"]
    note = (
        "Clean test accuracy in per cent at the epoch of best noisy-validation accuracy, "
        "mean ± sample standard deviation over runs; in brackets the paper's."
    )
    return f"{unbroken(markdown_table(head, body, 'lllr'))}\n\n{note} {cost([*shown, *by_people])}."


def _beside(line: Line | None) -> str:
    if line is None:
        return ""
    return number(line.main) + ("" if line.paper is None else f" ({number(line.paper)})")
