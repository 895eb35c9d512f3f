"""The last linear layer and L_q in one: the logits never exist all at once.

Rows are taken a chunk at a time. The gradient of a chunk's logits is known as soon as its loss is, so it
replaces the logits in their buffer, and goes straight into the gradients of the hidden rows and of the
layer: three matrix products, where recomputing the logits in the backward pass would take four.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tolerant.losses import triton_launch, triton_loss
from tolerant.losses.check import check_reduction, check_tensor
from tolerant.losses.fused import RowWeight, needs_plain_path, plain_phi_rows
from tolerant.losses.linear_chunks import Job, rows_of_a_chunk, sweep
from tolerant.losses.log_prob import compute_dtype
from tolerant.losses.phi import PHI
from tolerant.losses.phi_losses import lq_or_truncated
from tolerant.losses.reduction import Weighing, weighted_loss


def linear_lq_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    q: float = 0.7,
    k: float | None = None,
    bias: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    chunk_rows: int | None = None,
    accumulate_fp32: bool = False,
) -> Tensor:
    r"""L_q, truncated at k if given, of ``F.linear(hidden, weight, bias)``, without its logits.

    hidden (..., H), weight (C, H), labels (...). q = 0 is cross entropy; q = 1 has the gradient of
    dynamic fine-tuning, :math:`p_y \nabla(-\log p_y)`, so q spans the way between the two.

    The gradients are formed in the forward pass (fp16 and ``reduction="none"`` wait for the backward
    pass, at the price of a fourth product). With k, rows with :math:`p_y \le k` take no part in the two
    gradient products; counting them stops the host at each chunk, so in a CUDA graph they take part.
    In bf16 each chunk's product is summed in fp32 and its result added to the layer's gradient in
    bf16; ``accumulate_fp32`` keeps that gradient in fp32 until the end, for 4 bytes per weight.

    >>> hidden, weight = torch.ones(2, 3), torch.eye(4, 3)
    >>> linear_lq_loss(hidden, weight, torch.tensor([0, 3]), q=1.0)
    tensor(0.7969)
    """
    check_reduction(reduction)
    _check_input(hidden, weight, labels, sample_weight, chunk_rows)
    loss, hyper = lq_or_truncated(q, k)
    weights = None if sample_weight is None else sample_weight.reshape(-1)
    weighing = Weighing(None, ignore_index, reduction, weights)
    flat_labels = labels.reshape(-1)
    # Chunks with products into buffers are opaque to a compiler, and to the transforms of torch.func.
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        logits = F.linear(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
        value = loss.compute(logits, flat_labels, hyper, weighing)
        return value.reshape(labels.shape) if reduction == "none" else value
    device = hidden.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):  # "meta" has none
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    flat = hidden.reshape(-1, hidden.shape[-1])
    limit = chunk_rows or rows_of_a_chunk(len(flat), weight)
    job = Job(loss.name, hyper, limit, accumulate_fp32, reduction == "none")

    def rows(_: Tensor, row_labels: Tensor, row_weight: RowWeight) -> Tensor:
        if not isinstance(row_weight, Tensor):
            row_weight = flat.new_full((len(flat),), row_weight, dtype=compute_dtype(flat))
        wants = tuple(
            torch.is_grad_enabled() and t is not None and t.requires_grad for t in (flat, weight, bias)
        )
        return _LinearLq.apply(flat, weight, bias, row_labels, row_weight, job, wants)[0]

    # Weights, ignore_index and the reduction are dealt with in `weighted_loss`, which wants logits, but only
    # for their shape.
    shape_of_logits = weight.detach()[:1, :1].expand(len(flat), len(weight))
    value = weighted_loss(shape_of_logits, flat_labels, weighing, rows)
    return value.reshape(labels.shape) if reduction == "none" else value


def _check_input(
    hidden: Tensor, weight: Tensor, labels: Tensor, sample_weight: Tensor | None, chunk_rows: int | None
) -> None:
    for name, value in (("hidden", hidden), ("weight", weight), ("labels", labels)):
        check_tensor(name, value)
    if hidden.shape[-1] != weight.shape[-1] or weight.ndim != 2:
        raise ValueError(
            f"weight must have shape (C, H) with hidden's H = {hidden.shape[-1]}; got {tuple(weight.shape)}."
        )
    if labels.shape != hidden.shape[:-1]:
        raise ValueError(
            f"labels must have hidden's shape without its last dimension, {tuple(hidden.shape[:-1])}; "
            f"got {tuple(labels.shape)}."
        )
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, or None to have it chosen; got {chunk_rows!r}.")
    if sample_weight is not None and sample_weight.requires_grad:
        raise ValueError("sample_weight must not require a gradient. Call sample_weight.detach().")


class LinearLqLoss(nn.Module):
    """`linear_lq_loss` as a module: ``loss(hidden, head.weight, labels, bias=head.bias)``.

    The layer's weight stays where it is (tied to an embedding, sharded and gathered by the caller).

    >>> from tolerant.losses import LqLoss
    >>> head = nn.Linear(8, 100)
    >>> hidden, labels = torch.randn(4, 8), torch.arange(4)
    >>> value = LinearLqLoss(q=0.7)(hidden, head.weight, labels, bias=head.bias)
    >>> bool(torch.isclose(value, LqLoss(q=0.7)(head(hidden), labels)))
    True
    """

    def __init__(
        self,
        *,
        q: float = 0.7,
        k: float | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        chunk_rows: int | None = None,
        accumulate_fp32: bool = False,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        lq_or_truncated(q, k)  # refused here, not at the first call
        self.q, self.k = q, k
        self.ignore_index, self.reduction = ignore_index, reduction
        self.chunk_rows, self.accumulate_fp32 = chunk_rows, accumulate_fp32

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        bias: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        return linear_lq_loss(
            hidden,
            weight,
            labels,
            q=self.q,
            k=self.k,
            bias=bias,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            chunk_rows=self.chunk_rows,
            accumulate_fp32=self.accumulate_fp32,
        )

    def extra_repr(self) -> str:
        names = ("q", "k", "ignore_index", "reduction", "chunk_rows", "accumulate_fp32")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class _LinearLq(torch.autograd.Function):
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
        losses, grads = sweep(hidden, weight, bias, labels, row_weight, job, wants if early else (False,) * 3)
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
        if needs_plain_path(upstream):
            grads = _plain_grads(upstream, ctx.saved_tensors, ctx.job)
        elif ctx.grads is not None:
            # Handed out once and scaled in place; a second backward pass starts over below.
            ready, ctx.grads = ctx.grads, None
            grads = tuple(None if g is None else _scale_(g, upstream[:1]) for g in ready)
        else:
            hidden, weight, bias, labels, row_weight = ctx.saved_tensors
            row_weight = row_weight * upstream
            grads = sweep(hidden, weight, bias, labels, row_weight, ctx.job, ctx.wants)[1]
        return *grads, None, None, None, None


def _scale_(grad: Tensor, upstream: Tensor) -> Tensor:
    if not upstream.numel():
        return grad
    if grad.dim() == 2 and triton_loss.available(grad):
        return triton_launch.scale_(grad, upstream[0])
    return grad.mul_(upstream)  # which stays fp32: a third is 0.2 % too large in bf16, for every weight


def _plain_grads(upstream: Tensor, saved: tuple[Tensor, ...], job: Job) -> tuple[Tensor | None, ...]:
    """The gradients from the plain path, which can be differentiated again; the logits exist here."""
    hidden, weight, bias, labels, row_weight = saved
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        logits = F.linear(hidden, weight, bias)
        losses = plain_phi_rows(logits, labels, row_weight, PHI[job.phi], job.hyper)
    needs = [t is not None and t.requires_grad for t in saved[:3]]
    wanted = [t for t, need in zip(saved, needs, strict=False) if need]
    found = iter(torch.autograd.grad(losses, wanted, upstream, create_graph=again))
    return tuple(next(found) if need else None for need in needs)
