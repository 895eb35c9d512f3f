"""Class weights, sample weights, ignore_index and the reduction: one place, so they cannot disagree.

The meaning is that of `torch.nn.CrossEntropyLoss`, with `sample_weight` as one more factor: a mean
divides by the sum of the weights of the rows that count, and over no row at all it is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tolerant.losses.check import check_label_range, check_logits_and_labels, check_vector
from tolerant.losses.fused import RowWeight
from tolerant.losses.log_prob import compute_dtype

# (logits (N, C), labels (N) or (N, C), row_weight) -> weighted losses (N), or their sum if one is wanted
Rows = Callable[[Tensor, Tensor, RowWeight], Tensor]


class Weighing(NamedTuple):
    """What `torch.nn.CrossEntropyLoss` is told beside logits and labels."""

    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    sample_weight: Tensor | None = None


def weighted_loss(logits: Tensor, labels: Tensor, weighing: Weighing, rows: Rows) -> Tensor:
    """Brings the input to rows, weighs them, calls `rows`, reduces, and restores the shape."""
    num_classes, shape = check_call(logits, labels, weighing)
    flat, row_labels, row_weight, nan_if_empty = _to_rows(logits, labels, num_classes, weighing)
    try:
        losses = rows(flat, row_labels, row_weight)
    except NotImplementedError as error:
        # Our autograd functions define no jvp: torch.compile would refuse them, and torch would return 0
        # for a second jacfwd.
        if "forward mode AD" not in str(error):
            raise
        raise NotImplementedError(
            "the losses have no forward-mode derivative, which torch.func's jvp, jacfwd and hessian need. "
            "Use reverse mode: vjp, jacrev, and jacrev(jacrev(loss)) for the Hessian."
        ) from error
    if weighing.reduction == "none":
        return losses.reshape(shape)
    total = losses.sum() if losses.ndim else losses
    return total if nan_if_empty is None else total + nan_if_empty


def check_call(logits: Tensor, labels: Tensor, weighing: Weighing) -> tuple[int, torch.Size]:
    """Refuses what does not fit together; the number of classes and the losses' shape."""
    shape = check_logits_and_labels(logits, labels)
    num_classes = logits.shape[min(1, logits.ndim - 1)]
    if weighing.weight is not None:
        check_vector("weight", weighing.weight, torch.Size([num_classes]), "one per class")
    if weighing.sample_weight is not None:
        check_vector("sample_weight", weighing.sample_weight, shape, "one per label")
    return num_classes, shape


def rows_of(logits: Tensor) -> Tensor:
    """Logits (N, C, d1, ...) as rows (N * d1 * ..., C)."""
    if logits.ndim == 2:
        return logits
    return logits.movedim(1, -1).reshape(-1, logits.shape[1]) if logits.ndim > 1 else logits[None]


def _to_rows(
    logits: Tensor, labels: Tensor, num_classes: int, weighing: Weighing
) -> tuple[Tensor, Tensor, RowWeight, Tensor | None]:
    """Logits (N, C), labels, the weight of each row, and what is to be added to a mean.

    The mean's divisor is part of the row weight, not a division at the end, so that the gradient formed in
    the forward pass is final. What is added is NaN if no row counts, else 0; None if some row surely counts.
    """
    flat = rows_of(logits)
    num_rows = flat.shape[0]
    dtype = compute_dtype(logits)
    sample = None if weighing.sample_weight is None else weighing.sample_weight.reshape(-1).to(dtype)
    may_ignore = False
    if labels.is_floating_point():
        row_labels = rows_of(labels).to(dtype)
        if weighing.weight is not None:
            row_labels = row_labels * weighing.weight.to(dtype)
        class_weight = None
    else:
        row_labels = (labels if labels.ndim == 1 else labels.reshape(-1)).long()
        may_ignore = check_label_range(row_labels, num_classes, weighing.ignore_index)
        class_weight = weighing.weight
    if sample is None and class_weight is None and not may_ignore and num_rows:
        return flat, row_labels, 1 / num_rows if weighing.reduction == "mean" else 1.0, None

    row_weight = flat.new_ones(num_rows, dtype=dtype) if sample is None else sample
    counts = row_labels != weighing.ignore_index if may_ignore else None
    if counts is not None:
        row_labels = torch.where(counts, row_labels, 0)
        row_weight = torch.where(counts, row_weight, 0.0)
    if class_weight is not None:
        row_weight = row_weight * class_weight.to(dtype)[row_labels]
    if weighing.reduction != "mean":
        return flat, row_labels, row_weight, None
    divisor = row_weight.sum()
    row_weight = row_weight / divisor
    if counts is not None:  # 0 / 0 where no row counts: the mean is NaN, the ignored rows' gradients are 0
        row_weight = torch.where(counts, row_weight, 0.0)
    return flat, row_labels, row_weight, nan_if_zero(divisor)


def nan_if_zero(divisor: Tensor) -> Tensor:
    """To be added to a mean: NaN over nothing at all, else 0; without a gradient."""
    return ((divisor - divisor) / divisor).detach()
