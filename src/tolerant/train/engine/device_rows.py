"""Rows as the model wants them: on the device where they fit, read batch by batch where not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from tolerant.data.augment import augment, draw
from tolerant.data.batches import on_device, stream, take
from tolerant.data.dataset import NoisyDataset
from tolerant.data.distort import distort, draw_distortion
from tolerant.data.standardise import Preprocess
from tolerant.train.engine.mixup import draw_shares
from tolerant.train.engine.ranks import Ranks, current_ranks
from tolerant.train.engine.recipe import Recipe

_WORDS = {"flip": "flip", "shift": "crop"}  # of a recipe's augment, by draw


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
        self.device, self.kind, self.num_classes = device, preprocess.kind, dataset.num_classes
        self.pixels = math.prod(preprocess.mean.shape[:2]) if self.kind == "image" else 1
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.labels = torch.from_numpy(np.ascontiguousarray(labels)).to(device)
        self._mean = torch.from_numpy(preprocess.mean.copy()).to(device)
        self._scale = torch.from_numpy(preprocess.scale.copy()).to(device)
        self._image_scale = float(preprocess.scale) if self.kind == "image" else 1.0
        self._inputs = dataset.inputs
        self._resident = on_device(dataset.inputs, device)
        if self._resident is not None and self.kind != "image":
            self._resident = self._scaled(self._resident)
        self.index_device = torch.device("cpu") if self._resident is None else device
        self.draws: dict[str, Tensor] = {}
        self.ranks = current_ranks()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def resident(self) -> bool:
        return self._resident is not None

    def make_draws(self, recipe: Recipe) -> None:
        """Room for an epoch's draws, one for each row: pruning a row changes no other's."""
        draws = self.draw(recipe, torch.Generator())
        self.draws = {name: d.to(self.index_device) for name, d in draws.items()}

    def draw(self, recipe: Recipe, generator: torch.Generator) -> dict[str, Tensor]:
        """An epoch's augmentation and shares of mixup for every row, drawn on the host: the same on every
        device."""
        draws: dict[str, Tensor] = {}
        if self.kind == "image" and recipe.augment == "strong":
            draws = draw_distortion(len(self), generator)
        elif self.kind == "image" and recipe.augment != "none":
            flip, shift = draw(len(self), generator)  # always both: shifts stay the same without flips
            drawn = {"flip": flip, "shift": shift}
            draws = {name: drawn[name] for name, word in _WORDS.items() if word in recipe.augment}
        if recipe.mixup:
            draws["share"] = draw_shares(len(self), recipe.mixup, generator)
        return draws

    def batch(self, index: Tensor, read: Tensor | None) -> Tensor:
        """Training inputs of the rows ``index``, augmented; ``read``: from `read_ahead`."""
        if self._resident is None:
            raw = take(self._inputs, index, self.device) if read is None else read
        else:
            raw = self._resident.index_select(0, index)
        return self._ready(raw, {name: d[index] for name, d in self.draws.items()})

    def read_ahead(self, order: Tensor, size: int) -> Iterator[Tensor]:
        """The rows ``order``, ``size`` at a time, read ahead; for rows that are not resident."""
        return stream(self._inputs, order, size, self.device)

    def in_order(self, size: int, ranks: Ranks | None = None) -> Iterator[tuple[slice, Tensor]]:
        """All rows as they lie, or one rank's share of them, un-augmented: (which, inputs)."""
        ranks = ranks or Ranks()
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
        drawn = {name: d.to(self.device) for name, d in draws.items()}
        flip, shift = drawn.get("flip"), drawn.get("shift")
        dtype = torch.float32 if "affine" in drawn else self.dtype
        x = augment(raw, flip=flip, shift=shift, mean=self._mean, scale=self._image_scale, dtype=dtype)
        if "affine" in drawn:
            x = distort(x, affine=drawn["affine"], colour=drawn["colour"], cover=drawn["cover"])
            x = x.to(self.dtype, memory_format=torch.channels_last)
        return x

    def _scaled(self, raw: Tensor) -> Tensor:
        return (raw * self._scale - self._mean).to(self.dtype)
