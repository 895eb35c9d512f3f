"""The last linear layer and a loss of p_y in one: the logits never exist all at once.

Rows are taken a chunk at a time. The gradient of a chunk's logits is known as soon as its loss is, so it
goes straight into the gradients of the hidden rows and of the layer: three matrix products, where recomputing
the logits in the backward pass would take four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tolerant.kernels import can, cpu, plain
from tolerant.kernels.log_prob import compute_dtype
from tolerant.kernels.products import LayerGrad, multiply
from tolerant.kernels.triton import launch
from tolerant.kernels.triton.loss import Loss

# The gradients of a chunk. 2048 rows of 128256 classes in bf16: with the logits below 1.09x of the bare
# products on an H200; half of both 1.15x, twice 1.07x. On a CPU a few times the cache is enough.
CHUNK_BYTES = {"cuda": 512 << 20, "cpu": 32 << 20}
# Logits of 16-bit inputs are 32 bits wide: rounded to bf16 they put gradients 2 to 4 times as far off. The
# loss alone needs them, so a part of a chunk at a time will do.
LOGITS_BYTES = {"cuda": 256 << 20, "cpu": 16 << 20}
# So often a sum is rounded to 16 bits before it is better kept in fp32.
MOST_16_BIT_SUMS = 8


@dataclass(frozen=True)
class LinearJob:
    """What is computed, apart from the tensors."""

    loss: Loss
    chunk_rows: int
    accumulate_fp32: bool | None  # None: where so many chunks are summed that 16 bits would drift
    per_row: bool  # the upstream gradient may differ from row to row
    may_be_dead: bool  # rows may have no gradient at all, and are then left out of the products


def rows_of_a_chunk(num_rows: int, weight: Tensor) -> int:
    most = CHUNK_BYTES.get(weight.device.type, CHUNK_BYTES["cpu"])
    most = max(1, most // (len(weight) * weight.element_size()))
    if most >= num_rows:
        return max(1, num_rows)
    chunks = -(-num_rows // max(128, most // 128 * 128))
    return -(-num_rows // chunks // 128) * 128  # equal chunks, whole tiles of the products


def rows_of_logits(num_classes: int, device: torch.device) -> int:
    most = LOGITS_BYTES.get(device.type, LOGITS_BYTES["cpu"]) // (num_classes * 4)
    return max(1, most // 128 * 128 or most)


Grads = tuple[Tensor | None, Tensor | None, Tensor | None]


def linear_phi_rows(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, row_weight: Tensor, job: LinearJob
) -> Tensor:
    """row_weight * phi(log p_y) for the logits ``F.linear(hidden, weight, bias)``, hidden (N, H)."""
    wants = tuple(
        torch.is_grad_enabled() and t is not None and t.requires_grad for t in (hidden, weight, bias)
    )
    return _LinearPhiRows.apply(hidden, weight, bias, labels, row_weight, job, wants)[0]


class _LinearPhiRows(torch.autograd.Function):
    @staticmethod
    def forward(
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        row_weight: Tensor,
        job: LinearJob,
        wants: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        # fp16 waits: a loss scale must come in before the gradient is rounded to 6e-8 steps.
        early = not job.per_row and hidden.dtype != torch.float16
        losses, grads = _sweep(
            hidden, weight, bias, labels, row_weight, job, wants if early else (False,) * 3
        )
        return losses, *grads

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.job, ctx.wants = inputs
        ctx.save_for_backward(*tensors)
        ctx.grads = None if all(g is None for g in output[1:]) else output[1:]
        ctx.mark_non_differentiable(*[g for g in output[1:] if g is not None])
        ctx.set_materialize_grads(False)  # or the backward pass would fill zeros as large as the layer

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:  # the loss is not part of what is differentiated
            return (None,) * 7
        grads: tuple[Tensor | None, ...]
        if not can.scale_gradient(upstream):
            grads = _plain_grads(upstream, ctx.saved_tensors, ctx.job)
        elif ctx.grads is not None:
            # Handed out once and scaled in place; a second backward pass starts over below.
            ready, ctx.grads = ctx.grads, None
            grads = tuple(None if g is None else _scale_(g, upstream[:1]) for g in ready)
        else:
            hidden, weight, bias, labels, row_weight = ctx.saved_tensors
            row_weight = row_weight * upstream
            grads = _sweep(hidden, weight, bias, labels, row_weight, ctx.job, ctx.wants)[1]
        return *grads, None, None, None, None


def _scale_(grad: Tensor, upstream: Tensor) -> Tensor:
    if not upstream.numel():
        return grad
    if grad.dim() == 2 and can.run_triton(grad):
        return launch.scale_(grad, upstream[0])
    return grad.mul_(upstream)  # which stays fp32: a third is 0.2 % too large in bf16, for every weight


def _plain_grads(upstream: Tensor, saved: tuple[Tensor, ...], job: LinearJob) -> tuple[Tensor | None, ...]:
    """The gradients from the plain path, which can be differentiated again; the logits exist here."""
    hidden, weight, bias, labels, row_weight = saved
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        wide = compute_dtype(hidden)
        logits = F.linear(hidden.to(wide), weight.to(wide), None if bias is None else bias.to(wide))
        losses = plain.phi_rows(logits, labels, row_weight, job.loss)
    needs = [t is not None and t.requires_grad for t in saved[:3]]
    wanted = [t for t, need in zip(saved, needs, strict=False) if need]
    found = iter(torch.autograd.grad(losses, wanted, upstream, create_graph=again))
    return tuple(next(found) if need else None for need in needs)


def _sweep(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    row_weight: Tensor,
    job: LinearJob,
    wants: tuple[bool, ...],
) -> tuple[Tensor, Grads]:
    """The weighted losses, and the gradients of their sum in hidden, weight and bias, where wanted."""
    num_rows, num_classes = len(hidden), len(weight)
    acc = compute_dtype(hidden)
    losses = torch.empty(num_rows, dtype=acc, device=hidden.device)
    leave_out_dead = job.may_be_dead and any(wants) and can.count(hidden)
    grad_hidden = None
    if wants[0]:
        grad_hidden = hidden.new_zeros(hidden.shape) if leave_out_dead else hidden.new_empty(hidden.shape)
    layer_grad = None
    if wants[1]:
        fp32 = job.accumulate_fp32
        fp32 = num_rows > MOST_16_BIT_SUMS * job.chunk_rows if fp32 is None else fp32
        layer_grad = LayerGrad(weight, fp32)
    grad_bias = hidden.new_zeros(num_classes, dtype=acc) if wants[2] else None
    columns = weight.t()
    size = min(job.chunk_rows, num_rows)
    grads = hidden.new_empty(size, num_classes) if any(wants) else None
    # Gradients of 32 or 64 bits take their logits' place; those of 16 bits are rounded from logits of 32.
    logits = grads
    if grads is None or grads.dtype != acc:
        size_of_logits = min(size, rows_of_logits(num_classes, hidden.device))
        logits = hidden.new_empty(size_of_logits, num_classes, dtype=acc)
    assert logits is not None
    # Gradients are held at the front of their buffer until they are enough for a product; where dead rows are
    # left out, `origin` says which rows of `hidden` they belong to.
    start = num_held = 0
    origin = torch.empty(size, dtype=torch.int64, device=hidden.device)
    while start < num_rows:
        rows = slice(start, start + _room(size, num_held, len(logits), leave_out_dead))
        h, y = hidden[rows], labels[rows]
        z = logits[num_held : num_held + len(h)] if logits is grads else logits[: len(h)]
        if bias is not None:
            z.copy_(bias)
        multiply(h, columns, z, add=bias is not None)
        g = None if grads is None else grads[num_held : num_held + len(h)]
        losses[rows] = _losses(z, y, row_weight[rows], job, g)
        start += len(h)
        if grads is None or g is None:
            continue
        if grad_bias is not None:
            grad_bias += g.sum(0, dtype=acc)
        num_held += _live_first_(g, y, origin[num_held:], rows.start) if leave_out_dead else len(h)
        # Products of few rows leave a GPU half idle, so the live rows of several chunks go together.
        if num_held and (start == num_rows or not _room(size, num_held, len(logits), leave_out_dead)):
            held, of = grads[:num_held], origin[:num_held]
            these = hidden[of] if leave_out_dead else hidden[start - num_held : start]
            if grad_hidden is not None and leave_out_dead:
                grad_hidden.index_copy_(0, of, torch.mm(held, weight))
            elif grad_hidden is not None:
                torch.mm(held, weight, out=grad_hidden[start - num_held : start])
            if layer_grad is not None:
                layer_grad.add(held, these)
            num_held = 0
    return losses, (grad_hidden, None if layer_grad is None else layer_grad.result(), grad_bias)


def _room(size: int, num_held: int, most: int, leave_out_dead: bool) -> int:
    """How many rows to take next, `most` of them or what the buffer has left.

    Where live rows are collected, whole tiles of the products, and 0 where less than half the buffer is left:
    fewer rows would not be worth a product, which has to read the whole layer, nor a wait for the host.
    """
    left = size - num_held
    if left >= most or not leave_out_dead:
        return min(left, most)
    return left // 128 * 128 if 2 * left >= size else 0


def _losses(z: Tensor, labels: Tensor, row_weight: Tensor, job: LinearJob, grad: Tensor | None) -> Tensor:
    """Weighted losses of the rows; their gradient goes to `grad`, where given, which may be the logits."""
    way = can.way_of_loss(z, labels, form=job.loss.form, impl="auto")
    if way == "triton":
        call = launch.Call(job.loss.form, job.loss.hyper, -100, "none")
        return launch.launch(call, z, labels, None, row_weight, grad=grad)
    rows = cpu.phi_rows if way == "fused" else plain.phi_rows
    with torch.enable_grad():
        leaf = z.detach().requires_grad_(grad is not None)
        losses = rows(leaf, labels, row_weight, job.loss)
        if grad is not None:
            grad.copy_(torch.autograd.grad(losses.sum(), leaf)[0])
    return losses.detach()


def _live_first_(grad: Tensor, labels: Tensor, origin: Tensor, first: int) -> int:
    """Bring the rows with a gradient to the front, in place, and count them; origin: first + where each was.

    A row's gradient is 0 where its label's entry is, which is minus the sum of the others, all of one sign.
    """
    live = grad.gather(1, labels.unsqueeze(1)).squeeze(1) != 0
    if can.run_triton(grad):
        return launch.live_first_(grad, live, origin, first)
    num_live = int(live.sum())
    source = torch.arange(num_live, device=grad.device)
    holes = live[:num_live].logical_not().nonzero().squeeze(1)
    source[holes] = live[num_live:].nonzero().squeeze(1) + num_live
    grad[holes] = grad[source[holes]]
    torch.add(source, first, out=origin[:num_live])
    return num_live
