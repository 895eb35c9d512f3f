"""Batch norm with what follows it in one pass: by Triton kernels on a GPU, with the pooling on a CPU.

Between the convolutions of a ResNet lie a batch norm, an addition and a ReLU. One by one they mostly read and
write the same numbers again. On a CPU, batch norm maps each channel by one straight line, so the largest of
four places can be found first, and the line and the ReLU are computed for a quarter of the places. In the
backward pass only those places have a gradient of their own: the sums over it take a quarter too, and all
places have what the statistics add.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SUM_TILE = 8192  # numbers that a program of the summing kernels takes at a time


def norm_relu(
    x: Tensor, residual: Tensor | None, norm: nn.BatchNorm2d, relu: bool, tickets: Tensor
) -> Tensor:
    """``relu(batch_norm(x) + residual)`` in training, on a GPU; the norm's running statistics move on.

    ``tickets``: a counter for each channel, 0 before and after every launch.
    """
    return _NormRelu.apply(x, residual, norm.weight, norm.bias, norm, relu, tickets)


def apply_stats(
    x: Tensor, residual: Tensor | None, stats: Tensor, norm: nn.BatchNorm2d, relu: bool
) -> Tensor:
    """``relu((x - stats[0]) * stats[1] * weight + bias + residual)`` in one pass, on a GPU."""
    from tolerant.kernels.triton import norm_kernels as kernels

    channels = x.shape[1]
    m = x.numel() // channels
    if residual is not None:
        residual = residual.contiguous(memory_format=torch.channels_last)
    y = torch.empty_like(x)
    cut = _cut(m, channels)
    with torch.cuda.device_of(x):
        kernels.apply_kernel[cut.each_grid](
            x, residual, y, stats, norm.weight, norm.bias, m, C=channels, RELU=relu, **cut.each
        )
    return y


class _NormRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: nn.BatchNorm2d,
        relu: bool,
        tickets: Tensor,
    ) -> Tensor:
        from tolerant.kernels.triton import norm_kernels as kernels

        channels = x.shape[1]
        m = x.numel() // channels
        stats = torch.empty(2, channels, dtype=torch.float32, device=x.device)
        cut = _cut(m, channels)
        with torch.cuda.device_of(x):
            kernels.statistics_kernel[cut.sums_grid](
                x, cut.partial(x), tickets, stats, norm.running_mean, norm.running_var,
                norm.num_batches_tracked, m, norm.eps, norm.momentum, C=channels, **cut.sums,
            )  # fmt: skip
        y = apply_stats(x, residual, stats, norm, relu)
        ctx.save_for_backward(x, None if residual is None else y, stats, weight, bias)
        ctx.relu, ctx.tickets, ctx.cut = relu, tickets, cut
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        from tolerant.kernels.triton import norm_kernels as kernels

        x, y, stats, weight, bias = ctx.saved_tensors
        channels = x.shape[1]
        m = x.numel() // channels
        cut = ctx.cut
        dy = dy.contiguous(memory_format=torch.channels_last)
        # With a shortcut, the gradient that passes the ReLU is also the shortcut's, so it is stored. Without
        # one, `input_kernel` forms it once more.
        through = None if y is None or not ctx.relu else torch.empty_like(dy)
        dx = torch.empty_like(x)
        d_weight, d_bias = torch.empty_like(weight), torch.empty_like(bias)
        with torch.cuda.device_of(x):
            kernels.sums_kernel[cut.sums_grid](
                dy, x, y, stats, weight, bias, through, cut.partial(x), ctx.tickets, d_weight, d_bias, m,
                C=channels, RELU=ctx.relu, **cut.sums,
            )  # fmt: skip
            kernels.input_kernel[cut.each_grid](
                dy if through is None else through, x, stats, weight, bias, d_weight, d_bias, dx, m,
                C=channels, RELU=ctx.relu and through is None, **cut.each,
            )  # fmt: skip
        d_residual = None if y is None else (dy if through is None else through)
        return dx, d_residual, d_weight, d_bias, None, None, None


class _Cut:
    """How the kernels split a matrix of m places by C channels among programs: measured on an H200."""

    def __init__(self, m: int, channels: int) -> None:
        width = 1 << (channels - 1).bit_length()
        cols = min(width, 32)
        rows = SUM_TILE // cols
        blocks = -(-channels // cols)
        parts = min(-(-m // rows), max(1, 264 // blocks))  # 264: two for each multiprocessor of an H200
        self.sums_grid = (parts, blocks)
        self.sums = {"ROWS": rows, "COLS": cols, "PARTS": 64, "num_warps": 4}
        self.channels = channels
        cols = min(width, 128)
        rows = 4096 // cols
        self.each_grid = (-(-m // rows), -(-channels // cols))
        self.each = {"ROWS": rows, "COLS": cols, "num_warps": 4}

    def partial(self, x: Tensor) -> Tensor:
        return torch.empty(self.sums_grid[0], 2, self.channels, dtype=torch.float32, device=x.device)


_cut = functools.cache(_Cut)


def norm_pool(x: Tensor, norm: nn.BatchNorm2d, momentum: float) -> Tensor:
    """``relu(max_pool2d(batch_norm(x), 2))`` in training, on a CPU; the norm's running statistics move on."""
    return _NormPool.apply(x, norm.weight, norm.bias, norm, momentum)


class _NormPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d, momentum: float
    ) -> Tensor:
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
