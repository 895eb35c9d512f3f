"""Rows on the device: all of them as a copy that lives there, or batches streamed from where they are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tolerant.data.dataset import Inputs, is_in_memory

_CGROUP = Path("/sys/fs/cgroup")
_ROWS_AT_ONCE = 4096  # read when all of them are copied
_AHEAD = 3  # batches that are read before they are asked for


def on_device(inputs: Inputs, device: torch.device) -> Tensor | None:
    """A copy of all rows there; None if it would take more than half of the free memory: then `stream`."""
    if not hasattr(inputs, "dtype") or inputs.dtype == object:
        raise ValueError("batches need numbers; turn text into features first")
    return copy_to(inputs, device) if fits(inputs, device) else None


def stream(inputs: Inputs, order: Tensor, batch_size: int, device: torch.device) -> Generator[Tensor]:
    """The rows of `order` on the device, batch by batch, a few read ahead of the training.

    >>> rows = np.arange(5, dtype=np.float32)[:, None]
    >>> order = torch.tensor([4, 0, 2])
    >>> [batch.flatten().tolist() for batch in stream(rows, order, 2, torch.device("cpu"))]
    [[4.0, 0.0], [2.0]]
    """
    # One reader: files are decoded by threads of their own, and a disk gains nothing from two.
    with ThreadPoolExecutor(1) as reader:
        waiting: deque[Future[Tensor]] = deque()
        try:
            for index in order.cpu().split(batch_size) if len(order) else ():
                waiting.append(reader.submit(_read, inputs, index, device))
                if len(waiting) > _AHEAD:
                    yield _send(waiting.popleft().result(), device)
            while waiting:
                yield _send(waiting.popleft().result(), device)
        finally:
            for future in waiting:  # the loop was left early: nobody wants these
                future.cancel()


def take(inputs: Inputs, index: Tensor, device: torch.device) -> Tensor:
    """The rows `index` on the device, read now."""
    return _send(_read(inputs, index, device), device)


def fits(inputs: Inputs, device: torch.device) -> bool:
    """Whether a copy of all rows takes at most half of the memory that is free on the device."""
    if device.type != "cuda" and is_in_memory(inputs):
        return True  # on the CPU the copy is the array itself
    needed = 2 * int(np.prod(inputs.shape, dtype=object)) * np.dtype(inputs.dtype).itemsize
    if device.type != "cuda":
        return needed <= _free_on_host()
    if needed > torch.cuda.mem_get_info(device)[0]:
        torch.cuda.empty_cache()  # torch keeps what was freed, as by a run before this one
    return needed <= torch.cuda.mem_get_info(device)[0]


def _free_on_host() -> int:
    """Bytes of memory that are free; 0, so that rows are streamed, where the system does not say."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # Windows, macOS
        return 0
    # A container sees the memory of its whole machine, and is killed at its own limit (cgroup v2, v1).
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # no such file, or no limit: "max"
            free = min(free, int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text()))
    return max(free, 0)


def copy_to(inputs: Inputs, device: torch.device) -> Tensor:
    """All rows on the device; an array in memory is used as it is on the CPU."""
    if is_in_memory(inputs):
        return _tensor(np.ascontiguousarray(inputs)).to(device)
    first = _tensor(np.asarray(inputs[np.arange(0)]))
    copy = torch.empty(tuple(inputs.shape), dtype=first.dtype, device=device)
    for start in range(0, len(inputs), _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, len(inputs))
        copy[start:stop] = _tensor(np.asarray(inputs[np.arange(start, stop)])).to(device)
    return copy


def _read(inputs: Inputs, index: Tensor, device: torch.device) -> Tensor:
    rows = _tensor(np.ascontiguousarray(inputs[index.cpu().numpy()]))
    return rows.pin_memory() if device.type == "cuda" else rows


def _send(rows: Tensor, device: torch.device) -> Tensor:
    return rows.to(device, non_blocking=True)  # from pinned memory: the host goes on at once


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
