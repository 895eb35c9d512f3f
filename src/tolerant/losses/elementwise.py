"""The functions the formulas of `phi` are made of, for tensors and for numpy arrays alike.

On the CPU an operation on the hundred numbers of a small batch costs torch several times what it costs numpy,
so such a batch is computed in numpy: by the same formulas.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Array = TypeVar("Array", Tensor, "np.ndarray[Any, Any]")


def exp(x: Array) -> Array:
    return np.exp(x) if isinstance(x, np.ndarray) else torch.exp(x)


def expm1(x: Array) -> Array:
    """exp(x) - 1 with all its digits, for x <= 0: the formulas ask for no other."""
    if isinstance(x, np.ndarray):
        return np.expm1(x)
    if torch.compiler.is_compiling():
        # On a CPU Inductor (torch 2.13) makes exp(x) - 1 of it, which has no digit left near 0, and the
        # focal loss divides by it.
        half = torch.tanh(x / 2)
        return 2 * half / (1 - half)
    return torch.expm1(x)


def log(x: Array) -> Array:
    return np.log(x) if isinstance(x, np.ndarray) else torch.log(x)


def log1p(x: Array) -> Array:
    return np.log1p(x) if isinstance(x, np.ndarray) else torch.log1p(x)


def softplus(x: Array) -> Array:
    if isinstance(x, np.ndarray):
        return np.logaddexp(x, 0.0, dtype=x.dtype)
    # From its threshold on torch returns x, which leaves out exp(-x): at 20, 1e-10 of the value.
    return F.softplus(x, threshold=40 if x.dtype == torch.float64 else 20)


def ones_like(x: Array) -> Array:
    return np.ones_like(x) if isinstance(x, np.ndarray) else torch.ones_like(x)


def where(condition: Array, chosen: Array | float, other: Array) -> Array:
    if isinstance(other, np.ndarray):
        return np.where(condition, chosen, other)
    return torch.where(condition, chosen, other)
