"""The fused GPU path of the phi losses: loss and gradient in one launch, no host synchronisation.

The gradient is formed in the forward pass, where w(p_y) is known, and the backward pass multiplies it
by the upstream gradient, or does nothing where that is 1. It is handed out once: a second backward
pass (``retain_graph``) forms it anew from the saved logits, and ``create_graph`` takes the plain path.
Results repeat bit by bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tolerant.losses.fused import RowWeight, has_numbers, needs_plain_path, plain_phi_rows
from tolerant.losses.phi import PHI
from tolerant.losses.reduction import Weighing, weighted_loss
from tolerant.losses.triton_launch import Call, gpu_can, launch, most_classes, scale_

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def available(logits: Tensor, *weights: Tensor | None) -> bool:
    """Whether `phi_loss` can take these logits (N, C); if not, use the plain path.

    Not while compiling (Inductor fuses the plain path), under ``torch.func``, for empty batches, where class
    or sample weights want a gradient, for a DTensor or a fake tensor, or beyond 262144 classes (fewer on a
    small GPU).
    """
    return (
        logits.is_cuda
        and torch.version.hip is None
        and not torch.compiler.is_compiling()
        and has_numbers(logits)
        and logits.dtype in _DTYPES
        and logits.numel() > 0
        and not any(weight is not None and weight.requires_grad for weight in weights)
        and not torch._C._are_functorch_transforms_active()
        and gpu_can(logits.device)
        and logits.shape[1] <= most_classes(logits.device)
    )


def phi_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    phi: str,
    hyper: dict[str, float],
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """A loss of log p_y on logits (N, C) and labels (N,), with its gradient; fp32 at least."""
    call = Call(phi, tuple(hyper.items()), ignore_index, reduction)
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
        return launch(call, logits, labels, weight, sample_weight)
    return _PhiLoss.apply(logits, labels, weight, sample_weight, call)[0]


class _PhiLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        logits: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        sample_weight: Tensor | None,
        call: Call,
    ) -> tuple[Tensor, Tensor | None]:
        # fp16 is formed in the backward pass: it reaches down to 6e-8 only, and a loss scale must
        # come in before it is rounded.
        early = logits.dtype != torch.float16
        grad = torch.empty_like(logits, memory_format=torch.contiguous_format) if early else None
        return launch(call, logits, labels, weight, sample_weight, grad=grad), grad

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, labels, weight, sample_weight, ctx.call = inputs
        ctx.grad = output[1]
        if ctx.grad is not None:
            ctx.mark_non_differentiable(ctx.grad)
        ctx.set_materialize_grads(False)  # or the backward pass would fill zeros for `grad`, all N x C
        ctx.save_for_backward(logits, labels, weight, sample_weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:  # the loss is not part of what is differentiated
            return (None,) * 5
        if needs_plain_path(upstream):
            return (_plain_grad(ctx.call, upstream, *ctx.saved_tensors), *[None] * 4)
        grad, ctx.grad = ctx.grad, None
        if grad is not None:
            return (scale_(grad, upstream), *[None] * 4)
        logits = ctx.saved_tensors[0]
        grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
        launch(ctx.call, *ctx.saved_tensors, grad=grad, upstream=upstream)
        return (grad, *[None] * 4)


def _plain_grad(
    call: Call,
    upstream: Tensor,
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
) -> Tensor:
    """The gradient from the plain path: can be differentiated again, and takes any upstream gradient."""
    weighing = Weighing(weight, call.ignore_index, call.reduction, sample_weight)

    def rows(z: Tensor, y: Tensor, row_weight: RowWeight) -> Tensor:
        return plain_phi_rows(z, y, row_weight, PHI[call.phi], dict(call.hyper))

    again = torch.is_grad_enabled()
    with torch.enable_grad():
        loss = weighted_loss(logits, labels, weighing, rows)
    return torch.autograd.grad(loss, logits, upstream, create_graph=again)[0]
