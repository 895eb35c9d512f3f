"""What makes a matrix a transition matrix: one check for losses, noise and theory."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Transition = NDArray[np.float64]

_ROW_SUM_TOLERANCE = 1e-5  # float32 rows of 1,000 classes miss 1 by up to 1e-6, typing errors by more


def check_transition(transition: ArrayLike, num_classes: int | None = None) -> Transition:
    """`transition` as a float64 array, or a ValueError that says what is wrong with it.

    >>> check_transition([[0.9, 0.1], [0.3, 0.9]])
    Traceback (most recent call last):
    ValueError: transition must have rows that sum to 1; row 1 sums to 1.2.
    """
    try:
        array = np.array(transition, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"transition must be a square matrix of numbers; {error}.") from error
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2:
        raise ValueError(f"transition must be a square matrix of at least 2 x 2; got shape {array.shape}.")
    if num_classes is not None and len(array) != num_classes:
        raise ValueError(
            f"transition must be {num_classes} x {num_classes}, a row and a column for each class; "
            f"got {len(array)} x {len(array)}."
        )
    for wrong, rule in ((~np.isfinite(array), "finite"), (array < 0.0, "at least 0")):
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise ValueError(f"transition must be {rule}; got {array[i, j]} at [{i}, {j}].")
    sums = array.sum(axis=1)
    wrong_rows = np.flatnonzero(np.abs(sums - 1.0) > _ROW_SUM_TOLERANCE)
    if wrong_rows.size:
        hint = ""
        if np.allclose(array.sum(axis=0), 1.0):
            hint = " Its columns do: pass the transpose, a row for each true class."
        elif (sums > 0.0).all() and (array == np.round(array)).all():
            hint = " These look like counts: divide each row by its sum."
        row = wrong_rows[0]
        raise ValueError(f"transition must have rows that sum to 1; row {row} sums to {sums[row]:g}.{hint}")
    return array
