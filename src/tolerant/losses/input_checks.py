"""What every loss asks of its input, checked before anything is computed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tolerant.kernels import can

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}.")


def check_impl(impl: str) -> None:
    if impl not in can.WAYS:
        raise ValueError(f"impl must be one of {', '.join(can.WAYS)}; got {impl!r}.")


def check_tensor(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(value).__name__}. Call torch.as_tensor({name}).")
    if type(value) is not Tensor and hasattr(value, "full_tensor"):  # torch's message names only an operator
        raise TypeError(f"{name} must be whole on each rank; got a DTensor. Pass {name}.full_tensor().")


def check_logits_and_labels(logits: Tensor, labels: Tensor) -> torch.Size:
    """Shapes and dtypes as `torch.nn.CrossEntropyLoss` takes them; returns the shape of the losses."""
    check_tensor("logits", logits)
    check_tensor("labels", labels)
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point; got {logits.dtype}. Call logits.float().")
    if logits.ndim == 0:
        raise ValueError("logits must have a class dimension, (N, C) or (N, C, d1, ...); got a scalar.")
    shape = logits.shape[:1] + logits.shape[2:] if logits.ndim > 1 else torch.Size()
    if labels.is_floating_point():
        if labels.shape != logits.shape:
            raise ValueError(
                f"labels of dtype {labels.dtype} are class probabilities and must have the logits' "
                f"shape {tuple(logits.shape)}; got {tuple(labels.shape)}. "
                "For class indices call labels.long()."
            )
        return shape
    if labels.dtype == torch.bool:
        raise TypeError("labels must be class indices (int64) or probabilities; got torch.bool.")
    if labels.shape != shape:
        classes_last = labels.shape == logits.shape[:-1]  # as language models have them
        hint = " Pass logits.flatten(0, -2) and labels.flatten()." if classes_last else ""
        raise ValueError(
            f"labels must have shape {tuple(shape)} for logits of shape {tuple(logits.shape)} "
            f"(classes are dimension {min(1, logits.ndim - 1)}); got {tuple(labels.shape)}.{hint}"
        )
    return shape


def check_label_range(labels: Tensor, num_classes: int, ignore_index: int | None) -> bool:
    """Refuses labels (int64) outside 0..C-1 (but for ignore_index); tells whether any row may be ignored.

    Where labels cannot be looked at, a wrong one fails in the computation, as an index out of range.
    """
    if labels.numel() == 0 or not can.read(labels):
        return True
    try:
        y = labels.numpy()
    except RuntimeError:  # a fake tensor
        return True
    # One pass over the labels instead of two: read as unsigned, a negative one is larger than any class.
    if int(y.view(np.uint64).max()) < num_classes:
        return ignore_index is not None and 0 <= ignore_index < num_classes and ignore_index in y
    wrong = y[(y < 0) | (y >= num_classes)]
    if ignore_index is not None:
        wrong = wrong[wrong != ignore_index]
    if wrong.size == 0:
        return True
    unless = "" if ignore_index is None else f", or ignore_index={ignore_index}"
    raise ValueError(
        f"labels must be in 0..{num_classes - 1}{unless}; got {wrong[0]}. "
        "Check that the model has one output per class and that labels start at 0."
    )


def check_vector(name: str, value: Tensor, expected: torch.Size, meaning: str) -> None:
    check_tensor(name, value)
    if value.shape != expected:
        raise ValueError(f"{name} must have shape {tuple(expected)}, {meaning}; got {tuple(value.shape)}.")
