"""Rare classes that a model hardly ever names, so that all of their rows look wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_TO_MISS = 10  # rows of a class: fewer may go unrecognised by chance


def lost_classes(given_labels: np.ndarray, predicted: np.ndarray, class_names: Sequence[str]) -> list[str]:
    """The classes that a model has lost, each with its number of rows and of predictions.

    A class is lost if it has less than half of an equal share of the rows, and is predicted for less than a
    quarter of that number.

    >>> given = np.repeat([0, 1], [80, 20])
    >>> lost_classes(given, np.zeros(100, int), ("no", "yes"))
    ["'yes' (20 rows, predicted for 0)"]
    """
    counts = np.bincount(given_labels, minlength=len(class_names))
    named = np.bincount(predicted, minlength=len(class_names))
    rare = 2 * len(class_names) * counts < len(given_labels)
    lost = np.flatnonzero(rare & (counts >= LEAST_TO_MISS) & (4 * named < counts))
    return [f"{class_names[c]!r} ({counts[c]:,} rows, predicted for {named[c]:,})" for c in lost.tolist()]
