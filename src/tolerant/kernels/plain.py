"""The losses of p_y from the primitives: the reference, and what compilers and transforms see.

Here too is what every other way does with a row's weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from tolerant.kernels.log_prob import log_p_y, log_softmax

# One weight per row, or one number for all: without weights and ignored rows it is 1, or 1 / N.
RowWeight = Tensor | float


class Phi(Protocol):
    """A loss of log p_y alone: its value, and its weight w = -d value / d log p_y."""

    def phi(self, log_p_y: Tensor) -> Tensor: ...

    def weight(self, log_p_y: Tensor) -> Tensor: ...


def phi_rows(logits: Tensor, labels: Tensor, row_weight: RowWeight, loss: Phi) -> Tensor:
    """row_weight * phi(log p_y) for logits (N, C) and labels (N), or the labels' probabilities (N, C)."""
    z = finite_rows(logits, row_weight)
    if labels.is_floating_point():
        return weigh(weigh(phi_at(log_softmax(z), loss), labels).sum(-1), row_weight)
    return weigh(phi_at(log_p_y(z, labels), loss), row_weight)


def phi_at(log_p_y: Tensor, loss: Phi) -> Tensor:
    """The loss's value, differentiable any number of times, with the exact first derivative."""
    return _PhiAt.apply(log_p_y, loss.phi, loss.weight)


def finite_rows(logits: Tensor, row_weight: RowWeight) -> Tensor:
    """Zeros for a row that does not count and has no probabilities: in a derivative 0 * NaN would be NaN.

    A row with masked classes has them, and stays: its loss is the gradient of its weight.
    """
    if not isinstance(row_weight, Tensor):
        return logits
    top = logits.detach().amax(1, keepdim=True)  # NaN or inf where one logit is, -inf where all are
    return torch.where((row_weight == 0).unsqueeze(1) & ~top.isfinite(), 0.0, logits)


def weigh(values: Tensor, row_weight: RowWeight) -> Tensor:
    """row_weight * values, where a row of weight 0 is left out even if its value is inf.

    The gradient in a weight of 0 is still the row's value: reweighting by gradients starts from there.
    The same of classes and a label's probabilities: a masked class does not count where it has none.
    """
    if not isinstance(row_weight, Tensor):
        return values * row_weight
    return row_weight * counted(values, row_weight)


def counted(values: Tensor, row_weight: Tensor) -> Tensor:
    return torch.where(row_weight == 0, values.nan_to_num(0.0, 0.0, 0.0), values)


class _PhiAt(torch.autograd.Function):
    """phi(log p_y) with -w as its derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_p_y: Tensor, value: Callable[[Tensor], Tensor], weight: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return value(log_p_y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        log_p_y, _, ctx.weight = inputs
        ctx.save_for_backward(log_p_y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (log_p_y,) = ctx.saved_tensors
        return -grad * ctx.weight(log_p_y), None, None
