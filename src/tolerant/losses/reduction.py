"""Class weights, sample weights, ignore_index and the reduction: one place, so they cannot disagree.

The meaning is that of `torch.nn.CrossEntropyLoss`, with `sample_weight` as one more factor: a mean
divides by the sum of the weights of the rows that count, and over no row at all it is NaN.

A loss goes three steps: `to_rows` and `weigh_rows`, its own losses of those rows, `WeighedRows.reduce`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tolerant.kernels.log_prob import compute_dtype
from tolerant.kernels.plain import RowWeight
from tolerant.losses.input_checks import check_label_range, check_logits_and_labels, check_vector


class Weighing(Protocol):
    """What a loss knows before it is called, as `torch.nn.CrossEntropyLoss` does."""

    class_weight: Tensor | None
    ignore_index: int
    reduction: str


class CallRows(NamedTuple):
    """A call as rows, its shapes checked."""

    logits: Tensor  # (N, C)
    labels: Tensor  # (N,), or probabilities (N, C)
    sample_weight: Tensor | None  # (N,)
    shape: torch.Size  # of the losses


class WeighedRows(NamedTuple):
    """Rows with a weight each, and how their losses become one.

    The mean's divisor is part of the weight, not a division at the end, so that the gradient formed in
    the forward pass is final. What is added to a mean is NaN if no row counts, else 0; None if some row
    surely counts.
    """

    logits: Tensor
    labels: Tensor
    weight: RowWeight
    nan_if_empty: Tensor | None
    reduction: str
    shape: torch.Size

    def reduce(self, losses: Tensor) -> Tensor:
        """The weighted losses (N), or their sum, in the shape that was asked for."""
        if self.reduction == "none":
            return losses.reshape(self.shape)
        total = losses.sum() if losses.ndim else losses
        return total if self.nan_if_empty is None else total + self.nan_if_empty


def to_rows(loss: Weighing, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> CallRows:
    """Refuses what does not fit together; logits (N, C, d1, ...) become rows (N * d1 * ..., C)."""
    shape = check_logits_and_labels(logits, labels)
    num_classes = logits.shape[min(1, logits.ndim - 1)]
    if loss.class_weight is not None:
        check_vector("weight", loss.class_weight, torch.Size([num_classes]), "one per class")
    if sample_weight is not None:
        check_vector("sample_weight", sample_weight, shape, "one per label")
        sample_weight = sample_weight.reshape(-1)
    if labels.is_floating_point():
        labels = rows_of(labels)
    elif labels.ndim != 1:
        labels = labels.reshape(-1)
    return CallRows(rows_of(logits), labels, sample_weight, shape)


def rows_of(logits: Tensor) -> Tensor:
    """Logits (N, C, d1, ...) as rows (N * d1 * ..., C)."""
    if logits.ndim == 2:
        return logits
    return logits.movedim(1, -1).reshape(-1, logits.shape[1]) if logits.ndim > 1 else logits[None]


def weigh_rows(loss: Weighing, rows: CallRows) -> WeighedRows:
    """Checks labels, and makes one weight of class and sample weights; soft labels take those of classes."""
    logits, labels, sample_weight, shape = rows
    num_rows, num_classes = logits.shape
    dtype = compute_dtype(logits)
    class_weight = loss.class_weight
    may_ignore = False
    if labels.is_floating_point():
        labels = labels.to(dtype)
        if class_weight is not None:
            labels = labels * class_weight.to(dtype)
        class_weight = None
    else:
        labels = labels.long()
        may_ignore = check_label_range(labels, num_classes, loss.ignore_index)

    weight: RowWeight
    nan_if_empty = None
    if sample_weight is None and class_weight is None and not may_ignore and num_rows:
        weight = 1 / num_rows if loss.reduction == "mean" else 1.0
    else:
        weight = logits.new_ones(num_rows, dtype=dtype) if sample_weight is None else sample_weight.to(dtype)
        counts = labels != loss.ignore_index if may_ignore else None
        if counts is not None:
            labels = torch.where(counts, labels, 0)
            weight = torch.where(counts, weight, 0.0)
        if class_weight is not None:
            weight = weight * class_weight.to(dtype)[labels]
        if loss.reduction == "mean":
            divisor = weight.sum()
            weight, nan_if_empty = weight / divisor, nan_if_zero(divisor)
            if counts is not None:  # 0 / 0 where no row counts: the mean is NaN, the rows' gradients are 0
                weight = torch.where(counts, weight, 0.0)
    return WeighedRows(logits, labels, weight, nan_if_empty, loss.reduction, shape)


def reduced(losses: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """Weighted losses of any shape as they were asked for; a mean divides by the sum of the weights.

    Over nothing the mean is NaN, as torch's, but the gradients are 0.
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    divisor = weights.sum()
    return losses.sum() / torch.where(divisor == 0, 1.0, divisor) + nan_if_zero(divisor)


def nan_if_zero(divisor: Tensor) -> Tensor:
    """To be added to a mean: NaN over nothing at all, else 0; without a gradient."""
    return ((divisor - divisor) / divisor).detach()
