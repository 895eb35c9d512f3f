"""How a figure is drawn: colours, panels, curves, caption and legend."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from tolerant.experiment.store import Row, Store
from tolerant.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

# Okabe & Ito: told apart with every kind of colour vision, and in print.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
LINE_COLOURS = [ORANGE, SKY, GREEN, PURPLE, BLUE, VERMILLION]
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.dpi": 150,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return drawn


def panels(lines: int, columns: int, *, width: float = 3.1, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 0.9 + height * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    return figure, list(axes.flat)


def caption(figure: Figure, title: str) -> None:
    width = int(11 * figure.get_figwidth())  # letters that fit: a longer caption would be cut off
    title = "\n".join(textwrap.fill(line, width) for line in title.splitlines())
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)


def curve(
    axis: Axes,
    store: Store,
    rows: Sequence[Row],
    column: str,
    colour: str,
    label: str,
    scale: float = 1.0,
    *,
    line: str = "-",
) -> None:
    """Mean over seeds at the measured epochs, with the range of the seeds behind it."""
    # A run that never pruned has no precision, one without validation rows no validation loss.
    columns = [store.history(row).get(column) for row in rows]
    runs = [np.array(values, dtype=float) * scale for values in columns if values is not None]
    if not runs:
        return
    length = min(len(run) for run in runs)
    values = np.stack([run[:length] for run in runs])
    measured = np.isfinite(values).all(axis=0)
    epochs = np.arange(1, length + 1)[measured]
    values = values[:, measured]
    gaps = len(epochs) < 2 or np.diff(epochs).max() > 1
    marker = "o" if gaps else ""  # shows where the points are
    axis.plot(epochs, values.mean(0), line, color=colour, label=label, lw=1.4, marker=marker, ms=2.5)
    if len(runs) > 1:
        axis.fill_between(epochs, values.min(0), values.max(0), color=colour, alpha=0.2, lw=0)


def finish_axis(
    axis: Axes, *, legend: bool = True, bottom: float | None = None, top: float | None = None
) -> None:
    if not axis.lines:
        axis.text(0.5, 0.5, "no stored rows", transform=axis.transAxes, ha="center", color="#666666")
        axis.set_xticks([])
        axis.set_yticks([])
        return
    axis.set_xlabel("epoch")
    axis.locator_params(axis="x", integer=True)
    axis.set_ylim(bottom=bottom, top=top)
    if legend:  # under the panel: curves may go anywhere inside it
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)


def save_figure(figure: Figure, folder: Path, name: str) -> Path:
    """Save the figure as a PNG file; returns its path."""
    buffer = io.BytesIO()
    # Without the version in its metadata a figure of the same rows is the same file.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    path = folder / f"{name}.png"
    write_atomic(path, buffer.getvalue())
    return path


def in_math(text: str) -> str:
    return text.replace("L_q", "$L_q$")


def shared_legend(figure: Figure, axes: Sequence[Axes], columns: int = 6, first: Iterable[str] = ()) -> None:
    """One legend under all panels, each label once: those that come ``first``, then the others as drawn."""
    named: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    order = [*first, *named]
    labels = sorted(named, key=order.index)
    if labels:
        handles = [named[label] for label in labels]
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    for axis in axes:
        if not axis.has_data():
            finish_axis(axis)
