"""The last linear layer and a loss of p_y in one: the logits never exist all at once.

Rows are taken a chunk at a time. The gradient of a chunk's logits is known as soon as its loss is, so it
replaces the logits in their buffer, and goes straight into the gradients of the hidden rows and of the
layer: three matrix products, where recomputing the logits in the backward pass would take four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tolerant.kernels import can, cpu, plain
from tolerant.kernels.log_prob import compute_dtype
from tolerant.kernels.triton import launch
from tolerant.kernels.triton.loss import Loss

# A chunk of logits. 1024 rows of 128256 classes in bf16: a twelfth of what eager needs, and still
# products of full speed on a big GPU. On a CPU nothing is gained beyond a few times the cache.
CHUNK_BYTES = {"cuda": 256 << 20, "cpu": 32 << 20}


@dataclass(frozen=True)
class Job:
    """What is computed, apart from the tensors."""

    loss: Loss
    chunk_rows: int
    accumulate_fp32: bool
    per_row: bool  # the upstream gradient may differ from row to row
    may_be_dead: bool  # rows may have no gradient at all, and are then left out of the products


def rows_of_a_chunk(num_rows: int, weight: Tensor) -> int:
    most = CHUNK_BYTES.get(weight.device.type, CHUNK_BYTES["cpu"])
    most = max(1, most // (len(weight) * weight.element_size()))
    if most >= num_rows:
        return max(1, num_rows)
    chunks = -(-num_rows // max(128, most // 128 * 128))
    return -(-num_rows // chunks // 128) * 128  # equal chunks, whole tiles of the products


Grads = tuple[Tensor | None, Tensor | None, Tensor | None]


def linear_phi_rows(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, row_weight: Tensor, job: Job
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
        job: Job,
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


def _plain_grads(upstream: Tensor, saved: tuple[Tensor, ...], job: Job) -> tuple[Tensor | None, ...]:
    """The gradients from the plain path, which can be differentiated again; the logits exist here."""
    hidden, weight, bias, labels, row_weight = saved
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        logits = F.linear(hidden, weight, bias)
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
    job: Job,
    wants: tuple[bool, ...],
) -> tuple[Tensor, Grads]:
    """The weighted losses, and the gradients of their sum in hidden, weight and bias, where wanted."""
    num_rows, num_classes = len(hidden), len(weight)
    acc = compute_dtype(hidden)
    losses = torch.empty(num_rows, dtype=acc, device=hidden.device)
    buffer = hidden.new_empty(min(job.chunk_rows, num_rows), num_classes)
    leave_out_dead = job.may_be_dead and any(wants) and can.count(hidden)
    grad_hidden = None
    if wants[0]:
        grad_hidden = hidden.new_zeros(hidden.shape) if leave_out_dead else hidden.new_empty(hidden.shape)
    weight_grad = _WeightGrad(weight, job.accumulate_fp32) if wants[1] else None
    grad_bias = hidden.new_zeros(num_classes, dtype=acc) if wants[2] else None
    columns = weight.t()
    # Where dead rows are left out, the gradients of live ones are held at the front of the buffer until they
    # are enough for a product; `origin` says which rows of `hidden` they belong to.
    start = num_held = 0
    origin = torch.empty(len(buffer), dtype=torch.int64, device=hidden.device)
    while start < num_rows:
        rows = slice(start, start + _room(len(buffer), num_held))
        h, y = hidden[rows], labels[rows]
        z = buffer[num_held : num_held + len(h)]
        if bias is None:
            torch.mm(h, columns, out=z)
        else:
            torch.addmm(bias, h, columns, out=z)
        losses[rows] = _loss_in_place(z, y, row_weight[rows], job, any(wants))
        start += len(h)
        if not any(wants):
            continue
        if grad_bias is not None:
            grad_bias += z.sum(0, dtype=acc)
        if not leave_out_dead:
            if grad_hidden is not None:
                torch.mm(z, weight, out=grad_hidden[rows])
            if weight_grad is not None:
                weight_grad.add(z, h)
            continue
        num_held += _live_first_(z, y, origin[num_held:], rows.start)
        # Products of few rows leave a GPU half idle, so the live rows of several chunks go together.
        if num_held and (start == num_rows or not _room(len(buffer), num_held)):
            held, of = buffer[:num_held], origin[:num_held]
            if grad_hidden is not None:
                grad_hidden.index_copy_(0, of, torch.mm(held, weight))
            if weight_grad is not None:
                weight_grad.add(held, hidden[of])
            num_held = 0
    return losses, (grad_hidden, None if weight_grad is None else weight_grad.result(), grad_bias)


def _room(size: int, num_held: int) -> int:
    """How many rows to take next, in whole tiles of the products; 0 where half the buffer is held.

    Fewer rows would not be worth a product, which has to read the whole layer, nor a wait for the host.
    """
    if num_held == 0:
        return size
    left = size - num_held
    return left // 128 * 128 if 2 * left >= size else 0


def _loss_in_place(z: Tensor, labels: Tensor, row_weight: Tensor, job: Job, want_grad: bool) -> Tensor:
    """Weighted losses of the rows; if wanted, their gradient takes the logits' place."""
    way = can.way_of_loss(z, labels, form=job.loss.form, impl="auto")
    if way == "triton":
        call = launch.Call(job.loss.form, job.loss.hyper, -100, "none")
        return launch.launch(call, z, labels, None, row_weight, grad=z if want_grad else None)
    rows = cpu.phi_rows if way == "fused" else plain.phi_rows
    with torch.enable_grad():
        leaf = z.detach().requires_grad_(want_grad)
        losses = rows(leaf, labels, row_weight, job.loss)
        if want_grad:
            z.copy_(torch.autograd.grad(losses.sum(), leaf)[0])
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


class _WeightGrad:
    """The sum over chunks of gradient^T hidden."""

    def __init__(self, weight: Tensor, accumulate_fp32: bool) -> None:
        self.dtype = weight.dtype
        wide = accumulate_fp32 and weight.dtype in (torch.bfloat16, torch.float16)
        self.total = weight.new_empty(weight.shape, dtype=torch.float32 if wide else weight.dtype)
        self.started = False

    def add(self, grad: Tensor, hidden: Tensor) -> None:
        """total += grad^T hidden; the first product is written, not added to a sum of zeros."""
        beta = int(self.started)
        self.started = True
        if self.total.dtype == grad.dtype:
            torch.addmm(self.total, grad.t(), hidden, beta=beta, out=self.total)
        elif grad.is_cuda and torch.version.hip is None and hasattr(torch.ops.aten.addmm, "dtype_out"):
            # (torch 2.8 and 2.9 have it on ROCm, where it only refuses)
            torch.ops.aten.addmm.dtype_out(
                self.total, grad.t(), hidden, torch.float32, beta=beta, out=self.total
            )
        else:
            torch.addmm(self.total, grad.t().float(), hidden.float(), beta=beta, out=self.total)

    def result(self) -> Tensor:
        return self.total.to(self.dtype) if self.started else self.total.zero_().to(self.dtype)
