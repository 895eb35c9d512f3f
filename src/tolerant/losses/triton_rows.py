"""The Triton kernels: a loss and its gradient in one launch, each logit read from memory once.

Two kernels share every formula. `tile_kernel` keeps whole rows in registers. `loop_kernel` walks over
rows that do not fit, twice; the second walk goes backwards, so that it meets what the caches still
hold. Both know the gradient's weight w after the first half, so no later pass over the logits is due.

For a row with label y, maximum m, d = z_y - m and s the sum of exp(z_j - m) over the rivals j != y:
log p_y = d - log(exp(d) + s), and the gradient's label entry is -w s / (exp(d) + s). Nothing cancels.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl

from tolerant.losses import triton_phi as own

PARTS = 128  # partial sums of the row weights; every program adds them up for itself
_PARTS: tl.constexpr = tl.constexpr(PARTS)
_SUMS: tl.constexpr = tl.constexpr(1024)


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
def prepare_kernel(work, labels, class_weight, sample_weight, n, ignore, C: tl.constexpr):
    """Partial sums of the row weights into work[1:], and the ticket of `_finish` back to 0."""
    part = tl.program_id(0)
    acc: tl.constexpr = work.dtype.element_ty
    span = tl.cdiv(n, _PARTS)
    start = part * span
    stop = tl.minimum(start + span, n)
    weight = _weight_sum(labels, class_weight, sample_weight, start, stop, ignore, C, acc)
    tl.store(work + 1 + part, weight)
    if part == 0:
        tl.store(work, 0.0)


@triton.jit
def _divisor(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, SINGLE, acc):
    """What a mean divides by: the sum of the weights of the rows that count."""
    divisor = tl.full((), 1.0, acc)
    if REDUCE == "mean":
        if SINGLE:
            divisor = _weight_sum(labels, class_weight, sample_weight, 0, n, ignore, C, acc)
        else:
            divisor = tl.sum(tl.load(work + 1 + tl.arange(0, _PARTS)), 0)
    return divisor


@triton.jit
def _finish(loss, work, total, divisor, SINGLE: tl.constexpr):
    """Store the sum over all programs. The last one to come adds, always in the same order."""
    if SINGLE:
        tl.store(loss, own.divide(total, divisor))
    else:
        programs = tl.num_programs(0)
        partial = work + 1 + _PARTS
        tl.store(partial + tl.program_id(0), total)
        tl.debug_barrier()
        ticket = tl.atomic_add(work, 1.0, sem="acq_rel")
        if ticket == programs - 1:
            everything = tl.zeros([_SUMS], total.dtype)
            for at in range(0, programs, _SUMS):
                index = at + tl.arange(0, _SUMS)
                mask = index < programs
                everything += tl.load(partial + index, mask=mask, other=0.0, volatile=True)
            tl.store(loss, own.divide(tl.sum(everything, 0), divisor))


@triton.jit
def _exp(x, FAST: tl.constexpr):
    return own.fast_exp(x) if FAST else own.exp(x)


@triton.jit
def _loss_and_coefficient(z_y, top, rivals, weight, scale, counts, h0, h1, h2, h3, PHI: tl.constexpr):
    """Weighted loss, the gradient's factor on exp(z_j - m), and the gradient's label entry."""
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
    z, labels, class_weight, sample_weight, upstream, loss, grad, work, n, ignore,
    h0: tl.float64, h1: tl.float64, h2: tl.float64, h3: tl.float64, up_stride,
    C: tl.constexpr, Z_STRIDE: tl.constexpr, G_STRIDE: tl.constexpr, PHI: tl.constexpr,
    REDUCE: tl.constexpr, SINGLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Rows in registers: ROWS of them a step, COLS >= C columns, one exp a logit."""
    FAST: tl.constexpr = z.dtype.element_ty.primitive_bitwidth == 16
    acc: tl.constexpr = tl.float64 if z.dtype.element_ty == tl.float64 else tl.float32
    divisor = _divisor(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, SINGLE, acc)
    inverse = own.divide(tl.full((), 1.0, acc), divisor)
    total = tl.full((), 0.0, acc)
    cols = tl.arange(0, COLS)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(n, ROWS), tl.num_programs(0), num_stages=STAGES):
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
        top = tl.maximum(tl.max(x, 1), z_y)
        shift = tl.where(top == float("-inf"), 0.0, top)
        e = _exp(x - shift[:, None], FAST)
        value, factor, own_entry = _loss_and_coefficient(
            z_y, top, tl.sum(e, 1), weight, scale, counts, h0, h1, h2, h3, PHI
        )
        if REDUCE == "none":
            tl.store(loss + rows, value, mask=inside)
        else:
            total += tl.sum(value, 0)
        if grad is not None:
            g = tl.where(is_label, own_entry[:, None], factor[:, None] * e)
            to = grad + rows.to(tl.int64)[:, None] * G_STRIDE
            tl.store(to + cols, g.to(grad.dtype.element_ty), mask=inside[:, None] & (cols < C))
    if REDUCE != "none":
        _finish(loss, work, total, divisor, SINGLE)


