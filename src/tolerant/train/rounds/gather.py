"""Rows reported by every rank, brought to all ranks.

An all-gather of (position, p_y) pairs, 8 bytes a reported row (12 above 2^31 rows). An all-reduce
of the whole float32 state would move as much in a full pass (a ring sends every value twice), but
all N rows for an update of a few, and would need a value that stands for "not reported".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist

# Of all ranks together, so that the receive buffers take 32 MiB whatever the number of ranks.
_ROWS_AT_ONCE = 1 << 22


def gather_rows(
    index: np.ndarray, p_y: np.ndarray, num_rows: int, error: Exception | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(index, p_y) pieces of all ranks, in the same order everywhere.

    ``error`` is why this rank refuses its input: raised here, once the others have been told.
    """
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if world == 1:
        if error is not None:
            raise error
        return iter([(index, p_y)])
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    mine = torch.tensor([-1 if error is not None else len(index), num_rows], device=device)
    heads = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(heads, mine)
    lengths, sizes = torch.stack(heads).cpu().T.tolist()
    if error is not None:
        raise error
    if -1 in lengths:
        raise RuntimeError(
            f"rank {lengths.index(-1)} refused the rows reported to it; its own message says why."
        )
    if len(set(sizes)) > 1:
        raise RuntimeError(f"all ranks must prune the same data set; their numbers of rows are {sizes}.")
    return _rounds(index, p_y, lengths, num_rows, device)


def _rounds(
    index: np.ndarray, p_y: np.ndarray, lengths: list[int], num_rows: int, device: torch.device
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    world = len(lengths)
    step = max(1, _ROWS_AT_ONCE // world)
    dtype = torch.int32 if num_rows <= 2**31 else torch.int64
    for start in range(0, max(lengths), step):
        width = min(step, max(lengths) - start)
        part = slice(start, start + width)
        pieces = []
        for values, kind in ((index[part], dtype), (p_y[part], torch.float32)):
            mine = torch.zeros(width, dtype=kind, device=device)
            mine[: len(values)] = torch.tensor(values, dtype=kind, device=device)
            received = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(received, mine)
            pieces.append([piece.cpu().numpy() for piece in received])
        for rows, values, length in zip(*pieces, lengths, strict=True):
            have = min(max(length - start, 0), width)
            yield rows[:have].astype(np.int64), values[:have]
