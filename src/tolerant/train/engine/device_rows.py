"""Rows as the model wants them: on the device where they fit, read batch by batch where not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tolerant.data.augment import augment, draw
from tolerant.data.batches import Batches
from tolerant.data.dataset import Inputs, NoisyDataset
from tolerant.train.engine import ranks as distributed
from tolerant.train.engine.recipe import Recipe

_CHUNK = 4096  # rows that `Preprocess.fit` reads at once,
_CHUNK_CELLS = 1 << 24  # with at most so many numbers: their squares in float64 take 128 MiB


@dataclass(frozen=True, eq=False)
class Preprocess:
    """What is subtracted and multiplied, measured on the training rows: ``x * scale - mean``."""

    kind: str
    mean: np.ndarray
    """float32: (H, W, C) for images, (D,) for tables."""
    scale: np.ndarray
    """float32: one number for images, (D,) for tables."""

    @classmethod
    def fit(cls, inputs: Inputs, kind: str, recipe: Recipe) -> Preprocess:
        """Measure ``inputs``; pixels are added as whole numbers, so the order of adding does not matter."""
        num_rows, shape = len(inputs), tuple(inputs.shape[1:])
        total = np.zeros(shape, np.int64 if kind == "image" else np.float64)
        squares = np.zeros(shape, np.float64)
        with_std = recipe.scale == "std" or (recipe.scale == "auto" and kind == "table")
        for chunk in _chunks(inputs, kind):
            total += chunk.sum(0, dtype=total.dtype)
            if with_std:
                squares += np.square(chunk, dtype=np.float64).sum(0)
        mean = total / num_rows
        variance = np.maximum(squares / num_rows - mean**2, 0.0)
        if not with_std:
            scale = np.full(shape if kind == "table" else (), 1.0 if kind == "table" else 1 / 255)
        elif kind == "table":
            # A constant column has no deviation to divide by; rounding leaves it a tiny one.
            constant = variance <= 1e-12 * mean**2
            scale = 1.0 / np.sqrt(np.where(constant | (variance == 0), 1.0, variance))
        else:
            # One deviation for all pixels and channels: colours and contrast are kept.
            scale = 1.0 / np.sqrt(np.maximum(squares.mean() / num_rows - mean.mean() ** 2, 1e-6))
        if recipe.center == "channel" and kind == "image":
            mean = np.broadcast_to(mean.mean((0, 1)), shape)
        mean = np.zeros(shape) if recipe.center == "none" else mean * scale
        return cls(kind, mean.astype(np.float32), np.asarray(scale, np.float32))


class Rows:
    """Inputs, labels and random draws of one split, ready to be asked for batches.

    Resident rows lie on the device (images as uint8, tables already scaled) and a batch is a gather
    there. Others are read a few batches ahead of the training; their row numbers stay on the host.
    """

    def __init__(
        self,
        dataset: NoisyDataset,
        labels: np.ndarray,
        preprocess: Preprocess,
        device: torch.device,
        *,
        bf16: bool,
        sample_weight: np.ndarray | None = None,
    ) -> None:
        self.sample_weight: Tensor | None = None
        if sample_weight is not None:  # of mean 1, so that it changes no learning rate
            of_mean_1 = (sample_weight / np.mean(sample_weight)).astype(np.float32)
            self.sample_weight = torch.from_numpy(of_mean_1).to(device)
        self.device, self.kind = device, preprocess.kind
        self.pixels = math.prod(preprocess.mean.shape[:2]) if self.kind == "image" else 1
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.labels = torch.from_numpy(np.ascontiguousarray(labels)).to(device)
        self._mean = torch.from_numpy(preprocess.mean.copy()).to(device)
        self._scale = torch.from_numpy(preprocess.scale.copy()).to(device)
        self._image_scale = float(preprocess.scale) if self.kind == "image" else 1.0
        self._batches = Batches(dataset.inputs, device)
        self._resident = self._batches.tensor
        if self._resident is not None and self.kind != "image":
            self._resident = self._scaled(self._resident)
        self.index_device = torch.device("cpu") if self._resident is None else device
        self.draws: dict[str, Tensor] = {}
        self.ranks = distributed.current()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def resident(self) -> bool:
        return self._resident is not None

    def make_draws(self, recipe: Recipe) -> None:
        """Room for the epoch's flips and shifts, one for each row: pruning a row changes no other's."""
        if self.kind == "image" and recipe.augment != "none":
            draws = _draw(len(self), recipe, torch.Generator())
            self.draws = {name: d.to(self.index_device) for name, d in draws.items()}

    def draw_augmentation(self, recipe: Recipe, generator: torch.Generator) -> dict[str, Tensor]:
        """An epoch's flips and shifts for every row, on the host; none where `make_draws` made no room."""
        return _draw(len(self), recipe, generator) if self.draws else {}

    def batch(self, index: Tensor, read: Tensor | None) -> Tensor:
        """Training inputs of the rows ``index``, augmented; ``read``: from `read_ahead`."""
        if self._resident is None:
            raw = self._batches.take(index) if read is None else read
        else:
            raw = self._resident.index_select(0, index)
        return self._ready(raw, {name: d[index] for name, d in self.draws.items()})

    def read_ahead(self, order: Tensor, size: int) -> Iterator[Tensor]:
        """For rows that are not resident: those of ``order``, ``size`` at a time."""
        for _, raw in self._batches.epoch(order, size):
            yield raw

    def in_order(self, size: int, ranks: distributed.Ranks | None = None) -> Iterator[tuple[slice, Tensor]]:
        """All rows as they lie, or one rank's share of them, un-augmented: (which, inputs)."""
        ranks = ranks or distributed.Ranks()
        first = range(ranks.rank * size, len(self), ranks.size * size)
        parts = [slice(start, min(start + size, len(self))) for start in first]
        if self._resident is not None:
            for part in parts:
                yield part, self._ready(self._resident[part], {})
        else:
            order = torch.arange(len(self), device="cpu")
            order = order[order // size % ranks.size == ranks.rank]
            for part, raw in zip(parts, self.read_ahead(order, size), strict=True):
                yield part, self._ready(raw, {})

    def _ready(self, raw: Tensor, draws: dict[str, Tensor]) -> Tensor:
        """(B, C, H, W) channels-last, or (B, D)."""
        if self.kind != "image":
            return self._scaled(raw) if self._resident is None else raw
        on_device = {name: d.to(self.device) for name, d in draws.items()}
        return augment(
            raw,
            flip=on_device.get("flip"),
            shift=on_device.get("shift"),
            mean=self._mean,
            scale=self._image_scale,
            dtype=self.dtype,
        )

    def _scaled(self, raw: Tensor) -> Tensor:
        return (raw * self._scale - self._mean).to(self.dtype)


def _draw(num_rows: int, recipe: Recipe, generator: torch.Generator) -> dict[str, Tensor]:
    """Flips and shifts for every row, drawn on the CPU: the same on every device."""
    flip, shift = draw(num_rows, generator)  # always both: shifts stay the same without flips
    draws = {}
    if "flip" in recipe.augment:
        draws["flip"] = flip
    if "crop" in recipe.augment:
        draws["shift"] = shift
    return draws


def _chunks(inputs: Inputs, kind: str) -> Iterator[np.ndarray]:
    size = _CHUNK
    if kind == "image":  # sums of whole numbers are the same however rows are cut; a table's sums are not
        size = max(1, min(size, _CHUNK_CELLS // math.prod(inputs.shape[1:])))
    for start in range(0, len(inputs), size):
        yield np.asarray(inputs[np.arange(start, min(start + size, len(inputs)))])
