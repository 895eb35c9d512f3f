"""The checks of arguments that the noise functions share."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def check_whole(value: Any, name: str, *, least: int) -> int:
    """A whole number of at least `least`."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = least - 1
    if isinstance(value, bool) or whole < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return whole


def check_num_classes(value: Any) -> int:
    return check_whole(value, "num_classes", least=2)


def check_seed(value: Any) -> int:
    return check_whole(value, "seed", least=0)


def check_rate(value: Any) -> float:
    """A noise rate: a number in [0, 1]."""
    try:
        rate = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0.0 <= rate <= 1.0:
        hint = f" Did you mean {rate / 100:g}?" if 1.0 < rate <= 100.0 else ""
        raise ValueError(f"rate must be a number in [0, 1]; got {value!r}.{hint}")
    return rate


def check_labels(labels: ArrayLike, num_classes: int, name: str) -> NDArray[np.int64]:
    """Class numbers as int64 [N], N at least 1, each in 0 to num_classes - 1."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector of at least one label; got shape {array.shape}.")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} must be whole class numbers; got dtype {array.dtype}. "
            "Number the classes first, for example with numpy.unique(..., return_inverse=True)."
        )
    wrong = np.flatnonzero((array < 0) | (array >= num_classes))
    if wrong.size:
        raise ValueError(
            f"{name} must be in 0 to {num_classes - 1} for {num_classes} classes; "
            f"got {array[wrong[0]]} in row {wrong[0]} ({wrong.size} such rows)."
        )
    return array.astype(np.int64)


def check_rows(inputs: Any, labels: NDArray[np.int64]) -> None:
    """As many inputs as labels."""
    if len(inputs) != len(labels):
        raise ValueError(
            f"inputs must have a row for each label; got {len(inputs)} rows and {len(labels)} labels."
        )
