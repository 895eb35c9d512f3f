"""Rows in blocks, so that what is computed of them on the way takes little memory."""

from __future__ import annotations

from collections.abc import Iterator

NUMBERS = 1 << 20  # in one temporary: 8 MiB


def blocks(num_rows: int, num_classes: int) -> Iterator[slice]:
    """Slices of the rows; an array of float64, a number for each class of the rows of one, takes 8 MiB.

    >>> list(blocks(5, NUMBERS // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    step = max(1, NUMBERS // num_classes)
    return (slice(start, start + step) for start in range(0, num_rows, step))
