"""Batch norm, 2 x 2 max-pooling and ReLU, as a CPU should do them: each on as few numbers as possible.

Batch norm maps each channel by one straight line, so the largest of four places can be found first, and the
line and the ReLU are computed for a quarter of the places. In the backward pass only those places have a
gradient of their own: the sums over it take a quarter too, and all places have what the statistics add.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class NormPool(nn.BatchNorm2d):
    """``relu(max_pool2d(batch_norm(x), 2))``; the weights and statistics are torch's, by the same names.

    >>> NormPool(3)(torch.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 2, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.momentum is not None and _serves(x):
            out: Tensor = _NormPool.apply(x, self.weight, self.bias, self, self.momentum)
            return out
        return F.relu_(F.max_pool2d(super().forward(x), 2))


def _serves(x: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.numel() > x.shape[1]
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


class _NormPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, norm: NormPool, momentum: float) -> Tensor:
        mean, var = torch.batch_norm_update_stats(x, norm.running_mean, norm.running_var, momentum)
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked += 1
        inverse = torch.rsqrt(var + norm.eps)
        if (weight < 0).any():  # a falling line: its largest value is at the smallest x
            sign = _channels(torch.where(weight < 0, -1.0, 1.0).to(x.dtype))
            top, place = F.max_pool2d(x * sign, 2, return_indices=True)
            top = top * sign
        else:
            top, place = F.max_pool2d(x, 2, return_indices=True)
        scale = weight * inverse
        out = torch.addcmul(_channels(bias - mean * scale), top, _channels(scale)).relu_()
        ctx.save_for_backward(x, place, top, out, mean, inverse, weight)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, place, top, out, mean, inverse, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        _, d_weight, d_bias = torch.ops.aten.native_batch_norm_backward(  # both sums in one pass
            grad, top, weight, None, None, mean, inverse, True, 0.0, [False, True, True]
        )
        # dx = scale * (grad where found - mean of grad - normalised x * mean of grad times normalised x)
        scale = weight * inverse
        per_x = -scale * d_weight * inverse * (x.shape[1] / x.numel())
        constant = -scale * d_bias * (x.shape[1] / x.numel()) - mean * per_x
        scale, per_x, constant = map(_channels, (scale, per_x, constant))
        # One pass for all places, then the found ones added to: torch's backward of the pooling would
        # fill with zeros, and two more passes would have to add the rest.
        dx = torch.addcmul(constant, x, per_x)
        _places(dx).scatter_add_(1, _places(place), _places(grad.mul_(scale)))
        return dx, d_weight, d_bias, None, None


def _channels(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1)


def _places(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).view(len(x), -1, x.shape[1])  # a matrix per picture, as it lies in memory
