"""The Triton kernels: a loss and its gradient in one launch, each logit read from memory once.

Two kernels share every formula. `tile_kernel` takes several short rows at a time. `row_kernel` takes one
row: it holds it in registers, or walks along it twice; the second walk goes backwards, so that it meets
what the caches still hold. Both know the gradient's weight w after the first half, so no later pass
over the logits is due.

For a row with label y, maximum m, d = z_y - m and s the sum of exp(z_j - m) over the rivals j != y:
log p_y = d - log(exp(d) + s), and the gradient's label entry is -w s / (exp(d) + s). Nothing cancels.
An H200 has time for 32 instructions a bf16 logit while it reads and writes one; `row_kernel` takes 8 to 10.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl

from tolerant.losses import triton_phi as own

PARTS = 128  # partial sums of the row weights; every program adds them up for itself
INLINE_ROWS = 4096  # up to here every program adds the row weights up for itself
_PARTS: tl.constexpr = tl.constexpr(PARTS)
_SUMS: tl.constexpr = tl.constexpr(512)
_LOWEST: tl.constexpr = tl.constexpr(-2e38)  # below every logit but -inf; finite also times log2(e)


@triton.jit
def _row_weight(class_weight, sample_weight, rows, labels, in_range, num_classes: tl.constexpr, acc):
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
        weight = _row_weight(class_weight, sample_weight, rows, labels, inside, num_classes, acc)
        total += tl.where(inside & (labels != ignore), weight, 0.0)
    return tl.sum(total, 0)


@triton.jit
def prepare_kernel(parts, ticket, labels, class_weight, sample_weight, n, ignore, C: tl.constexpr):
    """Partial sums of the row weights, and the ticket of `_finish` back to 0."""
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
def _divisor(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, INLINE, acc):
    """What a mean divides by: the sum of the weights of the rows that count."""
    divisor = tl.full((), 1.0, acc)
    if REDUCE == "mean":
        if INLINE:
            divisor = _weight_sum(labels, class_weight, sample_weight, 0, n, ignore, C, acc)
        else:
            divisor = tl.sum(tl.load(work + tl.arange(0, _PARTS)), 0)
    return divisor


@triton.jit
def _finish(loss, work, ticket, total, divisor):
    """Store the sum over all programs. The last one to come adds, always in the same order."""
    programs = tl.num_programs(0)
    partial = work + _PARTS
    tl.store(partial + tl.program_id(0), total)
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1, sem="acq_rel") == programs - 1:
        everything = tl.zeros([_SUMS], total.dtype)
        for at in range(0, programs, _SUMS):
            index = at + tl.arange(0, _SUMS)
            mask = index < programs
            everything += tl.load(partial + index, mask=mask, other=0.0, volatile=True)
        tl.store(loss, own.divide(tl.sum(everything, 0), divisor))
        tl.store(ticket, 0)  # ready for the next launch


@triton.jit
def _loss_and_coefficient(z_y, top, rivals, weight, scale, counts, h0, h1, h2, h3, PHI: tl.constexpr):
    """Weighted loss, the gradient's factor on exp(z_j - top), and the gradient's label entry.

    Any `top` will do that is z_y where the label leads, and near the row's maximum otherwise.
    """
    acc: tl.constexpr = rivals.dtype
    d = z_y - top
    e_y = own.exp(d)
    log_p = d - own.log_sum(e_y, rivals)
    value, w = PHI(
        log_p,
        tl.full((), h0, acc),
        tl.full((), h1, acc),
        tl.full((), h2, acc),
        tl.full((), h3, acc),
    )
    factor = own.divide(tl.where(counts, scale * w, 0.0), tl.where(counts, e_y + rivals, 1.0))
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
    divisor = _divisor(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, INLINE, acc)
    inverse = own.divide(tl.full((), 1.0, acc), divisor)
    total = tl.full((), 0.0, acc)
    cols = tl.arange(0, COLS)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(n, ROWS), tl.num_programs(0)):
        rows = tile * ROWS + tl.arange(0, ROWS)
        inside = rows < n
        label = tl.load(labels + rows, mask=inside, other=0)
        weight = _row_weight(class_weight, sample_weight, rows, label, inside, C, acc)
        counts = inside & (label != ignore) & (weight != 0.0)
        at = z + rows.to(tl.int64)[:, None] * Z_STRIDE
        x = tl.load(at + cols, mask=counts[:, None] & (cols < C), other=float("-inf")).to(acc)
        # A label outside 0 .. C-1 reads NaN, so that the loss says so.
        known = counts & (label >= 0) & (label < C)
        z_y = tl.load(z + rows.to(tl.int64) * Z_STRIDE + label, mask=known, other=float("nan")).to(acc)
        scale = weight
        if upstream is not None:
            scale *= tl.load(upstream + rows * up_stride, mask=inside, other=0.0).to(acc)
        if REDUCE == "mean":
            scale *= inverse

        is_label = cols == tl.where(known, label, -1).to(tl.int32)[:, None]
        x = tl.where(is_label, float("-inf"), x)
        top = tl.maximum(tl.maximum(tl.max(x, 1), z_y), _LOWEST)
        base = own.base_of(top, FAST)
        e = own.exp_over(x, base[:, None], FAST)
        back = own.exp_between(base, top, FAST)
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
        _finish(loss, work, ticket, total, divisor)


@triton.jit
def _without_label(x, ahead, lane):
    """The label's logit becomes -inf. `ahead` is its distance from each group's first column."""
    return tl.where(lane == ahead[:, :, None], float("-inf"), x)


@triton.jit
def _walk(bases, sums, x, FAST: tl.constexpr):
    """One step of a thread's running maximum and sum: no barrier, and one exp a step to rescale.

    x is (threads, loads, logits of a load); also returns the step's exponentials over the new bases.
    """
    new = tl.maximum(bases, own.base_of(tl.max(tl.max(x, 2), 1), FAST))
    e = own.exp_over(x, new[:, None, None], FAST)
    return new, sums * own.exp_step(bases, new, FAST) + tl.sum(tl.sum(e, 2), 1), e


@triton.jit
def row_kernel(
    z, labels, class_weight, sample_weight, upstream, loss, grad, work, ticket, n, ignore,
    h0: tl.float64, h1: tl.float64, h2: tl.float64, h3: tl.float64, up_stride,
    C: tl.constexpr, Z_STRIDE: tl.constexpr, G_STRIDE: tl.constexpr, PHI: tl.constexpr,
    REDUCE: tl.constexpr, INLINE: tl.constexpr, HELD: tl.constexpr, LOADS: tl.constexpr,
    THREADS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """One row at a time, LOADS * THREADS * VECTOR columns a step; VECTOR logits are one 16-byte load.

    HELD: one step is the whole row, and its exponentials stay in registers.
    """
    BLOCK: tl.constexpr = LOADS * THREADS * VECTOR
    FULL: tl.constexpr = 0 if HELD else C // BLOCK * BLOCK
    FAST: tl.constexpr = z.dtype.element_ty.primitive_bitwidth == 16
    acc: tl.constexpr = tl.float64 if z.dtype.element_ty == tl.float64 else tl.float32
    divisor = _divisor(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, INLINE, acc)
    inverse = own.divide(tl.full((), 1.0, acc), divisor)
    total = tl.full((), 0.0, acc)
    # Threads before loads: of two dimensions that are equal to it, Triton spreads the first over the lanes.
    first = tl.arange(0, THREADS)[:, None] * VECTOR + tl.arange(0, LOADS)[None, :] * (THREADS * VECTOR)
    lane = tl.arange(0, VECTOR)[None, None, :]
    cols = first[:, :, None] + lane
    label = tl.load(labels + tl.program_id(0))
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        next_label = tl.load(labels + tl.minimum(row + tl.num_programs(0), n - 1))
        weight = _row_weight(class_weight, sample_weight, row, label, True, C, acc)
        counts = (label != ignore) & (weight != 0.0)
        at = z + tl.cast(row, tl.int64) * Z_STRIDE
        known = counts & (label >= 0) & (label < C)
        z_y = tl.load(at + label, mask=known, other=float("nan")).to(acc)
        place = tl.where(known, label, -VECTOR).to(tl.int32)
        scale = weight
        if upstream is not None:
            scale *= tl.load(upstream + row * up_stride).to(acc)
        if REDUCE == "mean":
            scale *= inverse

        bases = tl.full([THREADS], _LOWEST, acc)
        sums = tl.zeros([THREADS], acc)
        for start in range(0, tl.where(counts, FULL, 0), BLOCK):
            x = tl.load(at + start + cols).to(acc)
            if (place >= start) & (place < start + BLOCK):  # one step in all; the others need no masks
                x = _without_label(x, place - start - first, lane)
            bases, sums, e = _walk(bases, sums, x, FAST)
        if FULL < C:
            wanted = FULL + cols < tl.where(counts, C, 0)
            x = tl.load(at + FULL + cols, mask=wanted, other=float("-inf")).to(acc)
            x = _without_label(x, place - FULL - first, lane)
            bases, sums, e = _walk(bases, sums, x, FAST)
        top = tl.maximum(own.top_of(tl.max(bases, 0), FAST), z_y)
        back = own.exp_between(bases, top, FAST)
        rivals = tl.sum(sums * back, 0)
        value, factor, own_entry = _loss_and_coefficient(
            z_y, top, rivals, weight, scale, counts, h0, h1, h2, h3, PHI
        )
        if REDUCE == "none":
            tl.store(loss + row, value)
        else:
            total += value

        if grad is not None:
            to = grad + tl.cast(row, tl.int64) * G_STRIDE
            if HELD:
                g = ((factor * back)[:, None, None] * e).to(grad.dtype.element_ty)
                tl.store(to + cols, g, mask=cols < C, eviction_policy="evict_first")
            elif factor == 0.0:
                zero = tl.zeros([THREADS, LOADS, VECTOR], grad.dtype.element_ty)
                for start in range(0, FULL, BLOCK):
                    tl.store(to + start + cols, zero)
                if FULL < C:
                    tl.store(to + FULL + cols, zero, mask=FULL + cols < C)
            else:
                base = own.base_of(top, FAST)
                scaled = factor * own.exp_between(base, top, FAST)
                if FULL < C:
                    g = (scaled * own.exp_over(x, base, FAST)).to(grad.dtype.element_ty)
                    tl.store(to + FULL + cols, g, mask=FULL + cols < C, eviction_policy="evict_first")
                for step in range(0, FULL, BLOCK):
                    behind = FULL - BLOCK - step
                    x = tl.load(at + behind + cols, eviction_policy="evict_first").to(acc)
                    g = (scaled * own.exp_over(x, base, FAST)).to(grad.dtype.element_ty)
                    tl.store(to + behind + cols, g, eviction_policy="evict_first")
            # The label's own entry comes last, over what the threads have written there.
            tl.debug_barrier()
            tl.store(to + label, own_entry.to(grad.dtype.element_ty), mask=known)
        label = next_label  # asked for a row ahead, or every row would wait for it
    if REDUCE != "none":
        _finish(loss, work, ticket, total, divisor)


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
                factor = tl.load(upstream + rows * up_stride, mask=rows < n, other=1.0).to(acc)
                mask = mask & (factor != 1.0)[:, None]
            at = grad + rows.to(tl.int64)[:, None] * C + cols
            g = tl.load(at, mask=mask, other=0.0).to(acc) * factor[:, None]
            tl.store(at, g.to(grad.dtype.element_ty), mask=mask)


@triton.jit
def move_rows_kernel(rows, source, STRIDE: tl.constexpr, C: tl.constexpr, COLS: tl.constexpr):
    """Row i becomes row source[i]. No row may be both read and written."""
    to = tl.program_id(0)
    of = tl.load(source + to)
    if of != to:
        at = rows + tl.cast(of, tl.int64) * STRIDE
        into = rows + tl.cast(to, tl.int64) * STRIDE
        for start in range(tl.program_id(1) * COLS, C, tl.num_programs(1) * COLS):
            cols = start + tl.arange(0, COLS)
            x = tl.load(at + cols, mask=cols < C, eviction_policy="evict_first")
            tl.store(into + cols, x, mask=cols < C)
