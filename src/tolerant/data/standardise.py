"""What is subtracted from inputs and what they are divided by, measured once on the training rows.

A constant column has no deviation to divide by, but rounding leaves it a tiny one, by which a new value
would be divided. How tiny depends on how it was measured, so there are two limits, both here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tolerant.data.dataset import Inputs

# In two passes over float64, as a share of the mean: a thousand times 0.1 have a deviation of 1.4e-17. A
# column of time stamps (1.7e9 and 1,000 apart) must stay far above it.
_CONSTANT = 1e-12
# In one pass, as a share of the squared mean, of which the variance is what is left after cancellation.
_CONSTANT_VARIANCE = 1e-12
_MOST = 1e6  # deviations; a new value far outside the fitted range would overflow float32
_CHUNK = 4096  # rows that `Preprocess.fit` reads at once,
_CHUNK_CELLS = 1 << 24  # with at most so many numbers: their squares in float64 take 128 MiB


def moments(x: np.ndarray) -> tuple[Any, Any]:
    """Mean and deviation of each column (of all numbers of a vector); 1 for the deviation of a constant one.

    >>> moments(np.array([[1.0, 0.1], [3.0, 0.1]]))
    (array([2. , 0.1]), array([1., 1.]))
    """
    mean = x.mean(axis=0, dtype=np.float64)
    deviation = np.sqrt(np.square(x - mean).mean(axis=0))
    return mean, np.where(deviation <= _CONSTANT * np.abs(mean), 1.0, deviation)


def standardise(x: np.ndarray, mean: Any, deviation: Any) -> np.ndarray:
    """In deviations from the mean, at most a million of them; float64."""
    return np.clip((x - mean) / deviation, -_MOST, _MOST)


def unit_scale(matrix: Any) -> float:
    """For a SciPy matrix: what makes the mean square over all cells 1, as it is for standardised columns.

    One factor for all: one for each column would inflate rare words, and subtracting means would leave no
    zeros.

    >>> import scipy.sparse
    >>> unit_scale(scipy.sparse.csr_matrix([[0.0, 2.0], [0.0, 2.0]]))
    0.70710678...
    """
    squares = float(np.square(matrix.data, dtype=np.float64).sum())
    return float(np.sqrt(np.prod(matrix.shape) / squares)) if squares > 0 else 1.0


class Scaling(Protocol):
    """What a recipe says of it: `tolerant.train.Recipe`."""

    @property
    def center(self) -> str: ...

    @property
    def scale(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Preprocess:
    """What is subtracted and multiplied, measured on the training rows: ``x * scale - mean``."""

    kind: str
    mean: np.ndarray
    """float32: (H, W, C) for images, (D,) for tables."""
    scale: np.ndarray
    """float32: one number for images, (D,) for tables."""

    @classmethod
    def fit(cls, inputs: Inputs, kind: str, recipe: Scaling) -> Preprocess:
        """Measure ``inputs``; pixels are added as whole numbers, so the order of adding does not matter."""
        num_rows, shape = len(inputs), tuple(inputs.shape[1:])
        total = np.zeros(shape, np.int64 if kind == "image" else np.float64)
        squares = np.zeros(shape, np.float64)
        with_std = recipe.scale == "std" or (recipe.scale == "auto" and kind == "table")
        for chunk in _chunks(inputs, kind):
            total += chunk.sum(0, dtype=total.dtype)
            if with_std:
                squares += np.square(chunk, dtype=np.float64).sum(0)
        mean = total / num_rows
        variance = np.maximum(squares / num_rows - mean**2, 0.0)
        if not with_std:
            scale = np.full(shape if kind == "table" else (), 1.0 if kind == "table" else 1 / 255)
        elif kind == "table":
            constant = variance <= _CONSTANT_VARIANCE * mean**2
            scale = 1.0 / np.sqrt(np.where(constant | (variance == 0), 1.0, variance))
        else:
            # One deviation for all pixels and channels: colours and contrast are kept.
            scale = 1.0 / np.sqrt(np.maximum(squares.mean() / num_rows - mean.mean() ** 2, 1e-6))
        if recipe.center == "channel" and kind == "image":
            mean = np.broadcast_to(mean.mean((0, 1)), shape)
        mean = np.zeros(shape) if recipe.center == "none" else mean * scale
        return cls(kind, mean.astype(np.float32), np.asarray(scale, np.float32))


def _chunks(inputs: Inputs, kind: str) -> Iterator[np.ndarray]:
    size = _CHUNK
    if kind == "image":  # sums of whole numbers are the same however rows are cut; a table's sums are not
        size = max(1, min(size, _CHUNK_CELLS // math.prod(inputs.shape[1:])))
    for start in range(0, len(inputs), size):
        yield np.asarray(inputs[np.arange(start, min(start + size, len(inputs)))])
