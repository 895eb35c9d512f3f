"""Convolutions whose weight gradients are computed beside the backward pass, on a stream of their own.

The backward pass waits for the gradient of each layer's input, but for the gradient of its weights only
at the end. At batch 128 neither of the two fills a large GPU, so they run at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_this_thread = threading.local()


class Overlap:
    """A second stream for the weight gradients of the `Conv2d` layers of one model."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self._found: list[tuple[Tensor, Tensor]] = []
        # Until the streams meet, what the second one reads must not be given to another tensor.
        self._in_use: list[Tensor] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Forward and backward pass go inside; after it every gradient is in its place."""
        _this_thread.overlap = self
        try:
            yield
        finally:
            _this_thread.overlap = None
            if self._found:  # else a stream being captured would wait for one that is not
                torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
            for weight, gradient in self._found:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
            self._found.clear()
            self._in_use.clear()

    def later(self, weight: Tensor, gradient: Callable[[], Tensor], *reads: Tensor) -> None:
        """Compute a weight's gradient on the second stream; it reads tensors of the current one."""
        self._in_use += reads
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            self._found.append((weight, gradient()))


class Conv2d(nn.Conv2d):
    """torch's convolution; in an `Overlap.step` its weight gradient does not hold the others up.

    >>> Conv2d(3, 8, 3, bias=False)(torch.zeros(1, 3, 5, 5)).shape
    torch.Size([1, 8, 3, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        overlap = getattr(_this_thread, "overlap", None)
        if (
            overlap is None
            or torch.compiler.is_compiling()
            or not self.weight.requires_grad
            or not self.weight.is_leaf  # made of others (weight_norm): the backward pass must go on to them
            or self.bias is not None
            or self.groups > 1
            or self.padding_mode != "zeros"
            or isinstance(self.padding, str)
            or x.dtype != self.weight.dtype  # autocast has to cast one of them
        ):
            return super().forward(x)
        out: Tensor = _Conv.apply(x, self.weight, (self.stride, self.padding, self.dilation), overlap)
        return out


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shape: tuple[Any, ...], overlap: Overlap) -> Tensor:
        ctx.overlap, ctx.weight, ctx.width = overlap, weight, x.shape[1]
        ctx.arguments = (None, *shape, False, (0, 0), 1)
        x, weight = _eight_channels(x), _eight_channels(weight)
        ctx.save_for_backward(x, weight)
        out: Tensor = torch.ops.aten.convolution(x, weight, *ctx.arguments)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors

        def gradient(number: int) -> Tensor:
            wanted = [i == number for i in range(3)]
            found: list[Tensor] = torch.ops.aten.convolution_backward(dy, x, weight, *ctx.arguments, wanted)
            return found[number][:, : ctx.width].contiguous(memory_format=torch.channels_last)

        ctx.overlap.later(ctx.weight, lambda: gradient(1), dy, x)
        dx = gradient(0) if ctx.needs_input_grad[0] else None
        return dx, None, None, None


def _eight_channels(x: Tensor) -> Tensor:
    """Zeros beside the 1 or 3 channels of a picture: tensor cores take eight at a time.

    Left to itself, cuDNN adds the zeros anew in each pass, or does not use the tensor cores.
    """
    missing = 8 - x.shape[1]
    if missing <= 0 or x.dtype == torch.float32:
        return x
    return F.pad(x, (0, 0, 0, 0, 0, missing)).contiguous(memory_format=torch.channels_last)
