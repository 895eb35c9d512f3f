"""Batch norm with the ReLU and the shortcut that follow it, in one pass over memory where possible.

Between the convolutions of a ResNet lie a batch norm, an addition and a ReLU. One by one they mostly read and
write the same numbers again.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tolerant.losses.fused import has_numbers
from tolerant.losses.triton_launch import gpu_can

SUM_TILE = 8192  # numbers that a program of the summing kernels takes at a time


class BatchNorm(nn.BatchNorm2d):
    """``relu(batch_norm(x) + residual)``; the weights and statistics are torch's, by the same names.

    On a GPU, on channels-last tensors, training and scoring without gradients run in Triton kernels with
    sums in fp32; all else in torch's own operations.

    >>> norm = BatchNorm(3)
    >>> bool((norm(torch.randn(2, 3, 4, 4)) >= 0).all())
    True
    """

    _tickets: Tensor | None = None

    def __init__(self, width: int, *, relu: bool = True) -> None:
        super().__init__(width)
        self.relu = relu

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out: Tensor
        if self.training and self.momentum is not None and _fusable(x, residual):
            out = _Fused.apply(x, residual, self.weight, self.bias, self)
            return out
        if not torch.is_grad_enabled() and _fusable(x, residual):
            assert self.running_mean is not None
            assert self.running_var is not None
            stats = torch.stack([self.running_mean, (self.running_var + self.eps).rsqrt()])
            return _apply(x, residual, stats, self)
        out = super().forward(x)
        if residual is not None:
            out = out + residual
        return F.relu_(out) if self.relu else out

    def tickets(self) -> Tensor:
        """Counters of the kernels' finished programs: 0 before and after every launch."""
        device = self.weight.device
        if self._tickets is not None and self._tickets.device == device:
            return self._tickets
        zeros = torch.zeros(self.num_features, dtype=torch.int32, device=device)
        # While a CUDA graph is captured nothing runs: what is made then is filled by each replay, and by
        # nothing else. So those zeros are not kept for other launches.
        if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            self._tickets = zeros
        return zeros


def _fusable(x: Tensor, residual: Tensor | None) -> bool:
    return (
        x.is_cuda
        and torch.version.hip is None
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.numel() > x.shape[1]
        and (residual is None or (residual.dtype, residual.shape) == (x.dtype, x.shape))
        and not torch.compiler.is_compiling()
        and has_numbers(x)
        and not torch._C._are_functorch_transforms_active()
        and gpu_can(x.device)
    )


def _apply(x: Tensor, residual: Tensor | None, stats: Tensor, norm: BatchNorm) -> Tensor:
    """``relu((x - stats[0]) * stats[1] * weight + bias + residual)`` in one pass."""
    from tolerant.train.networks import norm_kernels

    channels = x.shape[1]
    m = x.numel() // channels
    if residual is not None:
        residual = residual.contiguous(memory_format=torch.channels_last)
    y = torch.empty_like(x)
    cut = _cut(m, channels)
    with torch.cuda.device_of(x):
        norm_kernels.apply_kernel[cut.each_grid](
            x, residual, y, stats, norm.weight, norm.bias, m, C=channels, RELU=norm.relu, **cut.each
        )
    return y


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, norm: BatchNorm
    ) -> Tensor:
        from tolerant.train.networks import norm_kernels

        channels = x.shape[1]
        m = x.numel() // channels
        stats = torch.empty(2, channels, dtype=torch.float32, device=x.device)
        cut = _cut(m, channels)
        tickets = norm.tickets()
        with torch.cuda.device_of(x):
            norm_kernels.statistics_kernel[cut.sums_grid](
                x, cut.partial(x), tickets, stats, norm.running_mean, norm.running_var,
                norm.num_batches_tracked, m, norm.eps, norm.momentum, C=channels, **cut.sums,
            )  # fmt: skip
        y = _apply(x, residual, stats, norm)
        ctx.save_for_backward(x, None if residual is None else y, stats, weight, bias)
        ctx.relu, ctx.tickets, ctx.cut = norm.relu, tickets, cut
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        from tolerant.train.networks import norm_kernels

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
            norm_kernels.sums_kernel[cut.sums_grid](
                dy, x, y, stats, weight, bias, through, cut.partial(x), ctx.tickets, d_weight, d_bias, m,
                C=channels, RELU=ctx.relu, **cut.sums,
            )  # fmt: skip
            norm_kernels.input_kernel[cut.each_grid](
                dy if through is None else through, x, stats, weight, bias, d_weight, d_bias, dx, m,
                C=channels, RELU=ctx.relu and through is None, **cut.each,
            )  # fmt: skip
        d_residual = None if y is None else (dy if through is None else through)
        return dx, d_residual, d_weight, d_bias, None


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
