"""Draw the pictures of the docs: ``python docs/make_pictures.py [FOLDER]`` (default: docs/images).

Losses and bounds come from the package, the rest from rows in results/. ``make demo`` draws demo.png.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tolerant import theory
from tolerant.losses import REGISTRY, PhiLoss, make_loss
from tolerant.report.drawing import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, STYLE, VERMILLION

ROOT = Path(__file__).parents[1]
GREY = "#767676"
P = np.linspace(0.002, 1.0, 500)
# The same curves, the same file: no date, no random ids.
STEADY = {"svg.hashsalt": "tolerant", "svg.fonttype": "path"}
MARGIN = {"figure.constrained_layout.w_pad": 0.1, "figure.constrained_layout.h_pad": 0.1}


def lq_family() -> Figure:
    """L_q from cross entropy to MAE, and where truncation cuts: value and weight."""
    figure = Figure(figsize=(8.4, 3.5), layout="constrained")
    value, weight = figure.subplots(1, 2)
    curves: list[tuple[str, str, str, dict[str, float], str]] = [
        ("q = 0: cross entropy", "lq", "-", {"q": 0.0}, GREY),
        ("q = 0.3", "lq", "-", {"q": 0.3}, SKY),
        ("q = 0.7", "lq", "-", {"q": 0.7}, BLUE),
        ("q = 1: half of MAE", "lq", "-", {"q": 1.0}, ORANGE),
        ("q = 0.7, truncated at k = 0.5", "truncated-lq", "--", {"q": 0.7, "k": 0.5}, VERMILLION),
    ]
    for label, name, line, hyper, colour in curves:
        for axis, curve in ((value, _value), (weight, _weight)):
            axis.plot(P, curve(name, hyper), line, color=colour, label=label, lw=2)
    value.set(title="loss", ylim=(0, 3.2))
    weight.set(title="weight w of the gradient", ylim=(0, 1.06))
    for axis in (value, weight):
        axis.set(xlabel="$p_y$, probability of the given label", xlim=(0, 1))
    figure.legend(*value.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def phi_family() -> Figure:
    """Every loss of p_y with its defaults: value and weight, cross entropy behind them."""
    figure = Figure(figsize=(9.2, 6.6), layout="constrained")
    axes = list(figure.subplots(3, 5).flat)
    losses = [loss for loss in REGISTRY.values() if issubclass(loss, PhiLoss)]
    for axis, loss in zip(axes, losses, strict=False):
        name, hyper = loss.name, loss.defaults
        axis.plot(P, -np.log(P), color=GREY, lw=1, label="cross entropy")
        axis.plot(P, _value(name, hyper), color=BLUE, lw=2, label="loss")
        axis.plot(P, _weight(name, hyper), "--", color=VERMILLION, lw=2, label="weight w")
        numbers = [f"{key}={value:g}" for key, value in hyper.items() if value]
        lines = [name, ", ".join(numbers[:2]), ", ".join(numbers[2:])]
        axis.set_title("\n".join(line for line in lines if line), fontsize=9)
        axis.set(xlim=(0, 1), ylim=(0, 4.2), xticks=[0, 0.5, 1], yticks=[0, 2, 4])
    for axis in axes[len(losses) :]:
        axis.remove()
    figure.supxlabel("$p_y$, probability of the given label", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower right", bbox_to_anchor=(0.9, 0.14), fontsize=10)
    return figure


def bounds() -> Figure:
    """Lemma 2 and 3: between which values the sum over classes lies; theorem 1: what that costs.

    As a share of the largest loss: truncation lowers the bound and the loss.
    """
    figure = Figure(figsize=(8.4, 4.0), layout="constrained")
    sums, risk = figure.subplots(1, 2)
    q = np.linspace(0.02, 1, 300)
    for colour, label, pair in (
        (BLUE, "$L_q$", theory.sum_bounds(q, 10)),
        (VERMILLION, "truncated, k = 0.5", theory.truncated_sum_bounds(q, 0.5, 10)),
    ):
        sums.fill_between(q, pair.lower, pair.upper, color=colour, alpha=0.3, lw=0)
        sums.plot(q, pair.lower, color=colour, label=label)
        sums.plot(q, pair.upper, color=colour)
    sums.set(title="lemmas 2 and 3: sum of the loss over 10 classes", xlabel="q", ylim=(0, 40), xlim=(0, 1))
    sums.legend(loc="upper right")
    for rate, colour in ((0.2, SKY), (0.4, GREEN), (0.6, ORANGE), (0.8, PURPLE)):
        plain = -np.asarray(theory.uniform_noise_bounds(q, 10, rate).clean) / theory.lq(0, q)
        cut = -np.asarray(theory.uniform_noise_bounds(q, 10, rate, k=0.5).clean) / theory.lq(0.5, q)
        risk.plot(q, plain, color=colour, label=f"noise rate {rate:g}")
        risk.plot(q, cut, "--", color=colour)
    risk.set(title="theorem 1: $-A'$, share of the largest loss", xlabel="q", ylim=(0, 1.2), xlim=(0, 1))
    risk.axhline(1, color=BLACK, lw=1)
    handles, labels = risk.get_legend_handles_labels()
    dashed = Line2D([], [], color=BLACK, ls="--")
    handles, labels = [*handles, dashed], [*labels, "truncated, k = 0.5"]
    figure.legend(handles, labels, loc="outside lower right", ncols=3)
    return figure


def truncation() -> Figure:
    """Below which q truncation narrows the bounds, against the paper's "for all q and c"."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    k = np.linspace(0.02, 0.98, 200)
    for c, colour in ((2, GREY), (4, SKY), (10, BLUE), (100, PURPLE)):
        axis.plot(k, theory.truncation_limit(k, c), color=colour, label=f"{c} classes", lw=2)
    axis.axvspan(0.3, 1, color=ORANGE, alpha=0.15, lw=0)
    axis.text(0.65, 0.05, 'claimed "for all q and c"', ha="center", color="#7a4f00")
    axis.plot(0.5, 0.7, "o", color=VERMILLION, ms=8, label="the paper's q = 0.7, k = 0.5")
    axis.set(xlabel="k", ylabel="narrower below this q", xlim=(0, 1), ylim=(0, 1))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center")
    return figure


