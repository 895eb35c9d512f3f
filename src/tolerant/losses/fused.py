"""The fast path on the CPU: losses and their gradient in one sweep over the logits.

The gradient's weight w(p_y) is known as soon as log p_y is, so the gradient is formed in the forward
pass, in the place of the exponentials: one exponential, a sum and a product for each logit, instead of a
log-softmax and its backward pass with a copy of zeros between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tolerant.losses import small
from tolerant.losses.log_prob import compute_dtype, log_p_y
from tolerant.losses.phi import Phi

# Logits of 16 bits are widened a block at a time. Smaller blocks would stay in the cores' own caches, but
# each costs a dozen operations on one number a row, and a meeting of all threads for each of the large ones,
# for which a busy machine makes them wait.
BLOCK_BYTES = 8 << 20
# exp(z) needs no shift by the row's maximum where the label's is above LEAST_OWN and their sum between
# LEAST and MOST: then neither p_y, nor a p_j above 1e-37, nor w / sum leaves the range of fp32.
LEAST_OWN, LEAST, MOST = 1e-9, 0.1, 1e12
# Below, shifted exponentials lose digits; such rows take log p_y from the logits.
TINY = 1e-30


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


def has_numbers(tensor: Tensor) -> bool:
    """Not so a fake tensor, or one in shards: they can neither be pointed at nor looked into."""
    return type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__


def weigh(values: Tensor, row_weight: RowWeight) -> Tensor:
    """row_weight * values, where a row of weight 0 is left out even if its value is inf.

    The gradient in a weight of 0 is still the row's value: reweighting by gradients starts from there.
    """
    if not isinstance(row_weight, Tensor):
        return values * row_weight
    return row_weight * torch.where(row_weight == 0, values.nan_to_num(0.0, 0.0, 0.0), values)


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
        values, losses, gradient = _sweep(logits, labels, row_weight, phi, hyper, early)
        weights = row_weight if isinstance(row_weight, Tensor) else None
        ctx.number = None if weights is not None else row_weight
        ctx.save_for_backward(logits, labels, weights, values, gradient)
        return losses.sum() if summed else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, weights, values, gradient = ctx.saved_tensors
        row_weight = ctx.number if weights is None else weights
        wants = ctx.needs_input_grad
        again = torch.is_grad_enabled()  # a gradient of this gradient is wanted: stay differentiable
        if again or not torch._C._has_storage(grad):  # or many at once are (is_grads_batched)
            with torch.enable_grad():
                losses = plain_phi_rows(logits, labels, row_weight, ctx.phi, ctx.hyper)
                losses = losses.sum() if ctx.summed else losses
            inputs = [t for t, want in ((logits, wants[0]), (weights, wants[2])) if want]
            found = iter(torch.autograd.grad(losses, inputs, grad, create_graph=again))
            return next(found) if wants[0] else None, None, next(found, None), None, None, None
        if not wants[0]:
            gradient = None
        elif gradient is None:
            scaled = (row_weight * grad).expand(len(logits))
            _, _, gradient = _sweep(logits, labels, scaled, ctx.phi, ctx.hyper, True)
        elif not (ctx.summed and grad.item() == 1):
            gradient = (gradient * grad.reshape(-1, 1)).to(logits.dtype)
        return gradient, None, weigh(values, grad) if wants[2] else None, None, None, None


def _sweep(
    logits: Tensor, labels: Tensor, row_weight: RowWeight, phi: Phi, hyper: dict[str, Any], want: bool
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """phi(log p_y) of every row, that times row_weight and, if wanted, row_weight * w * (softmax - onehot).

    The first is what row weights have as their gradient; a number may come back without it.
    """
    if small.serves(logits, labels, row_weight):
        found = small.sweep(logits, labels, row_weight, phi, hyper, want)
        if found is not None:
            return found
    dtype = compute_dtype(logits)
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if want else None
    column = labels.unsqueeze(1)
    each = row_weight.unsqueeze(1) if isinstance(row_weight, Tensor) else row_weight
    if gradient is not None and gradient.dtype == dtype and len(logits):
        log_p, _ = _block(logits, column, each, gradient, gradient, phi, hyper, False)
        values = phi.value(log_p, **hyper).squeeze(1)
        return values, weigh(values, row_weight), gradient
    size = max(1, BLOCK_BYTES // (logits.shape[1] * dtype.itemsize))
    space = torch.empty((min(size, len(logits)), logits.shape[1]), dtype=dtype)
    log_p = torch.empty((len(logits), 1), dtype=dtype)
    shift = False
    for start in range(0, len(logits), size):
        rows = slice(start, start + size)
        z = logits[rows]
        log_p[rows], shift = _block(
            z,
            column[rows],
            each[rows] if isinstance(each, Tensor) else each,
            space[: len(z)],
            None if gradient is None else gradient[rows],
            phi,
            hyper,
            shift,
        )
    values = phi.value(log_p, **hyper).squeeze(1)
    return values, weigh(values, row_weight), gradient


def _block(
    logits: Tensor,
    column: Tensor,
    row_weight: RowWeight,
    space: Tensor,
    gradient: Tensor | None,
    phi: Phi,
    hyper: dict[str, Any],
    shift: bool,
) -> tuple[Tensor, bool]:
    """log p_y, and the gradient, formed in `space`; few operations, as small batches feel each.

    `shift` by the row's maximum costs two more passes; it comes back True where it was needed.
    """
    if not shift:
        own, rivals = _exponentials(logits, column, space)
        total = own + rivals
        low, high = torch.aminmax(total)
        shift = not (low.item() > LEAST and high.item() < MOST and own.min().item() > LEAST_OWN)
    if shift:
        top = logits.amax(1, keepdim=True).to(space.dtype)
        own, rivals = _exponentials(logits, column, space, top)
        total = own + rivals
    log_p = torch.log1p(rivals / own).neg_()
    if shift:
        z_y = logits.gather(1, column) - top
        log_p = torch.where(own < TINY, z_y - torch.log(total), log_p)
    if gradient is not None:
        scale = weigh(phi.weight(log_p, **hyper), row_weight).div_(total)
        space.scatter_(1, column, rivals.neg_()).mul_(scale)  # -w (1 - p_y) with all its digits
        if gradient is not space:
            gradient.copy_(space)
    return log_p, shift


def _exponentials(
    logits: Tensor, column: Tensor, space: Tensor, top: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """exp(z - top) in `space` with the label's put to 0; the label's, and the sum of the others."""
    z = logits if logits.dtype == space.dtype else space.copy_(logits)
    if top is not None:
        z = torch.sub(z, top, out=space)
    own = torch.exp(z, out=space).gather(1, column)
    return own, space.scatter_(1, column, 0.0).sum(1, keepdim=True)
