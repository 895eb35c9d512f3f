"""scikit-learn's handwritten digits: they come with the package, so they need no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.published.download import Root
from tolerant.extras import extra

if TYPE_CHECKING:
    from tolerant.data.cards import Card


def load_digits(card: Card, split: str, root: Root) -> NoisyDataset:
    """Grey pictures of 8 x 8; a fifth of them, drawn once and for all, is the test split."""
    bunch = extra("sklearn.datasets").load_digits()
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(bunch.target))
    num_test = len(order) // 5
    index = np.sort(order[num_test:] if split == "train" else order[:num_test])
    images = np.rint(bunch.images[index] * (255 / 16)).astype(np.uint8)[..., None]  # the originals are 0..16
    labels = bunch.target[index].astype(np.int64)
    return NoisyDataset(images, labels, labels.copy(), card.class_names, index, "image")
