"""The Triton kernels: a loss and its gradient in one launch, each logit read from memory once.

Two kernels share every formula, and both hold their logits in registers. `tile_kernel` takes several short
rows at a time. `row_kernel` takes one row, or a part of a long one. The gradient's weight w is known as soon
as the row's sum is, so no later pass over the logits is due.

For a row with label y, maximum m, d = z_y - m and s the sum of exp(z_j - m) over the rivals j != y:
log p_y = d - log(exp(d) + s), and the gradient's label entry is -w s / (exp(d) + s). Nothing cancels.
An H200 has time for 32 instructions a bf16 logit while it reads and writes one; `row_kernel` takes 8 to 10.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl

from tolerant.kernels.triton import math as tm
from tolerant.kernels.triton import parts, sums

_LOWEST: tl.constexpr = tl.constexpr(-2e38)  # below every logit but -inf; finite also times log2(e)


@triton.jit
def _loss_and_coefficient(z_y, top, rivals, weight, scale, counts, h0, h1, h2, h3, PHI: tl.constexpr):
    """Weighted loss, the gradient's factor on exp(z_j - top), and the gradient's label entry.

    Any `top` will do that is z_y where the label leads, and near the row's maximum otherwise.
    """
    acc: tl.constexpr = rivals.dtype
    d = z_y - top
    e_y = tm.exp(d)
    log_p = d - tm.log_sum(e_y, rivals)
    value, w = PHI(
        log_p,
        tl.full((), h0, acc),
        tl.full((), h1, acc),
        tl.full((), h2, acc),
        tl.full((), h3, acc),
    )
    factor = tm.divide(tl.where(counts, scale * w, 0.0), tl.where(counts, e_y + rivals, 1.0))
    return tl.where(counts, weight * value, 0.0), factor, tl.where(counts, -factor * rivals, 0.0)


@triton.jit
def tile_kernel(
    z, labels, class_weight, sample_weight, upstream, loss, grad, work, ticket, n, ignore,
    h0: tl.float64, h1: tl.float64, h2: tl.float64, h3: tl.float64, up_stride,
    C: tl.constexpr, Z_STRIDE: tl.constexpr, G_STRIDE: tl.constexpr, PHI: tl.constexpr,
    REDUCE: tl.constexpr, INLINE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Rows in registers: ROWS of them a step, COLS >= C columns, one exp a logit."""
    FAST: tl.constexpr = z.dtype.element_ty.primitive_bitwidth == 16
    acc: tl.constexpr = tl.float64 if z.dtype.element_ty == tl.float64 else tl.float32
    divisor = sums.divisor_of(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, INLINE, acc)
    inverse = tm.divide(tl.full((), 1.0, acc), divisor)
    total = tl.full((), 0.0, acc)
    cols = tl.arange(0, COLS)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(n, ROWS), tl.num_programs(0)):
        rows = tile * ROWS + tl.arange(0, ROWS)
        inside = rows < n
        label = tl.load(labels + rows, mask=inside, other=0)
        weight = sums.row_weight(class_weight, sample_weight, rows, label, inside, C, acc)
        counts = inside & (label != ignore) & (weight != 0.0)
        at = z + rows.to(tl.int64)[:, None] * Z_STRIDE
        x = tl.load(at + cols, mask=counts[:, None] & (cols < C), other=float("-inf")).to(acc)
        # A label outside 0 .. C-1 reads NaN, so that the loss says so.
        known = counts & (label >= 0) & (label < C)
        z_y = tl.load(z + rows.to(tl.int64) * Z_STRIDE + label, mask=known, other=float("nan")).to(acc)
        scale = weight
        if upstream is not None:
            at_row = upstream + rows.to(tl.int64) * up_stride
            scale *= tl.load(at_row, mask=inside, other=0.0).to(acc)
        if REDUCE == "mean":
            scale *= inverse

        is_label = cols == tl.where(known, label, -1).to(tl.int32)[:, None]
        x = tl.where(is_label, float("-inf"), x)
        top = tl.maximum(tl.maximum(tl.max(x, 1), z_y), _LOWEST)
        base = tm.base_of(top, FAST)
        e = tm.exp_over(x, base[:, None], FAST)
        back = tm.exp_between(base, top, FAST)
        value, factor, own_entry = _loss_and_coefficient(
            z_y, top, tl.sum(e, 1) * back, weight, scale, counts, h0, h1, h2, h3, PHI
        )
        if REDUCE == "none":
            tl.store(loss + rows, value, mask=inside)
        else:
            total += tl.sum(value, 0)
        if grad is not None:
            g = tl.where(is_label, own_entry[:, None], (factor * back)[:, None] * e)
            to = grad + rows.to(tl.int64)[:, None] * G_STRIDE
            tl.store(to + cols, g.to(grad.dtype.element_ty), mask=inside[:, None] & (cols < C))
    if REDUCE != "none":
        sums.finish(loss, work, ticket, tl.program_id(0), total, divisor)


