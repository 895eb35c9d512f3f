"""The fused GPU path of the phi losses: loss and gradient in one launch, no host synchronisation.

The gradient is formed in the forward pass, where w(p_y) is known, and the backward pass multiplies it
by the upstream gradient, or does nothing where that is 1. It is handed out once: a second backward
pass (``retain_graph``) forms it anew from the saved logits, and ``create_graph`` takes the plain path.
Results repeat bit by bit. Nothing here imports Triton before a loss needs it.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tolerant.losses.fused import RowWeight, plain_phi_rows
from tolerant.losses.log_prob import compute_dtype
from tolerant.losses.phi import PHI
from tolerant.losses.reduction import Weighing, weighted_loss

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def available(logits: Tensor, sample_weight: Tensor | None = None) -> bool:
    """Whether `phi_loss` can take these logits (N, C); if not, use the plain path.

    Not while compiling (Inductor fuses the plain path), under ``torch.func``, for empty batches, or
    where the sample weights want a gradient.
    """
    return (
        logits.is_cuda
        and torch.version.hip is None
        and not torch.compiler.is_compiling()
        and logits.dtype in _DTYPES
        and logits.numel() > 0
        and not (sample_weight is not None and sample_weight.requires_grad)
        and not torch._C._are_functorch_transforms_active()
        and _gpu_can(logits.device)
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
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    labels = labels.long().contiguous()
    weight = None if weight is None else weight.contiguous()
    sample_weight = None if sample_weight is None else sample_weight.contiguous()
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return launch(call, logits, labels, weight, sample_weight)
    return _PhiLoss.apply(logits, labels, weight, sample_weight, call)[0]


@dataclass(frozen=True)
class Call:
    """What a launch computes, apart from its tensors."""

    phi: str
    hyper: tuple[tuple[str, float], ...]
    ignore_index: int
    reduction: str


@dataclass(frozen=True)
class Plan:
    """How a launch is cut up: whole rows in registers (``tile``), or a walk along them (``loop``)."""

    kind: str
    rows: int  # a step, for tile; 16-byte loads a thread and step, for loop
    warps: int
    programs_per_sm: int
    stages: int = 1
    last_use: str = "evict_first"  # the L2's hint on the second walk


def plan_for(num_classes: int, element_size: int) -> Plan:
    cols = _power_of_2(num_classes)
    if cols <= 128:
        return Plan("tile", rows=2048 // cols, warps=4, programs_per_sm=8)
    if cols <= 1024:  # a row, or a few short ones, a warp: reductions need no barrier
        return Plan("tile", rows=1024 // cols, warps=1, programs_per_sm=32)
    if cols <= 8192:
        warps = cols // 1024
        return Plan("tile", rows=1, warps=warps, programs_per_sm=32 // warps)
    # The second walk finds the row in the L2 while the rows under way fit there: 132 x 256 KiB = 34 MB.
    row_kib = num_classes * element_size // 1024
    return Plan("loop", rows=4, warps=8 if row_kib < 200 else 16, programs_per_sm=2 if row_kib < 200 else 1)


def launch(
    call: Call,
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    *,
    grad: Tensor | None = None,
    upstream: Tensor | None = None,
    plan: Plan | None = None,
) -> Tensor:
    """Run the kernels; the gradient goes to `grad` (which may be `logits` itself), where given."""
    from tolerant.losses import triton_phi, triton_rows

    n, num_classes = logits.shape
    function, numbers = triton_phi.constants(call.phi, dict(call.hyper))
    acc = compute_dtype(logits)
    plan = plan or plan_for(num_classes, logits.element_size())
    cols = _power_of_2(num_classes)
    rows = plan.rows if plan.kind == "tile" else 1
    reduced = call.reduction != "none"
    # One program alone needs neither partial sums nor a ticket: a single launch for small batches.
    single = reduced and plan.kind == "tile" and n * cols <= 32768
    if single:
        rows, warps = min(_power_of_2(n), 16384 // cols), 16
        programs = 1
    else:
        warps = plan.warps
        programs = min(-(-n // rows), _multiprocessors(logits.device) * plan.programs_per_sm)

    loss = torch.empty(() if reduced else (n,), dtype=acc, device=logits.device)
    work = None
    with torch.cuda.device_of(logits):
        if reduced and not single:
            work = torch.empty(1 + triton_rows.PARTS + programs, dtype=acc, device=logits.device)
            triton_rows.prepare_kernel[(triton_rows.PARTS,)](
                work, labels, weight, sample_weight, n, call.ignore_index, C=num_classes
            )
        common: dict[str, Any] = {
            "C": num_classes,
            "Z_STRIDE": logits.stride(0),
            "G_STRIDE": 0 if grad is None else grad.stride(0),
            "PHI": function,
            "REDUCE": call.reduction,
            "STAGES": plan.stages,
            "num_warps": warps,
        }
        up_stride = 0 if upstream is None or reduced else upstream.stride(0)
        tensors = (logits, labels, weight, sample_weight, upstream, loss, grad, work)
        scalars = (n, call.ignore_index, *numbers, up_stride)
        if plan.kind == "tile":
            triton_rows.tile_kernel[(programs,)](
                *tensors, *scalars, SINGLE=single, ROWS=rows, COLS=cols, **common
            )
        else:
            vector = math.gcd(16 // logits.element_size(), logits.stride(0), num_classes)
            # Rows that start anywhere are read one by one, with a running sum each: fewer at a time.
            groups = 32 * warps * (plan.rows if vector > 1 else 8)
            triton_rows.loop_kernel[(programs,)](
                *tensors, *scalars, GROUPS=groups, VECTOR=vector, LAST_USE=plan.last_use, **common
            )
    return loss


def scale_(grad: Tensor, upstream: Tensor) -> Tensor:
    """Multiply contiguous rows (N, C) by a number or one number a row, in place, on the device."""
    from tolerant.losses import triton_rows

    n, num_classes = grad.shape
    cols = min(_power_of_2(num_classes), 4096)
    rows = 4096 // cols
    tiles = -(-n // rows) * -(-num_classes // cols)
    per_row = upstream.dim() == 1
    with torch.cuda.device_of(grad):
        triton_rows.scale_kernel[(min(tiles, 8 * _multiprocessors(grad.device)),)](
            grad, upstream, n, upstream.stride(0) if per_row else 0,
            C=num_classes, PER_ROW=per_row, ROWS=rows, COLS=cols,
        )  # fmt: skip
    return grad


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
        if torch.is_grad_enabled():  # create_graph
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
    """The gradient as an expression that can be differentiated again."""
    weighing = Weighing(weight, call.ignore_index, call.reduction, sample_weight)

    def rows(z: Tensor, y: Tensor, row_weight: RowWeight) -> Tensor:
        return plain_phi_rows(z, y, row_weight, PHI[call.phi], dict(call.hyper))

    loss = weighted_loss(logits, labels, weighing, rows)
    return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0]


@functools.cache
def _gpu_can(device: torch.device) -> bool:
    has_triton = importlib.util.find_spec("triton") is not None
    return has_triton and torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":  # Triton's interpreter
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def _power_of_2(x: int) -> int:
    return 1 << (x - 1).bit_length()
