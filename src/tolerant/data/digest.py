"""A digest of each row's inputs, which tells later which rows were edited."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def row_digests(inputs: Any) -> np.ndarray:
    """int64 (N,), of what the rows hold: numbers, pixels or a text.

    Pictures that do not fit in memory have theirs already, from when they were first decoded.

    >>> old, new = np.array(["red", "blue"], object), np.array(["red", "green"], object)
    >>> (row_digests(old) == row_digests(new)).tolist()
    [True, False]
    """
    known = getattr(inputs, "digests", None)
    if known is not None:
        return np.asarray(known)
    rows = np.asarray(inputs) if isinstance(inputs, np.ndarray) else inputs  # rows of a map are slow objects
    return np.fromiter((row_digest(row) for row in rows), np.int64, len(inputs))


def row_digest(row: Any) -> int:
    """Of one row: an array, or a text."""
    text = not isinstance(row, np.ndarray)
    data: Any = str(row).encode("utf-8", "surrogatepass") if text else np.ascontiguousarray(row)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)