@triton.jit
def _exponentials(x, lowest, FAST: tl.constexpr):
    """Each thread's own base, at least `lowest`, its sum, and its exponentials over the base.

    x is (threads, loads, logits of a load). The sum is written as one step of a running sum, which begins at
    zero: of 8192 logits in fp32 Triton 3.6 then starts all loads at once. Written as a plain sum, each load
    waits for the one before.
    """
    before = tl.zeros([x.shape[0]], x.dtype) + lowest
    bases = tl.maximum(before, tm.base_of(tl.max(tl.max(x, 2), 1), FAST))
    e = tm.exp_over(x, bases[:, None, None], FAST)
    each = tl.zeros([x.shape[0]], x.dtype) * tm.exp_step(before, bases, FAST) + tl.sum(tl.sum(e, 2), 1)
    return bases, each, e


@triton.jit
def row_kernel(
    z, labels, class_weight, sample_weight, upstream, loss, grad, work, ticket, words, n, ignore,
    h0: tl.float64, h1: tl.float64, h2: tl.float64, h3: tl.float64, up_stride,
    C: tl.constexpr, Z_STRIDE: tl.constexpr, G_STRIDE: tl.constexpr, PHI: tl.constexpr,
    REDUCE: tl.constexpr, INLINE: tl.constexpr, PARTS: tl.constexpr, LOADS: tl.constexpr,
    THREADS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """A row, or one of its PARTS, in registers: LOADS of VECTOR logits a thread, each one 16-byte load."""
    FAST: tl.constexpr = z.dtype.element_ty.primitive_bitwidth == 16
    # Parts of equal length, a multiple of 64 logits: in 16 bits a line of the caches, in 32 bits two.
    SPAN: tl.constexpr = C if PARTS == 1 else (C + 64 * PARTS - 1) // (64 * PARTS) * 64
    acc: tl.constexpr = tl.float64 if z.dtype.element_ty == tl.float64 else tl.float32
    divisor = sums.divisor_of(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, INLINE, acc)
    inverse = tm.divide(tl.full((), 1.0, acc), divisor)
    total = tl.full((), 0.0, acc)
    # Threads come before loads: of two dimensions that would do, Triton spreads the first over a warp.
    first = tl.arange(0, THREADS)[:, None] * VECTOR + tl.arange(0, LOADS)[None, :] * (THREADS * VECTOR)
    lane = tl.arange(0, VECTOR)[None, None, :]
    cols = first[:, :, None] + lane
    seat = tl.program_id(0) if PARTS == 1 else parts.started_before(words, n)
    part = seat % PARTS
    start = part * SPAN
    step = tl.num_programs(0) // PARTS
    label = tl.load(labels + seat // PARTS)
    for row in range(seat // PARTS, n, step):
        next_label = tl.load(labels + tl.minimum(row + step, n - 1))
        weight = sums.row_weight(class_weight, sample_weight, row, label, True, C, acc)
        counts = (label != ignore) & (weight != 0.0)
        at = z + tl.cast(row, tl.int64) * Z_STRIDE
        known = counts & (label >= 0) & (label < C)
        z_y = tl.load(at + label, mask=known, other=float("nan")).to(acc)
        place = tl.where(known, label, -VECTOR).to(tl.int32) - start
        scale = weight
        if upstream is not None:
            scale *= tl.load(upstream + tl.cast(row, tl.int64) * up_stride).to(acc)
        if REDUCE == "mean":
            scale *= inverse

        wanted = start + cols < tl.where(counts, C, 0)
        if PARTS > 1:
            wanted = (cols < SPAN) & wanted
        x = tl.load(at + start + cols, mask=wanted, other=float("-inf")).to(acc)
        # The label's logit becomes -inf; `place - first` is its distance from each group's first column.
        x = tl.where(lane == (place - first)[:, :, None], float("-inf"), x)
        if PARTS == 1:
            bases, each, e = _exponentials(x, _LOWEST, FAST)
            top = tl.maximum(tm.top_of(tl.max(bases, 0), FAST), z_y)
            rivals = tl.sum(each * tm.exp_between(bases, top, FAST), 0)
        else:
            # z_y is read before the part publishes its sum: from then on other parts may write gradients, and
            # where `grad` is `z` itself, they write them over the logits.
            bases, each, e = _exponentials(x, tl.maximum(tm.base_of(z_y, FAST), _LOWEST), FAST)
            base = tl.max(bases, 0)
            mine = tl.sum(each * tm.exp_step(bases, base, FAST), 0)
            following = z + tl.cast(tl.minimum(row + step, n - 1), tl.int64) * Z_STRIDE
            parts.ask_ahead(following, start, SPAN, C, LOADS * THREADS * VECTOR)
            all_bases, all_sums = parts.exchange(words, row, part, base, mine, PARTS)
            base = tl.max(all_bases, 0)
            top = tl.where(tm.base_of(z_y, FAST) >= base, z_y, tm.top_of(base, FAST))
            rivals = tl.sum(all_sums * tm.exp_between(all_bases, top, FAST), 0)
        value, factor, own_entry = _loss_and_coefficient(
            z_y, top, rivals, weight, scale, counts, h0, h1, h2, h3, PHI
        )
        if PARTS > 1:
            value = tl.where(part == 0, value, 0.0)
        if REDUCE != "none":
            total += value
        elif part == 0:
            tl.store(loss + row, value)

        if grad is not None:
            to = grad + tl.cast(row, tl.int64) * G_STRIDE
            back = tm.exp_between(bases, top, FAST)
            g = ((factor * back)[:, None, None] * e).to(grad.dtype.element_ty)
            inside = start + cols < C
            is_here = known
            if PARTS > 1:
                inside = (cols < SPAN) & inside
                is_here = known & (place >= 0) & (place < SPAN)
            tl.store(to + start + cols, g, mask=inside, eviction_policy="evict_first")
            # The label's own entry comes last, over what the threads have written there.
            tl.debug_barrier()
            tl.store(to + label, own_entry.to(grad.dtype.element_ty), mask=is_here)
        label = next_label  # loaded a row ahead, or every row would begin by waiting for its label
    if REDUCE != "none":
        sums.finish(loss, work, ticket, seat, total, divisor)


@triton.jit
def scale_kernel(
    grad, upstream, n, up_stride, C: tl.constexpr, PER_ROW: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Multiply the rows by the upstream gradient, in place; where it is 1 nothing is read."""
    acc: tl.constexpr = tl.float64 if grad.dtype.element_ty == tl.float64 else tl.float32
    by = tl.load(upstream).to(acc)
    if PER_ROW | (by != 1.0):
        steps: tl.constexpr = tl.cdiv(C, COLS)
        for tile in range(tl.program_id(0), tl.cdiv(n, ROWS) * steps, tl.num_programs(0)):
            rows = tile // steps * ROWS + tl.arange(0, ROWS)
            cols = (tile % steps * COLS + tl.arange(0, COLS))[None, :]
            mask = (rows < n)[:, None] & (cols < C)
            factor = tl.zeros([ROWS], acc) + by
            if PER_ROW:
                at_row = upstream + rows.to(tl.int64) * up_stride
                factor = tl.load(at_row, mask=rows < n, other=1.0).to(acc)
                mask = mask & (factor != 1.0)[:, None]
            at = grad + rows.to(tl.int64)[:, None] * C + cols
            g = tl.load(at, mask=mask, other=0.0).to(acc) * factor[:, None]
            tl.store(at, g.to(grad.dtype.element_ty), mask=mask)
