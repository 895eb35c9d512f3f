"""A row cut into parts, each held by a program of its own: how the parts learn of each other.

Every part publishes two words, the base of its exponentials and their sum, and waits for those of the
others. A word is its own flag: its place starts at 0, and 0 is never published, so whoever finds anything
else there has the number itself. Nothing then depends on the order in which memory is written, and no
program has to wait until its gradients, still on their way to memory, have arrived.

Why nobody waits forever: a program goes by its seat, which is how many programs started before it, and not
by its id. A row belongs to PARTS consecutive seats, the same ones for all rows that they serve, and these
wait for nobody else. So a group whose members have all started comes to its end and makes room. Only the
last group can lack members, and they are the next to start. Until then it takes up fewer than PARTS places;
`kernels.can` asks for a GPU that has at least four times as many, two on each multiprocessor. So there is
room beside it, even where a few launches run at once.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl

from tolerant.kernels.triton import math as tm

MOST_PARTS = 32
WORDS = 2 * MOST_PARTS  # of each row: base and sum of each part
_MOST_PARTS: tl.constexpr = tl.constexpr(MOST_PARTS)
_WORDS: tl.constexpr = tl.constexpr(WORDS)
_ASK = """{
    .reg .pred here;
again:
    ld.relaxed.gpu.global.v2.b32 {$0, $1}, [$2];
    setp.ne.b32 here, $0, 0;
    setp.ne.and.b32 here, $1, 0, here;
    @!here bra again;
}"""
_ASK_32: tl.constexpr = tl.constexpr(_ASK)
_ASK_64: tl.constexpr = tl.constexpr(_ASK.replace("b32", "b64"))


@triton.jit
def started_before(words, n):
    """How many programs started before this one; the count is behind the words."""
    return tl.atomic_add(words + n * _WORDS, 1, sem="relaxed").to(tl.int32)


@triton.jit
def exchange(words, row, part, base, total, PARTS: tl.constexpr):
    """Publish a part's base and sum; returns those of all parts, always in the same order."""
    at = words + tl.cast(row, tl.int64) * _WORDS
    which = tl.arange(0, 2)
    number = tl.where(which == 0, base, total)
    tl.atomic_xchg(at + 2 * part + which, _word(number, words.dtype.element_ty), sem="relaxed")
    index = tl.arange(0, _MOST_PARTS)
    bases, totals = _await(at + 2 * tl.minimum(index, PARTS - 1))
    totals = tl.where(index < PARTS, totals.to(base.dtype, bitcast=True), 0.0)
    return bases.to(base.dtype, bitcast=True), totals


@triton.jit
def _word(number, dtype: tl.constexpr):
    """The bits of a number, never all 0: for 0.0 those of -0.0 are published."""
    bits = number.to(dtype, bitcast=True)
    return tl.where(bits == 0, tl.full((), -1, dtype) << (dtype.primitive_bitwidth - 1), bits)


@triton.jit
def _await(pointers):
    """Read each word and the next one, until both are there."""
    if tm.INTERPRETED:  # programs run one after the other: `launch` takes care that all words are there
        return tl.load(pointers), tl.load(pointers + 1)
    elif pointers.dtype.element_ty == tl.int64:
        return tl.inline_asm_elementwise(
            _ASK_64, "=&l,=&l,l", [pointers.to(tl.int64)], (tl.int64, tl.int64), is_pure=False, pack=1
        )
    else:
        return tl.inline_asm_elementwise(
            _ASK_32, "=&r,=&r,l", [pointers.to(tl.int64)], (tl.int32, tl.int32), is_pure=False, pack=1
        )


@triton.jit
def ask_ahead(row, start, SPAN: tl.constexpr, C: tl.constexpr, COLS: tl.constexpr):
    """Start loading a part of the next row into the L2 cache, while its program waits for the other parts."""
    if not tm.INTERPRETED:
        LINE: tl.constexpr = 1024 // row.dtype.element_ty.primitive_bitwidth  # of 128 bytes
        line = tl.arange(0, COLS // LINE) * LINE
        pointers = row + tl.minimum(start + tl.minimum(line, SPAN - 1), C - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l", [pointers.to(tl.int64)], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
