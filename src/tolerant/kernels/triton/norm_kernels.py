"""Batch norm's kernels, which `tolerant.kernels.batch_norm` launches: two launches forward, two backward.

A picture batch in channels-last order is a matrix of ``m`` places by ``C`` channels. The two kernels
that sum over places split them among programs; the last program to finish adds the partial sums,
always in the same order, so results repeat bit by bit.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(start, cols, inside, m, C: tl.constexpr, ROWS: tl.constexpr):
    """Which elements of the rows from `start` on exist, and where."""
    rows = start + tl.arange(0, ROWS)
    return (rows < m)[:, None] & inside[None, :], rows.to(tl.int64)[:, None] * C + cols[None, :]


@triton.jit
def _store_part(partial, first, second, cols, inside, C: tl.constexpr):
    where = partial + tl.program_id(0) * (2 * C) + cols
    tl.store(where, tl.sum(first, 0), mask=inside)
    tl.store(where + C, tl.sum(second, 0), mask=inside)


@triton.jit
def _is_last(tickets, parts):
    """Whether all programs of this block of channels have stored their sums; the ticket goes back to 0."""
    tl.debug_barrier()
    ticket = tickets + tl.program_id(1)
    last = tl.atomic_add(ticket, 1, sem="acq_rel") == parts - 1
    if last:
        tl.store(ticket, 0)
    return last


@triton.jit
def _sum_parts(partial, parts, cols, inside, C: tl.constexpr, PARTS: tl.constexpr, COLS: tl.constexpr):
    first = tl.zeros([PARTS, COLS], tl.float32)
    second = tl.zeros([PARTS, COLS], tl.float32)
    for at in range(0, parts, PARTS):
        part = at + tl.arange(0, PARTS)
        mask = (part < parts)[:, None] & inside[None, :]
        where = partial + part[:, None] * (2 * C) + cols[None, :]
        first += tl.load(where, mask=mask, other=0.0, cache_modifier=".cg")
        second += tl.load(where + C, mask=mask, other=0.0, cache_modifier=".cg")
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def statistics_kernel(
    x, partial, tickets, stats, running_mean, running_var, num_batches, m, eps, momentum,
    C: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Mean and inverse deviation of each channel into stats[0] and stats[1]; the running ones move on.

    Sums are taken of the distances from the first row: of values far from 0 no digits cancel.
    """
    parts = tl.num_programs(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = cols < C
    pivot = tl.load(x + cols, mask=inside, other=0.0).to(tl.float32)
    first = tl.zeros([ROWS, COLS], tl.float32)
    second = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, m, parts * ROWS):
        mask, at = _tile(start, cols, inside, m, C, ROWS)
        value = tl.load(x + at, mask=mask, other=0.0)
        far = tl.where(mask, value.to(tl.float32) - pivot[None, :], 0.0)
        first += far
        second += far * far
    _store_part(partial, first, second, cols, inside, C)
    if _is_last(tickets, parts):
        one, two = _sum_parts(partial, parts, cols, inside, C, PARTS, COLS)
        off = one / m
        var = tl.maximum(two / m - off * off, 0.0)
        mean = pivot + off
        tl.store(stats + cols, mean, mask=inside)
        tl.store(stats + C + cols, 1.0 / tl.sqrt(var + eps), mask=inside)
        old_mean = tl.load(running_mean + cols, mask=inside, other=0.0)
        old_var = tl.load(running_var + cols, mask=inside, other=0.0)
        unbiased = var * (m / (m - 1.0))
        tl.store(running_mean + cols, old_mean + momentum * (mean - old_mean), mask=inside)
        tl.store(running_var + cols, old_var + momentum * (unbiased - old_var), mask=inside)
        if tl.program_id(1) == 0:
            tl.store(num_batches, tl.load(num_batches) + 1)


@triton.jit
def _affine(x, at, mask, stats, weight, bias, cols, inside, C: tl.constexpr):
    """Distance from the mean, the deviation's inverse, and the normalised value."""
    mean = tl.load(stats + cols, mask=inside, other=0.0)
    inverse = tl.load(stats + C + cols, mask=inside, other=0.0)
    scale = inverse * tl.load(weight + cols, mask=inside, other=0.0)
    far = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - mean[None, :]
    return far, inverse, scale, far * scale[None, :] + tl.load(bias + cols, mask=inside, other=0.0)[None, :]


@triton.jit
def apply_kernel(
    x, residual, y, stats, weight, bias, m,
    C: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """y = relu((x - mean) / deviation * weight + bias + residual)."""
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = cols < C
    mask, at = _tile(tl.program_id(0) * ROWS, cols, inside, m, C, ROWS)
    _, _, _, value = _affine(x, at, mask, stats, weight, bias, cols, inside, C)
    if residual is not None:
        value += tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
    if RELU:  # NaN stays NaN
        value = tl.where(value < 0.0, 0.0, value)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def sums_kernel(
    dy, x, y, stats, weight, bias, through, partial, tickets, d_weight, d_bias, m,
    C: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias. `through`, where given, gets what passes the ReLU."""
    parts = tl.num_programs(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = cols < C
    first = tl.zeros([ROWS, COLS], tl.float32)
    second = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, m, parts * ROWS):
        mask, at = _tile(start, cols, inside, m, C, ROWS)
        far, _, _, value = _affine(x, at, mask, stats, weight, bias, cols, inside, C)
        g = tl.load(dy + at, mask=mask, other=0.0)
        if RELU:
            if y is not None:
                value = tl.load(y + at, mask=mask, other=0.0).to(tl.float32)
            g = tl.where(value > 0.0, g, 0.0)
        if through is not None:
            tl.store(through + at, g, mask=mask)
        g = g.to(tl.float32)
        first += g
        second += g * far
    _store_part(partial, first, second, cols, inside, C)
    if _is_last(tickets, parts):
        one, two = _sum_parts(partial, parts, cols, inside, C, PARTS, COLS)
        inverse = tl.load(stats + C + cols, mask=inside, other=0.0)
        tl.store(d_bias + cols, one, mask=inside)
        tl.store(d_weight + cols, two * inverse, mask=inside)


@triton.jit
def input_kernel(
    g, x, stats, weight, bias, d_weight, d_bias, dx, m,
    C: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The gradient of x. With RELU, g has not passed it yet."""
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = cols < C
    mask, at = _tile(tl.program_id(0) * ROWS, cols, inside, m, C, ROWS)
    far, inverse, scale, value = _affine(x, at, mask, stats, weight, bias, cols, inside, C)
    passed = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
    if RELU:
        passed = tl.where(value > 0.0, passed, 0.0)
    mean_g = tl.load(d_bias + cols, mask=inside, other=0.0) / m
    slope = tl.load(d_weight + cols, mask=inside, other=0.0) * inverse / m
    out = scale[None, :] * (passed - mean_g[None, :] - far * slope[None, :])
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=mask)
