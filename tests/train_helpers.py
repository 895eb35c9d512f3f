"""Small data sets whose classes a small network tells apart, with some labels wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tolerant.data import NoisyDataset
from tolerant.train import Recipe

CLASSES = ("a", "b", "c", "d")


def _labels(rng: np.random.Generator, num_rows: int, noise_rate: float) -> tuple[Any, Any]:
    true = rng.integers(0, 4, num_rows)
    moved = (true + rng.integers(1, 4, num_rows)) % 4
    return np.where(rng.random(num_rows) < noise_rate, moved, true), true


def pictures(num_rows: int = 330, noise_rate: float = 0.3, seed: int = 0, size: int = 16) -> NoisyDataset:
    """A bright band whose height and colour depend on the class."""
    rng = np.random.default_rng(seed)
    given, true = _labels(rng, num_rows, noise_rate)
    inputs = rng.integers(0, 60, (num_rows, size, size, 3)).astype(np.uint8)
    for row, label in enumerate(true):
        inputs[row, 2 * label : 2 * label + 6, :, label % 3] += 120
    return NoisyDataset(inputs, given, true, CLASSES, None, "image")


def table(num_rows: int = 330, noise_rate: float = 0.3, seed: int = 0) -> NoisyDataset:
    """Four clouds of points."""
    rng = np.random.default_rng(seed)
    given, true = _labels(rng, num_rows, noise_rate)
    inputs = rng.normal(size=(num_rows, 6)) + 4 * np.eye(4, 6)[true]
    return NoisyDataset(inputs.astype(np.float32), given, true, CLASSES)


def quick(**changes: Any) -> Recipe:
    """A recipe of a few short epochs, in fp32."""
    recipe = Recipe(epochs=3, batch_size=64, lr=0.1, milestones=(), precision="fp32", score_every=1)
    return replace(recipe, **changes)
