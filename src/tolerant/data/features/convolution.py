"""Depthwise and 1 x 1 convolutions on a GPU, without cuDNN.

cuDNN makes a plan for each layer and each batch size, and from 9.10 on compiles a kernel for each plan of a
depthwise convolution: 1.5 s each (NVIDIA/cudnn-frontend, issue 1066). A small pretrained network has 16 such
layers with three passes each, a search tries ten plans, and pruning changes the size of the last batch every
epoch: minutes with an idle GPU before the first step. torch's own depthwise kernels need no plan, and a
1 x 1 convolution is a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Pair = Sequence[int]


def without_plans(x: Tensor) -> AbstractContextManager[Any]:
    """In it a network that gets ``x``, on a GPU, convolves so; on a CPU, and when compiled, as ever."""
    return _WithoutPlans() if x.is_cuda and not torch.compiler.is_compiling() else nullcontext()


class _WithoutPlans(TorchFunctionMode):
    """A network calls `torch.conv2d` wherever its layers come from."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (convolve if func is torch.conv2d else func)(*args, **(kwargs or {}))


def convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """As `torch.conv2d`, which computes what is neither depthwise nor 1 x 1.

    >>> x, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 1, 3, 3)
    >>> convolve(x, weight, padding=1, groups=2)[0, 0]
    tensor([[4., 6., 4.],
            [6., 9., 6.],
            [4., 6., 4.]])
    """
    pairs = [_pair(number) for number in (stride, padding, dilation)]
    batch = input.ndim == 4 and not isinstance(padding, str)
    if batch and groups == 1 and weight.shape[2:] == (1, 1) and pairs[:2] == [(1, 1), (0, 0)]:
        # Channels last: a view, and one product of all pixels of the batch.
        return F.linear(input.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
    if batch and 1 < groups == input.shape[1] and weight.shape[0] % groups == 0:
        if torch.is_autocast_enabled(input.device.type):
            low = torch.get_autocast_dtype(input.device.type)
            input, weight = input.to(low), weight.to(low)
            bias = None if bias is None else bias.to(low)
        out: Tensor = _Depthwise.apply(input, weight, bias, (*pairs, False, (0, 0), groups))
        return out
    return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[Any, ...]) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()  # channels last would go to cuDNN all the same
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.bias = shape, None if bias is None else bias.shape
        with _without_cudnn():
            out: Tensor = torch.ops.aten.convolution(x, weight, bias, *shape)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        with _without_cudnn():  # torch chooses anew in each pass
            found = torch.ops.aten.convolution_backward(
                dy.contiguous(), x, weight, ctx.bias, *ctx.shape, list(ctx.needs_input_grad[:3])
            )
        return (*found, None)


@contextmanager
def _without_cudnn() -> Iterator[None]:
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _pair(number: int | Pair | str) -> tuple[int, int] | str:
    if isinstance(number, str):
        return number
    return (number, number) if isinstance(number, int) else (number[0], number[-1])
