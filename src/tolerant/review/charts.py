"""Numbers of the review page's summary, laid out for its template."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolerant.suspects import RateInterval

MOST_CLASSES = 20  # a 20 x 20 table still shows a number in each cell on a laptop


def percent(share: float) -> str:
    """A share in per cent, with one digit after the point below ten.

    >>> percent(0.384), percent(0.0312), percent(0.0)
    ('38 %', '3.1 %', '0 %')
    """
    value = 100 * share
    return f"{value:.1f} %" if 0.05 <= value < 9.95 else f"{value:.0f} %"


def rate_in_words(rate: RateInterval) -> tuple[str, str]:
    """The noise rate as a headline, and what to know of it.

    >>> rate_in_words(RateInterval(0.2, 0.15, 0.26))
    ('20 %', 'probably between 15 % and 26 %')
    >>> rate_in_words(RateInterval(0.2, 0.05, 0.4))
    ('5.0 % to 40 %', 'the predictions cannot tell it more exactly')
    >>> rate_in_words(RateInterval(0.2, 0.15, 0.26, at_least=True))[0]
    'at least 20 %'
    >>> rate_in_words(RateInterval(0.0, 0.0, 0.02, at_least=True))[0]
    'unknown'
    """
    low, high = percent(rate.low), percent(rate.high)
    if rate.at_least:
        why = "a few words tell nearly every label, as if rules had made them: their mistakes do not show"
        found = percent(rate.estimate)
        return "unknown" if found == percent(0.0) else f"at least {found}", why
    if rate.vague:
        return f"{low} to {high}", "the predictions cannot tell it more exactly"
    return percent(rate.estimate), f"probably between {low} and {high}"


def heat_map(
    transition: NDArray[np.float64], class_names: Sequence[str], pairs: set[tuple[int, int]]
) -> dict[str, Any]:
    """Rows of cells with a number and one of five shades; the diagonal has none.

    The shades are scaled to the off-diagonal cells alone: beside a diagonal of 60 % and more the
    mistakes, which are what one looks for, would all have the palest shade. `pairs` holds the
    (suggested, given) labels that have suspects: those cells link to them. A symmetric T of more classes
    than fit (:mod:`tolerant.suspects.noise_model`) has no rows: in it no class is worse than another.
    """
    wrong = transition.copy()
    np.fill_diagonal(wrong, 0.0)
    others = wrong[~np.eye(len(wrong), dtype=bool)]
    if len(wrong) > MOST_CLASSES and others.max() > 1e-6 and np.ptp(others) < 1e-9:
        return {"names": [], "rows": [], "cut": True, "upright": False}
    worst = np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:MOST_CLASSES]
    labels = np.sort(worst).tolist()
    top = max(float(wrong[np.ix_(labels, labels)].max(initial=0.0)), 1e-12)
    rows = []
    for true in labels:
        cells = []
        for given in labels:
            share = float(transition[true, given])
            shade = "own" if given == true else f"h{math.ceil(5 * share / top)}"
            text = f"{100 * share:.0f}"
            if given != true and text == "0":
                shade = "zero"
            pair = (true, given) if (true, given) in pairs else None
            cells.append({"text": text, "look": shade, "pair": pair})
        rows.append({"name": class_names[true], "cells": cells})
    names = [class_names[label] for label in labels]
    lengths = [len(name) for name in names]
    across = 7 * (sum(lengths) + max(lengths)) + 12 * len(names)  # pixels of a line of names, in small type
    return {
        "names": names,
        "rows": rows,
        "cut": len(labels) < len(class_names),
        "upright": max(lengths) > 3 and across > 300,  # the width of the panel on a phone
    }


def curves(history: Mapping[str, Sequence[float | None]]) -> list[dict[str, Any]]:
    """One small chart for each series of numbers in `history`; gaps (None, NaN) are drawn over.

    >>> [(c["name"], c["last"], c["alt"]) for c in curves({"train_loss": [2.0, 1.0]})]
    [('train loss', '1', 'train loss: 2 at the first epoch, 1 at the last, between 1 and 2')]
    """
    charts = []
    for key, series in history.items():
        if key == "epoch":
            continue
        points = [
            (at, float(value))
            for at, value in enumerate(series)
            if value is not None and math.isfinite(value)
        ]
        if len(points) < 2:
            continue
        values = [value for _, value in points]
        low, high = min(values), max(values)
        across = [100 * at / (len(series) - 1) for at, _ in points]
        down = [38 - 36 * (value - low) / ((high - low) or 1.0) for value in values]
        line = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in zip(across, down, strict=True))
        name = key.replace("_", " ")
        charts.append(
            {
                "name": name,
                "length": len(series),
                "line": line,
                "area": f"{line}L{across[-1]:.2f} 40L{across[0]:.2f} 40Z",
                "last": f"{values[-1]:.3g}",
                "low": f"{low:.3g}",
                "high": f"{high:.3g}",
                "alt": f"{name}: {values[0]:.3g} at the first epoch, {values[-1]:.3g} at the last, "
                f"between {low:.3g} and {high:.3g}",
            }
        )
    return charts
