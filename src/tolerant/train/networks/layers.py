"""Layers that several networks are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class GlobalMean(nn.Module):
    """Mean over all places, in the order of channels-last memory: so its gradient is channels-last, too."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(1)


class Flatten(nn.Module):
    """A picture as a row, place by place: the order of channels-last memory, so nothing is copied."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1) if x.ndim == 4 else x.flatten(1)


class _Penalty(torch.autograd.Function):
    """A weight as it is; its gradient has that of ``rate`` times its squared norm added."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.rate = rate
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return gradients[0].add(weight, alpha=2 * ctx.rate), None


class PenalizedLinear(nn.Linear):
    """A dense layer with an L2 penalty of its own, beside the recipe's weight decay of all layers."""

    def __init__(self, width_in: int, width: int, *, bias: bool, l2: float) -> None:
        super().__init__(width_in, width, bias=bias)
        self.l2 = l2

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, _Penalty.apply(self.weight, self.l2), self.bias)


def dropout_of(rate: float) -> list[nn.Module]:
    """A dropout layer, or none."""
    return [nn.Dropout(rate)] if rate else []
