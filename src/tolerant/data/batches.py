"""Batches on the device: from a copy that lives there, or streamed from where the rows are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tolerant.checks import check_whole
from tolerant.data.dataset import Inputs, is_in_memory

_CGROUP = Path("/sys/fs/cgroup")
_ROWS_AT_ONCE = 4096  # read when all of them are copied
_AHEAD = 3  # batches that are read before they are asked for


class Batches:
    """Rows of `inputs` on `device`, by index or as the batches of an epoch.

    resident: keep a copy of all rows on the device; by default if it takes at most half of the
        memory free there. Larger inputs are read batch by batch, a few ahead of the training, and
        never as a whole.

    >>> batches = Batches(np.arange(5, dtype=np.float32)[:, None], "cpu")
    >>> [rows.flatten().tolist() for _, rows in batches.epoch(torch.tensor([4, 0, 2]), 2)]
    [[4.0, 0.0], [2.0]]
    """

    def __init__(self, inputs: Inputs, device: torch.device | str, *, resident: bool | None = None) -> None:
        if not hasattr(inputs, "dtype") or inputs.dtype == object:
            raise ValueError("batches need numbers; turn text into features first")
        self.inputs, self.device = inputs, torch.device(device)
        resident = fits(inputs, self.device) if resident is None else resident
        self.tensor = copy_to(inputs, self.device) if resident else None

    def take(self, index: Tensor) -> Tensor:
        """The rows `index`, on the device."""
        if self.tensor is not None:
            return self.tensor.index_select(0, index.to(self.device))
        return _send(_read(self.inputs, index, self.device), self.device)

    def epoch(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(index, rows) of each batch, both on the device, in the order given."""
        check_whole(batch_size, "batch_size", least=1)
        if not len(order):
            return  # torch splits nothing into one empty batch
        if self.tensor is not None:
            for index in order.to(self.device).split(batch_size):
                yield index, self.take(index)
            return
        parts = order.cpu().split(batch_size)
        with closing(self._stream(parts)) as stream:  # or the reader would outlive a loop left early
            for index, rows in zip(parts, stream, strict=True):
                yield index.to(self.device, non_blocking=True), rows

    def _stream(self, parts: Iterable[Tensor]) -> Generator[Tensor]:
        # One reader: files are decoded by threads of their own, and a disk gains nothing from two.
        with ThreadPoolExecutor(1) as reader:
            waiting: deque[Future[Tensor]] = deque()
            try:
                for index in parts:
                    waiting.append(reader.submit(_read, self.inputs, index, self.device))
                    if len(waiting) > _AHEAD:
                        yield _send(waiting.popleft().result(), self.device)
                while waiting:
                    yield _send(waiting.popleft().result(), self.device)
            finally:
                for future in waiting:  # the loop was left early: nobody wants these
                    future.cancel()


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
