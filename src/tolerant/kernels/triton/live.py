"""Bringing the rows with a gradient to the front, so that matrix products can leave out the others.

With L live rows, the dead ones among the first L are holes, and as many live ones lie behind them. The last
live row goes to the first hole, and so on: few rows move, and none is both read and written.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def plan_kernel(live, origin, moves, counts, n, first, BLOCK: tl.constexpr):
    """One program: counts = live rows and holes, moves = what goes where, origin for rows that stay."""
    lanes = tl.arange(0, BLOCK)
    total = 0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(live + start + lanes, mask=start + lanes < n, other=0).to(tl.int32))
    so_far = 0
    holes = 0
    for start in range(0, n, BLOCK):
        row = start + lanes
        alive = tl.load(live + row, mask=row < n, other=0).to(tl.int32)
        rank = so_far + tl.cumsum(alive)
        hole = (alive == 0) & (row < total)
        tl.store(moves + 2 * (row - rank), row, mask=hole)
        tl.store(moves + 2 * (total - rank) + 1, row, mask=(alive != 0) & (row >= total))
        tl.store(origin + row, first + row, mask=(alive != 0) & (row < total))
        so_far += tl.sum(alive)
        holes += tl.sum(hole.to(tl.int32))
    tl.store(counts, total)
    tl.store(counts + 1, holes)


@triton.jit
def move_kernel(
    rows, origin, moves, counts, first, STRIDE: tl.constexpr, C: tl.constexpr, COLS: tl.constexpr
):
    """A hole a program (or several programs): its row moves in."""
    hole = tl.program_id(0)
    if hole < tl.load(counts + 1):
        to = tl.load(moves + 2 * hole)
        of = tl.load(moves + 2 * hole + 1)
        if tl.program_id(1) == 0:
            tl.store(origin + to, first + of)
        at = rows + of.to(tl.int64) * STRIDE
        into = rows + to.to(tl.int64) * STRIDE
        for start in range(tl.program_id(1) * COLS, C, tl.num_programs(1) * COLS):
            cols = start + tl.arange(0, COLS)
            x = tl.load(at + cols, mask=cols < C, eviction_policy="evict_first")
            tl.store(into + cols, x, mask=cols < C)
