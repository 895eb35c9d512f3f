"""The fused GPU path of the phi losses: loss and gradient in one launch, no host synchronisation.

The gradient is formed in the forward pass, where w(p_y) is known, and the backward pass multiplies it
by the upstream gradient, or does nothing where that is 1. It is handed out once: a second backward
pass (``retain_graph``) forms it anew from the saved logits, and ``create_graph`` takes the plain path.
Results repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from tolerant.kernels import can
from tolerant.kernels.plain import Phi
from tolerant.kernels.triton.launch import Call, launch, scale_


class Loss(Phi, Protocol):
    """A loss of p_y that has a Triton form."""

    class_weight: Tensor | None
    ignore_index: int
    reduction: str

    @property
    def form(self) -> str: ...

    @property
    def hyper(self) -> Mapping[str, float]: ...

    def plain_value(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> Tensor: ...


def phi_loss(logits: Tensor, labels: Tensor, sample_weight: Tensor | None, loss: Loss) -> Tensor:
    """The loss of logits (N, C) and labels (N,), with its gradient, weighted and reduced; fp32 at least."""
    weight = loss.class_weight
    for name, tensor in (("labels", labels), ("weight", weight), ("sample_weight", sample_weight)):
        # A pointer to another device would stop the kernel, and with it the process's use of the GPU.
        if tensor is not None and tensor.device != logits.device:
            raise ValueError(
                f"{name} must be on the logits' device, {logits.device}; got {tensor.device}. "
                f"Call {name}.to(logits.device), or loss.to(logits.device) for a module's weights."
            )
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    labels = labels.long().contiguous()
    weight = None if weight is None else weight.contiguous()
    sample_weight = None if sample_weight is None else sample_weight.contiguous()
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return launch(_call(loss), logits, labels, weight, sample_weight)
    return _PhiLoss.apply(logits, labels, weight, sample_weight, loss)[0]


def _call(loss: Loss) -> Call:
    return Call(loss.form, loss.hyper, loss.ignore_index, loss.reduction)


class _PhiLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        logits: Tensor, labels: Tensor, weight: Tensor | None, sample_weight: Tensor | None, loss: Loss
    ) -> tuple[Tensor, Tensor | None]:
        # fp16 is formed in the backward pass: it reaches down to 6e-8 only, and a loss scale must
        # come in before it is rounded.
        early = logits.dtype != torch.float16
        grad = torch.empty_like(logits, memory_format=torch.contiguous_format) if early else None
        return launch(_call(loss), logits, labels, weight, sample_weight, grad=grad), grad

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, labels, weight, sample_weight, ctx.loss = inputs
        ctx.grad = output[1]
        if ctx.grad is not None:
            ctx.mark_non_differentiable(ctx.grad)
        ctx.set_materialize_grads(False)  # or the backward pass would fill zeros for `grad`, all N x C
        ctx.save_for_backward(logits, labels, weight, sample_weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:  # the loss is not part of what is differentiated
            return (None,) * 5
        if not can.scale_gradient(upstream):
            return (_plain_grad(ctx.loss, upstream, *ctx.saved_tensors), *[None] * 4)
        grad, ctx.grad = ctx.grad, None
        if grad is not None:
            return (scale_(grad, upstream), *[None] * 4)
        logits = ctx.saved_tensors[0]
        grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
        launch(_call(ctx.loss), *ctx.saved_tensors, grad=grad, upstream=upstream)
        return (grad, *[None] * 4)


def _plain_grad(
    loss: Loss,
    upstream: Tensor,
    logits: Tensor,
    labels: Tensor,
    _: Tensor | None,
    sample_weight: Tensor | None,
) -> Tensor:
    """The gradient from the plain path: can be differentiated again, and takes any upstream gradient."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        value = loss.plain_value(logits, labels, sample_weight)
    return torch.autograd.grad(value, logits, upstream, create_graph=again)[0]
