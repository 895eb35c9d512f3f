"""The fast path on the CPU: losses and their gradient in one sweep over the logits.

The gradient's weight w(p_y) is known as soon as log p_y is, so the gradient is formed in the forward
pass: one read of the logits and one write, instead of a log-softmax, its copy and two more passes.
Rows are taken a block at a time so that all but the first touch happens in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tolerant.losses.log_prob import compute_dtype, log_p_y
from tolerant.losses.phi import Phi

# One block of logits in the compute dtype: a core's second-level cache holds it, and the dozen small
# operations a block costs are spread over 256k values.
BLOCK_BYTES = 1 << 20


def phi_rows(logits: Tensor, labels: Tensor, row_weight: Tensor, phi: Phi, hyper: dict[str, Any]) -> Tensor:
    """row_weight * phi(log p_y) for logits (N, C); equals the plain path, faster."""
    return _PhiRows.apply(logits, labels, row_weight, phi, hyper)


def plain_phi_rows(
    logits: Tensor, labels: Tensor, row_weight: Tensor, phi: Phi, hyper: dict[str, Any]
) -> Tensor:
    """The same from the primitives: the reference, and what compilers and transforms see."""
    return weigh(phi(log_p_y(logits, labels), **hyper), row_weight)


def weigh(values: Tensor, row_weight: Tensor) -> Tensor:
    """row_weight * values, where a row of weight 0 is left out even if its value is inf."""
    return torch.where(row_weight == 0, 0.0, row_weight * values)


class _PhiRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        row_weight: Tensor,
        phi: Phi,
        hyper: dict[str, Any],
    ) -> Tensor:
        ctx.phi, ctx.hyper = phi, hyper
        # fp16 gradients are formed in the backward: a loss scale that comes after the rounding to
        # fp16 could not bring back what had fallen below 6e-8.
        early = ctx.needs_input_grad[0] and logits.dtype != torch.float16
        values, gradient = _sweep(logits, labels, row_weight, phi, hyper, early)
        ctx.save_for_backward(logits, labels, row_weight, values, gradient)
        return weigh(values, row_weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, row_weight, values, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: stay differentiable
            losses = plain_phi_rows(logits, labels, row_weight, ctx.phi, ctx.hyper)
            wanted = [t for t in (logits, row_weight) if t.requires_grad]
            found = iter(torch.autograd.grad(losses, wanted, grad, create_graph=True))
            by_input = [next(found) if t.requires_grad else None for t in (logits, row_weight)]
            return by_input[0], None, by_input[1], None, None
        grad_weight = weigh(values, grad) if ctx.needs_input_grad[2] else None
        if not ctx.needs_input_grad[0]:
            return None, None, grad_weight, None, None
        if gradient is None:
            _, gradient = _sweep(logits, labels, row_weight * grad, ctx.phi, ctx.hyper, True)
        elif not _is_one(grad):
            gradient = (gradient * grad.unsqueeze(1)).to(logits.dtype)
        return gradient, None, grad_weight, None, None


def _is_one(grad: Tensor) -> bool:
    """Whether the upstream gradient is the 1 that `loss.sum().backward()` sends to every row."""
    return grad.numel() > 0 and grad.stride(0) == 0 and grad[0].item() == 1


def _sweep(
    logits: Tensor, labels: Tensor, row_weight: Tensor, phi: Phi, hyper: dict[str, Any], want: bool
) -> tuple[Tensor, Tensor | None]:
    """phi(log p_y) of every row and, if wanted, row_weight * w * (softmax - onehot)."""
    dtype = compute_dtype(logits)
    num_rows, num_classes = logits.shape
    block = max(1, BLOCK_BYTES // (num_classes * dtype.itemsize))
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if want else None
    values = torch.empty(num_rows, 1, dtype=dtype)
    # Blocks of the gradient serve as the work space where its dtype allows.
    in_place = gradient is not None and gradient.dtype == dtype
    space = None if in_place else torch.empty(min(block, num_rows), num_classes, dtype=dtype)
    for start in range(0, num_rows, block):
        rows = slice(start, start + block)
        z, y = logits[rows], labels[rows].unsqueeze(1)
        e = gradient[rows] if in_place else space[: len(z)]  # type: ignore[index]
        e.copy_(z)
        e.sub_(e.amax(1, keepdim=True))
        own = e.gather(1, y)
        e.exp_().scatter_(1, y, 0.0)
        rival_sum = e.sum(1, keepdim=True)
        total = own.exp().add_(rival_sum)
        # As in log_prob._LogPY: log1p where the label is the maximum, so that no digit is lost.
        log_p = own - torch.where(own == 0, rival_sum.log1p(), total.log())
        values[rows] = phi.value(log_p, **hyper)
        if gradient is None:
            continue
        scale = weigh(phi.weight(log_p, **hyper), row_weight[rows].unsqueeze(1)).div_(total)
        e.mul_(scale).scatter_(1, y, -scale * rival_sum)
        if not in_place:
            gradient[rows] = e
    return values.squeeze(1), gradient
