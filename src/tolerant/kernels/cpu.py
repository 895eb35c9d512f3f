"""The fast path on the CPU: losses and their gradient in one sweep over the logits.

The gradient's weight w(p_y) is known as soon as log p_y is, so the gradient is formed in the forward
pass, in the place of the exponentials: one exponential, a sum and a product for each logit, instead of a
log-softmax and its backward pass with a copy of zeros between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tolerant.kernels import can, plain
from tolerant.kernels.log_prob import compute_dtype
from tolerant.kernels.plain import Phi, RowWeight, counted, weigh

# Logits of 16 bits are widened to fp32 a block at a time. Smaller blocks would fit into the cores' own
# caches, but every block costs a dozen operations on one number per row, and for each of its large operations
# all threads have to meet, which takes long on a busy machine.
BLOCK_BYTES = 8 << 20
# exp(z) needs no shift by the row's maximum where the label's exponential and the sum over the row lie in
# these ranges: then neither p_y, nor a p_j above 1e-37, nor w / sum leaves the range of fp32.
LEAST_LABEL, LEAST_SUM, MOST_SUM = 1e-9, 0.1, 1e12
# A shifted exponential of the label below this has lost digits: then log p_y is taken from the logits.
TINY = 1e-30


def phi_rows(
    logits: Tensor, labels: Tensor, row_weight: RowWeight, loss: Phi, summed: bool = False
) -> Tensor:
    """row_weight * phi(log p_y) for logits (N, C) and labels (N), or its sum; equals `plain`, faster."""
    return _PhiRows.apply(logits, labels, row_weight, loss, summed)


class _PhiRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, row_weight: RowWeight, loss: Phi, summed: bool
    ) -> Tensor:
        ctx.loss, ctx.summed = loss, summed
        # fp16 gradients are formed in the backward: a loss scale that comes after the rounding to
        # fp16 could not bring back what had fallen below 6e-8.
        early = ctx.needs_input_grad[0] and logits.dtype != torch.float16
        values, losses, gradient = _sweep(logits, labels, row_weight, loss, early)
        weights = row_weight if isinstance(row_weight, Tensor) else None
        ctx.number = None if weights is not None else row_weight
        ctx.save_for_backward(logits, labels, weights, values, gradient)
        return losses.sum() if summed else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, weights, values, gradient = ctx.saved_tensors
        row_weight = ctx.number if weights is None else weights
        wants = ctx.needs_input_grad
        if not can.scale_gradient(grad):
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                losses = plain.phi_rows(logits, labels, row_weight, ctx.loss)
                losses = losses.sum() if ctx.summed else losses
            inputs = [t for t, want in ((logits, wants[0]), (weights, wants[2])) if want]
            found = iter(torch.autograd.grad(losses, inputs, grad, create_graph=again))
            return next(found) if wants[0] else None, None, next(found, None), None, None
        if not wants[0]:
            gradient = None
        elif gradient is None:
            scaled = (row_weight * grad).expand(len(logits))
            _, _, gradient = _sweep(logits, labels, scaled, ctx.loss, True)
        elif not (ctx.summed and grad.item() == 1):
            gradient = (gradient * grad.reshape(-1, 1)).to(logits.dtype)
        by_weight = weigh(counted(values, weights), grad) if wants[2] else None
        return gradient, None, by_weight, None, None


def _sweep(
    logits: Tensor, labels: Tensor, row_weight: RowWeight, loss: Phi, want_grad: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Values, losses, gradients: phi(log p_y), row_weight * phi, row_weight * w * (softmax - onehot).

    The values are the gradient of the row weights.
    """
    dtype = compute_dtype(logits)
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if want_grad else None
    column = labels.unsqueeze(1)
    each = row_weight.unsqueeze(1) if isinstance(row_weight, Tensor) else row_weight
    if gradient is not None and gradient.dtype == dtype and len(logits):
        # The gradient itself is the space for the exponentials: one block, and no other memory.
        log_p, _ = _block(logits, column, each, gradient, gradient, loss, False)
    else:
        log_p = _in_blocks(logits, column, each, gradient, loss)
    values = loss.phi(log_p).squeeze(1)
    return values, weigh(values, row_weight), gradient


def _in_blocks(
    logits: Tensor, column: Tensor, row_weight: RowWeight, gradient: Tensor | None, loss: Phi
) -> Tensor:
    """log p_y of all rows, and their gradient, a block of rows at a time in one small space."""
    dtype = compute_dtype(logits)
    size = max(1, BLOCK_BYTES // (logits.shape[1] * dtype.itemsize))
    space = logits.new_empty((min(size, len(logits)), logits.shape[1]), dtype=dtype)
    log_p = logits.new_empty((len(logits), 1), dtype=dtype)
    shift = False
    for start in range(0, len(logits), size):
        rows = slice(start, start + size)
        z = logits[rows]
        log_p[rows], shift = _block(
            z,
            column[rows],
            row_weight[rows] if isinstance(row_weight, Tensor) else row_weight,
            space[: len(z)],
            None if gradient is None else gradient[rows],
            loss,
            shift,
        )
    return log_p


def _block(
    logits: Tensor,
    column: Tensor,
    row_weight: RowWeight,
    space: Tensor,
    gradient: Tensor | None,
    loss: Phi,
    shift: bool,
) -> tuple[Tensor, bool]:
    """log p_y of a block of rows, and their gradient, formed in `space`, in as few operations as possible.

    To `shift` by the row's maximum costs two more passes. Without it, that is done only where it turns out to
    be needed; the second value says so, and the next block need not try without.
    """
    if not shift:
        own, rivals = _exponentials(logits, column, space)
        total = own + rivals
        low, high = torch.aminmax(total)
        in_range = low.item() > LEAST_SUM and high.item() < MOST_SUM and own.min().item() > LEAST_LABEL
        shift = not in_range
    if shift:
        top = logits.amax(1, keepdim=True).to(space.dtype)
        own, rivals = _exponentials(logits, column, space, top)
        total = own + rivals
    log_p = torch.log1p(rivals / own).neg_()
    if shift:
        z_y = logits.gather(1, column) - top
        log_p = torch.where(own < TINY, z_y - torch.log(total), log_p)
    if gradient is not None:
        scale = weigh(loss.weight(log_p), row_weight).div_(total)
        space.scatter_(1, column, rivals.neg_()).mul_(scale)  # -w (1 - p_y) with all its digits
        if shift and isinstance(row_weight, Tensor):  # a row left out may hold NaN, and 0 * NaN is NaN
            left_out = (row_weight == 0) & ~total.isfinite()
            if left_out.any():
                space.masked_fill_(left_out, 0.0)
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
