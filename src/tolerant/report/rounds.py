"""The package's own method beside the paper's, with what both cost and what others have published."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from statistics import fmean
from typing import TYPE_CHECKING

from tolerant.experiment.papers.rounds import OTHERS
from tolerant.experiment.store import Row, Store
from tolerant.markdown import markdown_table
from tolerant.report import drawing as draw
from tolerant.report.comparison import data_set_title, number, summary, unbroken
from tolerant.report.selection import NO_ROWS, accuracy, by_cell, cost, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Column = tuple[str, str, float]  # data set, noise and its rate
METHODS = {"truncated-lq": "paper's method", "rounds": "rounds", "cce": "cross entropy, same recipe"}
_OF_THE_PAPER = ("table1", "cifar-n")  # where its method was run on the same columns


def found(store: Store, rows: Sequence[Row]) -> dict[Column, dict[str, list[Row]]]:
    """Of the columns that ``rows`` of rounds have, in the order of `OTHERS`: the rows of each method."""
    by_method: dict[Column, dict[str, list[Row]]] = {column: {} for column in OTHERS}
    for (_, dataset, noise, rate, method), group in by_cell(rows).items():
        by_method.setdefault((dataset, noise, rate), {})[method] = group
    by_method = {column: groups for column, groups in by_method.items() if groups}
    others = [row for name in _OF_THE_PAPER for row in select(store, name)]
    for (_, dataset, noise, rate, method), group in by_cell(others).items():
        if method == "truncated-lq" and (dataset, noise, rate) in by_method:
            by_method[dataset, noise, rate][method] = group
    return by_method


def table(store: Store, rows: Sequence[Row]) -> str:
    """A line a column: accuracy and seconds of each method, then what others have published."""
    columns = found(store, rows)
    if not columns:
        return NO_ROWS
    shown = [method for method in METHODS if any(method in groups for groups in columns.values())]
    body = []
    for (dataset, noise, rate), groups in columns.items():
        cells = [_cell(groups.get(method)) for method in shown]
        runs = len(groups["rounds"]) if "rounds" in groups else len(next(iter(groups.values())))
        rate_word = "" if noise in ("human", "none") else f"{rate:g}"
        others = OTHERS.get((dataset, noise, rate), "")
        body.append([data_set_title(dataset), noise, rate_word, *cells, str(runs), others])
    head = ["data set", "noise", "rate", *(METHODS[method] for method in shown), "runs", "published"]
    note = (
        "Clean test accuracy in per cent, mean ± sample standard deviation over runs, and seconds of one GPU "
        "a run: of rounds by the averaged weights of the last epoch, of the paper's method (truncated L_q, "
        "ResNet-34) at the epoch chosen on noisy validation rows. Published numbers are of the best epoch on "
        "the test set, unless they are said to be of the last."
    )
    text = unbroken(markdown_table(head, body, "l" * 3 + "r" * len(shown) + "rl"))
    return f"{text}\n\n{note} {cost(rows)}."


def _accuracies(group: Sequence[Row]) -> list[float]:
    rule = "noisy_validation" if "noisy_validation" in group[0]["result"] else "last_epoch"
    return [accuracy(row, rule) for row in group]


def _seconds(group: Sequence[Row]) -> float:
    return fmean(row["device_s"] for row in group)


def _cell(group: list[Row] | None) -> str:
    return f"{number(summary(_accuracies(group)))} ({_seconds(group):.0f} s)" if group else ""


@draw.styled
def picture(store: Store, rows: Sequence[Row]) -> Figure:
    """Accuracy by seconds of a GPU: the paper's method and rounds, joined column by column."""
    figure, (axis,) = draw.panels(1, 1, width=5.2, height=3.6)
    for colour, ((dataset, noise, rate), groups) in zip(
        cycle(draw.LINE_COLOURS), found(store, rows).items(), strict=False
    ):
        name = f"{data_set_title(dataset)}, {noise}" + (f" {rate:g}" if rate else "")
        there = [(method, groups[method]) for method in ("truncated-lq", "rounds") if method in groups]
        points = [(_seconds(group), fmean(_accuracies(group))) for _, group in there]
        axis.plot(*zip(*points, strict=True), color=colour, alpha=0.5, label=name)
        for (method, _), (x, y) in zip(there, points, strict=True):
            axis.plot(x, y, "o" if method == "rounds" else "s", color=colour)
    axis.set_ylabel("test accuracy (%)")
    draw.finish_axis(axis)
    axis.set_xlabel("seconds of one GPU a run")
    draw.caption(figure, "Rounds (circles) and the paper's truncated $L_q$ (squares)")
    return figure
