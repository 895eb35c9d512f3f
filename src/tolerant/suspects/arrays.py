"""Tensors where arrays are expected."""

from __future__ import annotations

from typing import Any

import torch


def as_numpy(values: Any) -> Any:
    """A tensor of any device and type, with or without a gradient, as an array; anything else as it is.

    >>> as_numpy(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)).tolist(), as_numpy([1])
    ([1.0, 1.0], [1])
    """
    if not isinstance(values, torch.Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
