"""The paper's figures, and ours, drawn from stored rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from tolerant.data import CARDS
from tolerant.experiment.names import protocol_changes
from tolerant.experiment.papers import find_experiment, gce2018
from tolerant.experiment.store import Row, Store
from tolerant.report import drawing as draw
from tolerant.report import rounds
from tolerant.report.comparison import Line, data_set_title
from tolerant.report.drawing import BLACK, LINE_COLOURS
from tolerant.report.selection import Cell, by_cell, mixed_versions, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = gce2018.PAPER.methods
NOISE_LINES = {"class-dependent": "--", "open-set": "-.", "human": ":"}
Q_VALUES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@draw.styled
def figure1(store: Store, rows: Sequence[Row]) -> Figure:
    """Figure 1: CCE against MAE on clean data (a, b), p_y of right and wrong labels (c)."""
    figure, axes = draw.panels(1, 3)
    drawn: list[Row] = []
    for axis, letter, dataset in ((axes[0], "a", "cifar10"), (axes[1], "b", "cifar100")):
        axis.set_title(f"({letter}) {data_set_title(dataset)}, clean labels", loc="left")
        axis.set_ylabel("test accuracy (%)")
        for loss in ("cce", "mae"):
            colour = _colours(METHODS)[loss]
            drawn += (chosen := _where(rows, dataset=dataset, noise_rate=0.0, loss=loss))
            draw.curve(axis, store, chosen, "test_accuracy", colour, METHODS[loss], 100)
        draw.finish_axis(axis)
    axis = axes[2]
    axis.set_title("(c) CIFAR-10, uniform noise 0.4", loc="left")
    axis.set_ylabel("mean $p_y$ on training rows")
    for loss, q in (("cce", 0.0), ("lq", 0.7)):
        drawn += (chosen := _where(rows, dataset="cifar10", noise_rate=0.4, loss=loss, q=q))
        for column, kind, line in (("p_y_right", "right", "-"), ("p_y_wrong", "wrong", "--")):
            label = f"{draw.in_math(METHODS[loss])}, {kind} labels"
            draw.curve(axis, store, chosen, column, _colours(METHODS)[loss], label, line=line)
    draw.finish_axis(axis, bottom=0, top=1)
    draw.caption(figure, "Figure 1" + _runs(drawn))
    return figure


@draw.styled
def figure2(store: Store, rows: Sequence[Row]) -> Figure:
    """Figure 2: test accuracy (a to c) and validation loss (d to f) for six q at three rates."""
    figure, axes = draw.panels(2, 3)
    drawn: list[Row] = []
    for column, rate in enumerate((0.0, 0.2, 0.6)):
        curves = [_where(rows, dataset="cifar10", noise_rate=rate, q=q) for q in Q_VALUES]
        drawn += (row for curve in curves for row in curve)
        for line, (name, label, scale) in enumerate(
            (("test_accuracy", "test accuracy (%)", 100), ("validation_loss", "validation loss", 1))
        ):
            axis = axes[3 * line + column]
            axis.set_title(f"({'abcdef'[3 * line + column]}) noise rate {rate:g}", loc="left")
            axis.set_ylabel(label)
            for q, chosen, colour in zip(Q_VALUES, curves, LINE_COLOURS, strict=True):
                draw.curve(axis, store, chosen, name, colour, f"q = {q:g}", scale)
            draw.finish_axis(axis, legend=False)
    draw.shared_legend(figure, axes)
    draw.caption(figure, "Figure 2: $L_q$ on CIFAR-10, uniform noise" + _runs(drawn))
    return figure


@draw.styled
def pruning(store: Store, rows: Sequence[Row]) -> Figure:
    """By epoch: how many pruned rows were wrong, how many wrong rows were pruned, and how many are left."""
    pruned = [row for row in rows if row["spec"]["prune"]]
    groups = by_cell(pruned)
    order = sorted(groups, key=lambda c: (c[2] == "human", c[0], _paper_place(c[1:3]), c[3]))
    panels: dict[str, list[Cell]] = {}
    for cell in order:
        panels.setdefault(_pruning_panel(cell), []).append(cell)
    rates = sorted({rate for *_, rate, _ in groups})
    figure, axes = draw.panels(max(1, len(panels)), 3, height=2.1)
    for line, (title, cells) in enumerate(panels.items()):
        for number, (column, label) in enumerate(
            (
                ("prune_precision", "wrong among pruned\n(precision)"),
                ("prune_recall", "pruned among wrong\n(recall)"),
                ("kept_fraction", "kept among all"),
            )
        ):
            axis = axes[3 * line + number]
            axis.set_title(title, loc="left")
            axis.set_ylabel(label)
            for place, cell in enumerate(cells):
                _, dataset, noise, rate, _ = cell
                by_people = noise == "human"  # at rates nobody set: told apart by data set
                name = data_set_title(dataset) if by_people else f"{noise} {rate:g}"
                colour = LINE_COLOURS[(place if by_people else rates.index(rate)) % len(LINE_COLOURS)]
                draw.curve(axis, store, groups[cell], column, colour, name, line=NOISE_LINES.get(noise, "-"))
            draw.finish_axis(axis, legend=False, bottom=-0.03, top=1.03)  # shares, all on one scale
            axis.margins(x=0)
            axis.set_xlim(left=0)  # precision begins with the first pruning, the others with the run
    draw.shared_legend(figure, axes, columns=4)
    draw.caption(figure, "Pruning" + _runs(pruned))
    return figure


def _pruning_panel(cell: Cell) -> str:
    protocol, dataset, noise, _, _ = cell
    if noise == "human":
        return "Labels by people"
    other = " (table 2)" if protocol.startswith("gce2018-table2") else ""
    return data_set_title(dataset) + other


@draw.styled
def differences(table: Sequence[Line], name: str) -> Figure:
    """Ours minus the paper's for every cell of an experiment, with the 95 % interval where there is one."""
    paper, experiment = find_experiment(name)
    colours = _colours(paper.methods)
    table = [line for line in table if line.paper is not None]
    places = sorted({(line.dataset, line.noise) for line in table}, key=_paper_place)
    columns = min(2, max(1, len(places)))
    figure, axes = draw.panels(-(-len(places) // columns) or 1, columns, width=4.6)
    methods = [m for m in colours if any(line.method == m for line in table)]
    for axis, (dataset, noise) in zip(axes, places, strict=False):
        here = [line for line in table if (line.dataset, line.noise) == (dataset, noise)]
        rates = sorted({line.rate for line in here})
        # MAE differs by tens of points: it leaves the panel, with a number, rather than flatten it.
        limit = min(max(2.0, *(1.2 * abs(line.difference or 0.0) for line in here)), 6.0)
        for line in here:
            shift = (methods.index(line.method) - (len(methods) - 1) / 2) * 0.8 / len(methods)
            x, difference = rates.index(line.rate) + shift, line.difference or 0.0
            colour = colours[line.method]
            axis.errorbar(
                x,
                difference,
                yerr=line.margin,
                fmt="o",
                markersize=4.5,
                capsize=2,
                linewidth=1,
                color=colour,
                label=draw.in_math(line.title),
            )
            if abs(difference) > limit:
                edge = math.copysign(limit, difference)
                axis.plot(x, 0.96 * edge, "^" if edge > 0 else "v", markersize=4.5, color=colour)
                text = f"{difference:+.1f}".replace("-", "−")
                axis.annotate(text, (x, 0.88 * edge), (5, 0), textcoords="offset points", va="center")
        axis.set_ylim(-limit, limit)
        axis.axhline(0, color=BLACK, linewidth=0.8)
        axis.set_title(f"{data_set_title(dataset)}, {noise}", loc="left")
        axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axis.set_xlim(-0.6, len(rates) - 0.4)
        axis.set_xlabel("noise rate")
        axis.set_ylabel("ours − paper (points)")
    for axis in axes[max(1, len(places)) :]:
        axis.remove()
    axes = axes[: max(1, len(places))]
    draw.shared_legend(figure, axes, first=map(draw.in_math, paper.methods.values()))
    title = f"{experiment.title}: ours minus the paper, 95 % intervals\n(wide ones leave their panel)"
    draw.caption(figure, title + _changed(line.protocol for line in table))
    return figure


@dataclass(frozen=True)
class Picture:
    """How training went: drawn from the rows of some experiments."""

    draw: Callable[[Store, Sequence[Row]], Figure]
    experiments: tuple[str, ...]
    shows: str
    """What it shows, in words: for those who cannot see it."""

    def rows(self, store: Store, changed: str) -> list[Row]:
        return [row for name in self.experiments for row in select(store, name, changed=changed)]


# By their names on the command line. Other experiments have a table, and a picture of the differences.
PICTURES = {
    "figure1": Picture(
        figure1,
        ("figure1",),
        "Test accuracy of CCE and MAE on clean labels, and p_y of right and wrong labels, by epoch.",
    ),
    "figure2": Picture(
        figure2, ("figure2",), "Test accuracy and validation loss by epoch, for six q at three noise rates."
    ),
    "pruning": Picture(
        pruning,
        ("table1", "table2", "cifar-n"),
        "Precision and recall of pruning, and the rows left, by epoch, for each data set and noise.",
    ),
    "rounds-cost": Picture(
        rounds.picture,
        ("rounds",),
        "Test accuracy by seconds of a GPU, of rounds and of the paper's method.",
    ),
}


def _colours(methods: Iterable[str]) -> dict[str, str]:
    return dict(zip(methods, cycle(LINE_COLOURS), strict=False))


def _changed(protocols: Iterable[str]) -> str:
    """What a caption must say of protocols that are not as they stand."""
    changes = sorted({protocol_changes(protocol) for protocol in protocols} - {""})
    return f" · changed: {'; '.join(changes).replace(',', ', ')}" if changes else ""


def _runs(rows: Sequence[Row]) -> str:
    """What the caption must say of the runs drawn: how many seeds, and what was changed."""
    if not rows:
        return ""
    curves = Counter(
        json.dumps({**row["spec"], "recipe": {**row["spec"]["recipe"], "seed": None}}) for row in rows
    )
    few, many = min(curves.values()), max(curves.values())
    text = f" · {few}" + (f" to {many}" if many > few else "") + f" seed{'s' * (many > 1)}"
    text += _changed(row["spec"]["protocol"] for row in rows)
    return text + (f" · {mixed}" if (mixed := mixed_versions(rows)) else "")


def _where(rows: Iterable[Row], *, q: float | None = None, **wanted: Any) -> list[Row]:
    """Uncorrected, unpruned rows whose spec has these values; cross entropy is q = 0."""
    found = []
    for row in rows:
        spec = row["spec"]
        if spec["prune"] or spec["transition"] != "none":
            continue
        has = 0.0 if spec["loss"] == "cce" else spec["loss_args"].get("q")
        if q in (None, has) and all(spec[name] == value for name, value in wanted.items()):
            found.append(row)
    return found


def _paper_place(place: tuple[str, str]) -> tuple[int, str, str]:
    names = list(CARDS)
    known = names.index(place[0]) if place[0] in names else len(names)
    return (known, "" if place[1] == "uniform" else place[1], place[0])
