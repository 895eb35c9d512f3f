"""Sums over rows inside the Triton kernels: the row weights a mean divides by, and the loss itself."""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl

from tolerant.kernels.triton import math as tm

PARTS = 128  # partial sums of the row weights, made by `prepare_kernel` and added up by every program
INLINE_ROWS = 4096  # up to so many rows every program adds up all weights, without `prepare_kernel`
_PARTS: tl.constexpr = tl.constexpr(PARTS)
_SUMS: tl.constexpr = tl.constexpr(512)  # numbers added at once


@triton.jit
def row_weight(class_weight, sample_weight, rows, labels, in_range, num_classes: tl.constexpr, acc):
    """Class weight times sample weight. A class that does not exist weighs 1: its loss is NaN."""
    weight = tl.zeros(labels.shape, acc) + 1.0
    if class_weight is not None:
        is_class = in_range & (labels >= 0) & (labels < num_classes)
        weight *= tl.load(class_weight + labels, mask=is_class, other=1.0).to(acc)
    if sample_weight is not None:
        weight *= tl.load(sample_weight + rows, mask=in_range, other=0.0).to(acc)
    return weight


@triton.jit
def _weight_sum(labels_ptr, class_weight, sample_weight, start, stop, ignore, num_classes, acc):
    total = tl.zeros([_SUMS], acc)
    for at in range(start, stop, _SUMS):
        rows = at + tl.arange(0, _SUMS)
        inside = rows < stop
        labels = tl.load(labels_ptr + rows, mask=inside, other=0)
        weight = row_weight(class_weight, sample_weight, rows, labels, inside, num_classes, acc)
        total += tl.where(inside & (labels != ignore), weight, 0.0)
    return tl.sum(total, 0)


@triton.jit
def prepare_kernel(parts, ticket, labels, class_weight, sample_weight, n, ignore, C: tl.constexpr):
    """Partial sums of the row weights, and the ticket of `finish` back to 0."""
    part = tl.program_id(0)
    acc: tl.constexpr = parts.dtype.element_ty
    span = tl.cdiv(n, _PARTS)
    start = part * span
    stop = tl.minimum(start + span, n)
    weight = _weight_sum(labels, class_weight, sample_weight, start, stop, ignore, C, acc)
    tl.store(parts + part, weight)
    if part == 0:
        tl.store(ticket, 0)


@triton.jit
def divisor_of(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, INLINE, acc):
    """What a mean divides by: the sum of the weights of the rows that count."""
    divisor = tl.full((), 1.0, acc)
    if REDUCE == "mean":
        if INLINE:
            divisor = _weight_sum(labels, class_weight, sample_weight, 0, n, ignore, C, acc)
        else:
            divisor = tl.sum(tl.load(work + tl.arange(0, _PARTS)), 0)
    return divisor


@triton.jit
def finish(loss, work, ticket, seat, total, divisor):
    """Store the sum over all seats, one a program. The last one to come adds, always in the same order."""
    programs = tl.num_programs(0)
    partial = work + _PARTS
    tl.store(partial + seat, total)
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1, sem="acq_rel") == programs - 1:
        everything = tl.zeros([_SUMS], total.dtype)
        for at in range(0, programs, _SUMS):
            index = at + tl.arange(0, _SUMS)
            mask = index < programs
            everything += tl.load(partial + index, mask=mask, other=0.0, volatile=True)
        tl.store(loss, tm.divide(tl.sum(everything, 0), divisor))
        tl.store(ticket, 0)  # ready for the next launch
