"""Launching the Triton kernels: how a call is cut up, and what it needs beside its tensors.

Nothing here imports Triton before a loss needs it.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tolerant.kernels.log_prob import compute_dtype

PART = 8192  # columns of a long row that one program holds in registers
LIVE_BLOCK = 8192  # rows that `live_first_` counts at a time


@dataclass(frozen=True)
class Call:
    """What a launch computes, apart from its tensors."""

    form: str
    hyper: Mapping[str, float]
    ignore_index: int
    reduction: str


@dataclass(frozen=True)
class Plan:
    """How a launch is cut up: several rows a program (``tile``), or one row or a part of it (``row``)."""

    kind: str
    size: int  # rows a step, for tile; the most columns a program holds, for row
    warps: int
    programs_per_sm: int


def plan_for(num_classes: int, element_size: int) -> Plan:
    """The fastest of those tried on an H200 at 1000, 4096, 32000 and 128256 classes."""
    cols = _power_of_2(num_classes)
    half = element_size == 2
    if cols <= 256:
        return Plan("tile", size=2048 // cols, warps=4, programs_per_sm=8)
    if cols <= 1024:  # in bf16 a row a warp: reductions need no barrier
        return Plan("row", size=cols, warps=1 if half else 2, programs_per_sm=24 if half else 12)
    if cols <= 8192:
        warps = max(1, cols // 4096) if half else cols // 1024 * element_size // 8
        return Plan("row", size=cols, warps=warps, programs_per_sm=(12 if half else 16) // warps)
    if not half and cols * element_size <= 128 << 10:  # half of a multiprocessor's registers
        warps = cols * element_size >> 13
        return Plan("row", size=cols, warps=warps, programs_per_sm=16 // warps)
    if num_classes * element_size % 8:  # loads of 2 or 4 bytes: registers go into their addresses
        return Plan("row", size=PART, warps=8, programs_per_sm=3)
    if half:
        return Plan("row", size=PART, warps=4, programs_per_sm=5)
    return Plan("row", size=PART, warps=element_size, programs_per_sm=16 // element_size)


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
    from tolerant.kernels.triton import loss_kernels as kernels
    from tolerant.kernels.triton import sums
    from tolerant.kernels.triton.forms import constants

    n, num_classes = logits.shape
    function, numbers = constants(call.form, call.hyper)
    acc = compute_dtype(logits)
    device = logits.device
    plan = plan or plan_for(num_classes, logits.element_size())
    cols = _power_of_2(num_classes)
    processors = multiprocessors(device)
    rows = parts = 1
    if plan.kind == "tile":
        # Fewer rows a step spread a small batch over all multiprocessors, down to 4 logits a thread.
        rows = max(min(plan.size, _power_of_2(-(-n // processors))), 128 * plan.warps // cols, 1)
    else:
        parts = -(-num_classes // plan.size)
    programs = parts * min(-(-n // rows), max(1, processors * plan.programs_per_sm // parts))
    reduced = call.reduction != "none"
    loss = torch.empty(() if reduced else (n,), dtype=acc, device=device)
    work = ticket = None
    inline = False
    with torch.cuda.device_of(logits):
        if reduced:
            work = torch.empty(sums.PARTS + programs, dtype=acc, device=device)
            ticket = _ticket(device)
            # In a small batch each program adds up the row weights itself, which saves one launch.
            inline = ticket is not None and n <= sums.INLINE_ROWS
            if not inline:
                ticket = torch.empty(1, dtype=torch.int32, device=device) if ticket is None else ticket
                sums.prepare_kernel[(sums.PARTS,)](
                    work, ticket, labels, weight, sample_weight, n, call.ignore_index, C=num_classes
                )
        common: dict[str, Any] = {
            "C": num_classes,
            "Z_STRIDE": logits.stride(0),
            "G_STRIDE": 0 if grad is None else grad.stride(0),
            "PHI": function,
            "REDUCE": call.reduction,
            "INLINE": inline,
            "num_warps": plan.warps,
        }
        up_stride = 0 if upstream is None or reduced else upstream.stride(0)
        tensors = (logits, labels, weight, sample_weight, upstream, loss, grad, work, ticket)
        scalars = (n, call.ignore_index, *numbers, up_stride)
        if plan.kind == "tile":
            kernels.tile_kernel[(programs,)](*tensors, *scalars, ROWS=rows, COLS=cols, **common)
        else:
            _launch_rows(plan, programs, parts, logits, tensors[1:], scalars, common)
    return loss


def _launch_rows(
    plan: Plan,
    programs: int,
    parts: int,
    logits: Tensor,
    others: tuple[Tensor | None, ...],
    scalars: tuple[Any, ...],
    common: dict[str, Any],
) -> None:
    """Run `row_kernel`; ``others`` are its tensors after the logits."""
    from tolerant.kernels.triton import loss_kernels as kernels
    from tolerant.kernels.triton import parts as exchange

    n, num_classes = logits.shape
    # Logits loaded at once: 16 bytes where every row starts at a multiple of 16 bytes, else fewer.
    vector = math.gcd(16 // logits.element_size(), logits.stride(0), num_classes)
    threads = 32 * plan.warps
    loads = max(1, min(_power_of_2(num_classes), plan.size) // (threads * vector))
    options = {**common, "PARTS": parts, "LOADS": loads, "THREADS": threads, "VECTOR": vector}
    kernel = kernels.row_kernel[(programs,)]
    words = None
    if parts > 1:
        word = torch.int64 if compute_dtype(logits) == torch.float64 else torch.int32
        # The programs of a row wait for each other, so all must fit at once into a multiprocessor's 65536
        # registers.
        options["maxnreg"] = min(65536 // (threads * plan.programs_per_sm) // 8 * 8, 248)
        words = torch.zeros(n * exchange.WORDS + 1, dtype=word, device=logits.device)
        if logits.device.type == "cpu":
            # Triton's interpreter runs one program after the other: none can wait for the next, which would
            # then find gradients where its logits were. So a first launch, without a place for gradients,
            # leaves all words behind, and the second one reads a copy.
            kernel(logits, *others[:5], None, *others[6:], words, *scalars, **options)
            words[-1] = 0
            logits = logits.clone(memory_format=torch.contiguous_format)
            options["Z_STRIDE"] = num_classes
    kernel(logits, *others, words, *scalars, **options)


# A ticket is a counter on the device: the programs of a launch count themselves in it as they finish, and
# the last one puts it back to 0. Two launches at the same time must not share a ticket. Those of one stream
# follow each other, so a stream has one; a captured launch, which may be replayed on any stream, has its own.
_TICKETS = 8192
_tickets: dict[torch.device, tuple[Tensor, dict[int, int]]] = {}
_taking = threading.Lock()  # two threads that launch at once, each on its stream, must not take the same one


def _ticket(device: torch.device) -> Tensor | None:
    """A ticket at 0; None where there is none, as in a capture before the first launch."""
    if device.type == "cpu":  # Triton's interpreter: one program after the other
        return torch.zeros(1, dtype=torch.int32)
    capturing = torch.cuda.is_current_stream_capturing()
    with _taking:
        if device not in _tickets:
            if capturing:
                return None
            # 16 bytes each: Triton compiles anew for pointers of another alignment.
            zeros = torch.zeros(_TICKETS, 4, dtype=torch.int32, device=device)
            torch.cuda.synchronize(device)  # once: the zeros must be there for every stream
            _tickets[device] = zeros, {}
        tickets, taken = _tickets[device]
        owner = -1 - len(taken) if capturing else torch.cuda.current_stream(device).cuda_stream
        if owner not in taken and len(taken) == _TICKETS:
            return None
        number = taken.setdefault(owner, len(taken))
    return tickets[number]


def scale_(grad: Tensor, upstream: Tensor) -> Tensor:
    """Multiply contiguous rows (N, C) by a number or one number a row, in place, on the device."""
    from tolerant.kernels.triton import loss_kernels as kernels

    n, num_classes = grad.shape
    cols = min(_power_of_2(num_classes), 4096)
    rows = 4096 // cols
    tiles = -(-n // rows) * -(-num_classes // cols)
    per_row = upstream.dim() == 1
    with torch.cuda.device_of(grad):
        kernels.scale_kernel[(min(tiles, 8 * multiprocessors(grad.device)),)](
            grad, upstream, n, upstream.stride(0) if per_row else 0,
            C=num_classes, PER_ROW=per_row, ROWS=rows, COLS=cols,
        )  # fmt: skip
    return grad


def live_first_(rows: Tensor, live: Tensor, origin: Tensor, first: int) -> int:
    """Bring the live rows to the front, in place, and count them; origin: first + where each was.

    The host waits for the count alone, and comes back while the rows still move.
    """
    from tolerant.kernels.triton import live as kernels

    n, num_classes = rows.shape
    cols = min(_power_of_2(num_classes), 8192)
    parts = min(-(-num_classes // cols), 4)  # several programs a row, or few rows would move slowly
    moves = torch.empty(n, 2, dtype=torch.int32, device=rows.device)
    counts = torch.empty(2, dtype=torch.int32, device=rows.device)
    with torch.cuda.device_of(rows):
        block = min(_power_of_2(n), LIVE_BLOCK)
        kernels.plan_kernel[(1,)](live, origin, moves, counts, n, first, BLOCK=block, num_warps=8)
        on_host = counts.to("cpu", non_blocking=True)
        counted = torch.cuda.current_stream().record_event() if rows.is_cuda else None
        kernels.move_kernel[(max(1, n // 2), parts)](
            rows, origin, moves, counts, first, STRIDE=rows.stride(0), C=num_classes, COLS=cols, num_warps=8
        )
        if counted is not None:
            counted.synchronize()
    return int(on_host[0])


@functools.cache
def multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":  # Triton's interpreter
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def _power_of_2(x: int) -> int:
    return 1 << (x - 1).bit_length()
