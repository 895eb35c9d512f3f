"""A model's probabilities, made sharper or softer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LEAST_P = 1e-12


def sharpen(probs: NDArray[np.floating], sharpness: float) -> NDArray[np.float64]:
    """Rows of p^s, each summing to one.

    >>> sharpen(np.array([[0.8, 0.2]]), 2.0).round(3)
    array([[0.941, 0.059]])
    """
    logs = sharpness * np.log(np.maximum(probs.astype(np.float64), _LEAST_P))
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
