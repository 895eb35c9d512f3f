"""Batches on the device, and the one augmentation step."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tolerant.data import batches as batches_module
from tolerant.data.augment import augment, draw
from tolerant.data.batches import copy_to, fits, on_device, stream, take
from tolerant.data.dataset import LazySubset
from tolerant.files import write_atomic


def by_hand(images: Any, mean: Any, flip: Any, shift: Any, padding: int = 4) -> np.ndarray:
    """Pixel by pixel, as one would explain it."""
    images, mean = np.asarray(images), np.asarray(mean)
    batch, height, width, channels = images.shape
    out = np.zeros((batch, channels, height, width), np.float32)
    for b in range(batch):
        for y in range(height):
            for x in range(width):
                column = width - 1 - x if flip is not None and flip[b] else x
                row = y
                if shift is not None:
                    row, column = row + int(shift[b][0]) - padding, column + int(shift[b][1]) - padding
                if 0 <= row < height and 0 <= column < width:
                    value = images[b, row, column].astype(np.float32) * np.float32(1 / 255)
                    out[b, :, y, x] = value - mean[row, column]
    return out


def some(shape: tuple[int, ...] = (9, 8, 7, 3)) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=g)
    return images, torch.rand(shape[1:], generator=g), *draw(shape[0], g)


@pytest.mark.parametrize("with_flip", [False, True])
@pytest.mark.parametrize("with_shift", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_augment_is_what_it_says(with_flip: bool, with_shift: bool, channels: int) -> None:
    images, mean, flip, shift = some((9, 8, 7, channels))
    flips, shifts = flip if with_flip else None, shift if with_shift else None
    out = augment(images, mean=mean, flip=flips, shift=shifts)
    assert np.array_equal(out, by_hand(images, mean, flips, shifts))
    assert out.is_contiguous(memory_format=torch.channels_last)
    half = augment(images, mean=mean, flip=flips, shift=shifts, dtype=torch.bfloat16)
    assert torch.equal(half, out.bfloat16())
    assert half.is_contiguous(memory_format=torch.channels_last)


def test_the_middle_shift_moves_nothing() -> None:
    images, mean, *_ = some()
    middle = torch.full((len(images), 2), 4)
    assert torch.equal(augment(images, mean=mean, shift=middle), augment(images, mean=mean))


def test_draws_are_seeded_and_even() -> None:
    flip, shift = draw(20_000, torch.Generator().manual_seed(1))
    again = draw(20_000, torch.Generator().manual_seed(1))
    assert torch.equal(flip, again[0])
    assert torch.equal(shift, again[1])
    assert flip.float().mean() == pytest.approx(0.5, abs=0.02)
    assert torch.bincount(shift.flatten()).tolist() == pytest.approx([40_000 / 9] * 9, rel=0.06)
    # Stored: what a seed draws is part of what a run is.
    flip, shift = draw(4, torch.Generator().manual_seed(0))
    assert flip.tolist() == [False, True, True, False]
    assert shift.tolist() == [[7, 6], [7, 1], [1, 0], [8, 2]]


CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["array", "map", "rows"])
def test_one_interface(kind: str, tmp_path: Path) -> None:
    stored = np.arange(60, dtype=np.float32).reshape(20, 3)
    inputs: Any = stored
    if kind == "map":
        inputs = np.memmap(tmp_path / "x", np.float32, "w+", shape=stored.shape)
        inputs[:] = stored
    if kind == "rows":
        inputs = LazySubset(stored, np.arange(20))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))[:19]
    seen = list(stream(inputs, order, 6, CPU))
    assert [len(rows) for rows in seen] == [6, 6, 6, 1]
    assert np.array_equal(torch.cat(seen), stored[order])
    assert np.array_equal(take(inputs, order[:2], CPU), stored[order[:2]])
    assert np.array_equal(on_device(inputs, CPU), stored)
    assert list(stream(inputs, order[:0], 6, CPU)) == []


class Slow:
    """Inputs that count what is read of them and can fail."""

    dtype = np.dtype(np.float32)
    shape = (100, 1)

    def __init__(self, fail_at: int = -1) -> None:
        self.reads, self.fail_at = 0, fail_at

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        self.reads += 1
        if self.reads == self.fail_at:
            raise OSError("the disk is gone")
        return index[:, None].astype(np.float32)


def test_streaming_reads_a_few_batches_ahead_and_stops_when_left() -> None:
    before = set(threading.enumerate())
    slow = Slow()
    epoch = stream(slow, torch.arange(100), 10, CPU)
    assert next(epoch)[:, 0].tolist() == list(range(10))
    epoch.close()
    assert 1 <= slow.reads <= 4
    assert set(threading.enumerate()) <= before


def test_an_error_of_the_reader_reaches_the_training() -> None:
    epoch = stream(Slow(fail_at=2), torch.arange(100), 10, CPU)
    next(epoch)
    with pytest.raises(OSError, match="the disk is gone"):
        next(epoch)


def test_text_has_no_batches() -> None:
    with pytest.raises(ValueError, match="turn text into features first"):
        on_device(np.array(["a"], object), CPU)


def test_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Huge(Slow):
        shape = (2**40, 32)

    assert fits(np.zeros((2, 2)), CPU)
    assert fits(Slow(), CPU)
    assert not fits(Huge(), CPU)
    assert on_device(Huge(), CPU) is None
    read_only = np.zeros((3, 2), np.float32)
    read_only.flags.writeable = False
    assert copy_to(read_only, CPU).shape == (3, 2)  # torch would warn of it

    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")  # macOS

    monkeypatch.setattr("os.sysconf", unknown)
    assert not fits(Slow(), CPU)
    monkeypatch.delattr("os.sysconf")  # Windows
    assert not fits(Slow(), CPU)
    assert fits(np.zeros((2, 2)), CPU)


def test_what_torch_keeps_free_on_a_gpu_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [100]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free[0], 1000))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.__setitem__(0, 200))
    device = torch.device("cuda", 0)
    assert fits(np.zeros(50, np.uint8), device)
    assert free == [100]  # where it fits anyway, the next allocations stay fast
    assert fits(np.zeros(100, np.uint8), device)
    assert not fits(np.zeros(101, np.uint8), device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cpu_and_gpu_give_the_same_bits(dtype: torch.dtype) -> None:
    for shape in ((64, 32, 32, 3), (64, 28, 28, 1)):
        images, mean, flip, shift = some(shape)
        here = augment(images, mean=mean, flip=flip, shift=shift, dtype=dtype)
        moved = (t.cuda() for t in (images, mean, flip, shift))
        images, mean, flip, shift = moved
        there = augment(images, mean=mean, flip=flip, shift=shift, dtype=dtype)
        assert torch.equal(here, there.cpu())
        assert there.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.gpu
def test_augment_inside_a_cuda_graph() -> None:
    images, mean, flip, shift = (t.cuda() for t in some((64, 32, 32, 3)))
    index = torch.arange(16, device="cuda")

    def step() -> torch.Tensor:
        rows = images.index_select(0, index)
        return augment(rows, mean=mean, flip=flip[index], shift=shift[index])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # where the tensors above are made
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for first in (0, 16, 48):
        index.copy_(torch.arange(first, first + 16))
        graph.replay()
        assert torch.equal(out, step())


@pytest.mark.gpu
def test_batches_on_the_gpu() -> None:
    stored = np.random.default_rng(0).integers(0, 256, (100, 4, 4, 3), np.uint8)
    inputs, device = LazySubset(stored, np.arange(100)), torch.device("cuda")
    assert np.array_equal(on_device(inputs, device).cpu(), stored)  # type: ignore[union-attr]
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    for index, rows in zip(order.split(32), stream(inputs, order, 32, device), strict=True):
        assert rows.is_cuda
        assert np.array_equal(rows.cpu(), stored[index])


@pytest.mark.parametrize(
    ("names", "limit", "resident"),
    [
        (("memory.max", "memory.current"), "5000", False),
        (("memory.max", "memory.current"), "50000", True),
        (("memory.max", "memory.current"), "max", True),
        (("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"), "5000", False),
    ],
)
def test_a_container_is_as_large_as_its_limit(
    names: tuple[str, str], limit: str, resident: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells the memory of the whole machine; a copy of that size gets the container killed."""
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 20)
    monkeypatch.setattr(batches_module, "_CGROUP", tmp_path)
    for name, text in zip(names, (limit, "3000"), strict=True):
        write_atomic(tmp_path / name, f"{text}\n")
    rows = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(2000, 1))
    assert fits(rows, torch.device("cpu")) is resident
