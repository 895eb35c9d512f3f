"""The fast path on the CPU: losses and their gradient in one sweep over the logits.

The gradient's weight w(p_y) is known as soon as log p_y is, so the gradient is formed in the forward
pass, in the place of the probabilities: one softmax, a sum and a product, instead of a log-softmax and its
backward pass with a copy of zeros between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tolerant.losses.log_prob import compute_dtype, log_p_y
from tolerant.losses.phi import Phi

# Logits of 16 bits are widened a block at a time: a core's second-level cache holds it.
BLOCK_BYTES = 2 << 20
# Below, log(p_y) would be a denormal's, or of 0; such rows take log p_y from the logits.
TINY = 1e-30
LEAST_OWN, LEAST, MOST = 1e-9, 0.1, 1e12


# One weight a row, or one number for all: without weights and ignored rows it is 1, or 1 / N.
RowWeight = Tensor | float


def phi_rows(
    logits: Tensor,
    labels: Tensor,
    row_weight: RowWeight,
    phi: Phi,
    hyper: dict[str, Any],
    summed: bool = False,
) -> Tensor:
    """row_weight * phi(log p_y) for logits (N, C), or its sum; equals the plain path, faster."""
    return _PhiRows.apply(logits, labels, row_weight, phi, hyper, summed)


def plain_phi_rows(
    logits: Tensor, labels: Tensor, row_weight: RowWeight, phi: Phi, hyper: dict[str, Any]
) -> Tensor:
    """The same from the primitives: the reference, and what compilers and transforms see."""
    return weigh(phi(log_p_y(logits, labels), **hyper), row_weight)


def weigh(values: Tensor, row_weight: RowWeight) -> Tensor:
    """row_weight * values, where a row of weight 0 is left out even if its value is inf."""
    if not isinstance(row_weight, Tensor):
        return values * row_weight
    return torch.where(row_weight == 0, 0.0, row_weight * values)


class _PhiRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        row_weight: RowWeight,
        phi: Phi,
        hyper: dict[str, Any],
        summed: bool,
    ) -> Tensor:
        ctx.phi, ctx.hyper, ctx.summed = phi, hyper, summed
        # fp16 gradients are formed in the backward: a loss scale that comes after the rounding to
        # fp16 could not bring back what had fallen below 6e-8.
        early = ctx.needs_input_grad[0] and logits.dtype != torch.float16
        values, gradient = _sweep(logits, labels, row_weight, phi, hyper, early)
        weights = row_weight if isinstance(row_weight, Tensor) else None
        ctx.number = None if weights is not None else row_weight
        ctx.save_for_backward(logits, labels, weights, values, gradient)
        losses = weigh(values, row_weight)
        return losses.sum() if summed else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, weights, values, gradient = ctx.saved_tensors
        row_weight = ctx.number if weights is None else weights
        wants = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: stay differentiable
            losses = plain_phi_rows(logits, labels, row_weight, ctx.phi, ctx.hyper)
            losses = losses.sum() if ctx.summed else losses
            inputs = [t for t, want in ((logits, wants[0]), (weights, wants[2])) if want]
            found = iter(torch.autograd.grad(losses, inputs, grad, create_graph=True))
            return next(found) if wants[0] else None, None, next(found, None), None, None, None
        if not wants[0]:
            gradient = None
        elif gradient is None:
            scaled = (row_weight * grad).expand(len(logits))
            _, gradient = _sweep(logits, labels, scaled, ctx.phi, ctx.hyper, True)
        elif not (ctx.summed and grad.item() == 1):
            gradient = (gradient * grad.reshape(-1, 1)).to(logits.dtype)
        return gradient, None, weigh(values, grad) if wants[2] else None, None, None, None


def _sweep(
    logits: Tensor, labels: Tensor, row_weight: RowWeight, phi: Phi, hyper: dict[str, Any], want: bool
) -> tuple[Tensor, Tensor | None]:
    """phi(log p_y) of every row and, if wanted, row_weight * w * (softmax - onehot)."""
    dtype = compute_dtype(logits)
    num_rows, num_classes = logits.shape
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if want else None
    size = max(1, BLOCK_BYTES // (num_classes * dtype.itemsize))
    space = gradient
    if space is None or space.dtype != dtype:
        space = torch.empty((min(size, num_rows), num_classes), dtype=dtype)
    if num_rows <= size:
        return _block(logits, labels, row_weight, space, gradient, phi, hyper), gradient
    values = torch.empty(num_rows, dtype=dtype)
    for start in range(0, num_rows, size):
        rows = slice(start, start + size)
        z = logits[rows]
        values[rows] = _block(
            z,
            labels[rows],
            row_weight[rows] if isinstance(row_weight, Tensor) else row_weight,
            space[rows] if space is gradient else space[: len(z)],
            None if gradient is None else gradient[rows],
            phi,
            hyper,
        )
    return values, gradient


def _block(
    logits: Tensor,
    labels: Tensor,
    row_weight: RowWeight,
    space: Tensor,
    gradient: Tensor | None,
    phi: Phi,
    hyper: dict[str, Any],
) -> Tensor:
    """As `_sweep`, in `space`, which may be `gradient`; few operations, as small batches feel each."""
    column = labels.unsqueeze(1)
    own, rivals, total = _exponentials(logits, column, space, shift=False)
    if own.numel() and not (own.min().item() > LEAST_OWN and LEAST < total.min().item() and total.max().item() < MOST):
        own, rivals, total = _exponentials(logits, column, space, shift=True)
    log_p = torch.log1p(rivals / own).neg_()
    if own.numel() and own.min().item() < TINY:
        tiny = (own < TINY).squeeze(1)
        log_p[tiny] = log_p_y(logits[tiny], labels[tiny]).unsqueeze(1)
    if gradient is not None:
        each = row_weight.unsqueeze(1) if isinstance(row_weight, Tensor) else row_weight
        scale = weigh(phi.weight(log_p, **hyper), each).div_(total)
        space.mul_(scale).scatter_(1, column, rivals.mul_(scale).neg_())
        if gradient.dtype != space.dtype:
            gradient.copy_(space)
    return phi.value(log_p, **hyper).squeeze(1)


def _exponentials(
    logits: Tensor, column: Tensor, space: Tensor, *, shift: bool
) -> tuple[Tensor, Tensor, Tensor]:
    z = logits if logits.dtype == space.dtype else space.copy_(logits)
    if shift:
        z = torch.sub(z, z.amax(1, keepdim=True), out=space)
    own = torch.exp(z, out=space).gather(1, column)
    rivals = space.scatter_(1, column, 0.0).sum(1, keepdim=True)
    return own, rivals, own + rivals
