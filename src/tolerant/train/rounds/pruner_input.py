"""The ids, labels and probabilities that a user passes to the pruner, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from torch import Tensor


def read_integers(name: str, values: Any) -> np.ndarray:
    """[n] from a tensor, an array or any iterable of integers, in the integer type it has."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    elif not isinstance(values, np.ndarray | Sequence):
        values = list(values)
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a flat list of integers; got {array.dtype} of shape {array.shape}.")
    return array if array.size else array.astype(np.int64)


def read_positions(name: str, values: Any, num_rows: int) -> np.ndarray:
    """int64 [n], all in 0 .. num_rows - 1."""
    index = read_integers(name, values)
    if len(index) and not (index.min() >= 0 and index.max() < num_rows):
        wrong = index[(index < 0) | (index >= num_rows)][0]
        raise ValueError(f"{name} must be in 0 .. {num_rows - 1}; got {wrong}.")
    return index.astype(np.int64, copy=False)


def number_ids(source: Any) -> tuple[int, dict[Hashable, int] | None, str]:
    """Number of rows, position by id (None: ids are positions), digest of ids and order."""
    if isinstance(source, int | np.integer) and not isinstance(source, bool):
        if source < 1:
            raise ValueError(f"ids_or_num_rows must be at least 1 row; got {source!r}.")
        return int(source), None, "positions"
    if getattr(source, "ndim", None) == 1:  # an array, a tensor, a column of a frame or its index
        source = source.tolist()  # tensors hash by identity, so equal ids would not be found
    if not isinstance(source, Sequence) or isinstance(source, str) or not len(source):
        raise ValueError(
            f"ids_or_num_rows must be a number of rows or a sequence of ids; got {source!r:.80}."
        )
    if all(type(row_id) is int and row_id == row for row, row_id in enumerate(source)):
        return len(source), None, "positions"
    position: dict[Hashable, int] = {}
    digest = hashlib.sha256()
    for row, row_id in enumerate(source):
        if position.setdefault(row_id, row) != row:
            raise ValueError(f"ids must be distinct; rows {position[row_id]} and {row} are both {row_id!r}.")
        digest.update(repr(row_id).encode() + b"\0")
    return len(source), position, digest.hexdigest()


def small_labels(given_labels: Any, num_rows: int) -> np.ndarray:
    """[N] in the smallest unsigned integer type: one byte per row up to 256 classes.

    Not by `checks.check_labels`, whose int64 would take 800 MB for the 10^8 rows that a pruner can hold.
    """
    labels = read_integers("given_labels", given_labels)
    if len(labels) != num_rows or labels.min() < 0:
        raise ValueError(
            f"given_labels must be {num_rows} class numbers from 0 on; got {len(labels)} values, "
            f"the least {labels.min(initial=0)}. Leave out rows without a label."
        )
    return labels.astype(np.min_scalar_type(int(labels.max())))


def read_p_y(p_y: Any, num_ids: int) -> np.ndarray:
    """float32 [n], checked to be probabilities; 1e-3 of rounding above 1 is let through."""
    if isinstance(p_y, Tensor):
        p_y = p_y.detach().cpu().float().numpy()
    p = np.asarray(p_y, dtype=np.float32)
    if p.shape != (num_ids,):
        raise ValueError(f"p_y must have one value for each of the {num_ids} ids; got shape {p.shape}.")
    outside = ~((p >= 0) & (p <= 1.001))
    if outside.any():
        raise ValueError(
            f"p_y must be in [0, 1]; got {p[outside][0]} ({outside.sum()} such rows). "
            "NaN means that the model has diverged; log-probabilities need the exponential first."
        )
    return p