@triton.jit
def _walk(top, rivals, x, FAST: tl.constexpr):
    """One step of the running maximum and sum. Groups lie within a thread: no barrier."""
    new = tl.maximum(top, tl.max(x, 1))
    shift = tl.where(new == float("-inf"), 0.0, new)
    step = tl.sum(_exp(x - shift[:, None], FAST), 1)
    return new, rivals * _exp(top - shift, FAST) + step


@triton.jit
def loop_kernel(
    z, labels, class_weight, sample_weight, upstream, loss, grad, work, n, ignore,
    h0: tl.float64, h1: tl.float64, h2: tl.float64, h3: tl.float64, up_stride,
    C: tl.constexpr, Z_STRIDE: tl.constexpr, G_STRIDE: tl.constexpr, PHI: tl.constexpr,
    REDUCE: tl.constexpr, GROUPS: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr,
    LAST_USE: tl.constexpr,
):  # fmt: skip
    """One row at a time in steps of GROUPS * VECTOR columns; a group of VECTOR is one 16-byte load."""
    BLOCK: tl.constexpr = GROUPS * VECTOR
    FULL: tl.constexpr = C // BLOCK * BLOCK
    FAST: tl.constexpr = z.dtype.element_ty.primitive_bitwidth == 16
    acc: tl.constexpr = tl.float64 if z.dtype.element_ty == tl.float64 else tl.float32
    divisor = _divisor(work, labels, class_weight, sample_weight, n, ignore, C, REDUCE, False, acc)
    inverse = own.divide(tl.full((), 1.0, acc), divisor)
    total = tl.full((), 0.0, acc)
    first = tl.arange(0, GROUPS) * VECTOR
    lane = tl.arange(0, VECTOR)[None, :]
    cols = first[:, None] + lane
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        label = tl.load(labels + row)
        weight = _row_weight(class_weight, sample_weight, row, label, True, C, acc)
        counts = (label != ignore) & (weight != 0.0)
        at = z + tl.cast(row, tl.int64) * Z_STRIDE
        known = counts & (label >= 0) & (label < C)
        z_y = tl.load(at + label, mask=known, other=float("nan")).to(acc)
        # Compared within a group, where it is a constant: the label's distance from the group's first.
        ahead = tl.where(known, label, -VECTOR).to(tl.int32) - first
        scale = weight
        if upstream is not None:
            scale *= tl.load(upstream + row * up_stride).to(acc)
        if REDUCE == "mean":
            scale *= inverse

        tops = tl.full([GROUPS], float("-inf"), acc)
        sums = tl.zeros([GROUPS], acc)
        for start in tl.range(0, tl.where(counts, FULL, 0), BLOCK, num_stages=STAGES):
            x = tl.load(at + start + cols).to(acc)
            x = tl.where(lane == (ahead - start)[:, None], float("-inf"), x)
            tops, sums = _walk(tops, sums, x, FAST)
        if FULL < C:
            mask = FULL + cols < tl.where(counts, C, 0)
            x = tl.load(at + FULL + cols, mask=mask, other=float("-inf")).to(acc)
            x = tl.where(lane == (ahead - FULL)[:, None], float("-inf"), x)
            tops, sums = _walk(tops, sums, x, FAST)
        top = tl.maximum(tl.max(tops, 0), z_y)
        shift = tl.where(top == float("-inf"), 0.0, top)
        rivals = tl.sum(sums * _exp(tops - shift, FAST), 0)
        value, factor, own_entry = _loss_and_coefficient(
            z_y, top, rivals, weight, scale, counts, h0, h1, h2, h3, PHI
        )
        if REDUCE == "none":
            tl.store(loss + row, value)
        else:
            total += value

        if grad is not None:
            to = grad + tl.cast(row, tl.int64) * G_STRIDE
            if factor == 0.0:
                zero = tl.zeros([GROUPS, VECTOR], grad.dtype.element_ty)
                for start in range(0, FULL, BLOCK):
                    tl.store(to + start + cols, zero)
                if FULL < C:
                    tl.store(to + FULL + cols, zero, mask=FULL + cols < C)
            else:
                if FULL < C:
                    mask = FULL + cols < C
                    x = tl.load(at + FULL + cols, mask=mask, other=0.0, eviction_policy=LAST_USE).to(acc)
                    g = factor * _exp(x - shift, FAST)
                    g = tl.where(lane == (ahead - FULL)[:, None], own_entry, g)
                    g = g.to(grad.dtype.element_ty)
                    tl.store(to + FULL + cols, g, mask=mask, eviction_policy=LAST_USE)
                for step in range(0, FULL, BLOCK):
                    back = FULL - BLOCK - step
                    x = tl.load(at + back + cols, eviction_policy=LAST_USE).to(acc)
                    g = factor * _exp(x - shift, FAST)
                    g = tl.where(lane == (ahead - back)[:, None], own_entry, g)
                    g = g.to(grad.dtype.element_ty)
                    tl.store(to + back + cols, g, eviction_policy=LAST_USE)
    if REDUCE != "none":
        _finish(loss, work, total, divisor, False)


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