def pruner_state() -> Figure:
    """Memory and time of `Pruner` against the number of rows, from results/bench/prune.jsonl."""
    found = [json.loads(line) for line in (ROOT / "results/bench/prune.jsonl").read_text().splitlines()]
    rows = np.array([row["rows"] for row in found], dtype=float)
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    memory, time = figure.subplots(1, 2)
    state = np.array([row["state_bytes_per_row"] for row in found]) * rows / 1e6
    time_s = np.array([row["pass_s"] for row in found])
    for axis, values, title in (
        (memory, state, "state of Pruner (MB)"),
        (time, time_s, "all rows updated once (s, one core)"),
    ):
        axis.loglog(rows, values[-1] * rows / rows[-1], color=GREY, lw=1, label="in proportion to the rows")
        axis.loglog(rows, values, "o", color=BLUE, ms=7, label="measured")
        axis.set(title=title, xlabel="rows")
        axis.legend(loc="upper left")
    return figure


def _log_p() -> torch.Tensor:
    return torch.from_numpy(P).log()


def _value(name: str, hyper: dict[str, Any]) -> np.ndarray:
    return make_loss(name, **hyper).phi(_log_p()).numpy()


def _weight(name: str, hyper: dict[str, Any]) -> np.ndarray:
    return make_loss(name, **hyper).weight(_log_p()).numpy()


PICTURES: dict[str, Callable[[], Figure]] = {
    "lq-family": lq_family,
    "phi-family": phi_family,
    "bounds": bounds,
    "truncation": truncation,
    "pruner-state": pruner_state,
}


def draw(folder: Path) -> list[Path]:
    """Write every picture; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, make in PICTURES.items():
        path = folder / f"{name}.svg"
        with mpl.rc_context({**STYLE, **STEADY, **MARGIN}):
            make().savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})
        paths.append(path)
    return paths


if __name__ == "__main__":
    for drawn in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"):
        print(drawn)
