"""scikit-learn's handwritten digits: they come with the package, so they need no network."""

from __future__ import annotations

import numpy as np

from tolerant.data.dataset import NoisyDataset, check_split
from tolerant.extras import extra


def load_digits(split: str = "train") -> NoisyDataset:
    """1,797 grey images of 8 x 8; a fifth of them, drawn once and for all, is the test split.

    >>> len(load_digits("train")), len(load_digits("test"))
    (1438, 359)
    """
    check_split(split)
    bunch = extra("sklearn.datasets").load_digits()
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(bunch.target))
    num_test = len(order) // 5
    index = np.sort(order[num_test:] if split == "train" else order[:num_test])
    images = np.rint(bunch.images[index] * (255 / 16)).astype(np.uint8)[..., None]  # the originals are 0..16
    labels = bunch.target[index].astype(np.int64)
    names = tuple(str(digit) for digit in range(10))
    return NoisyDataset(images, labels, labels.copy(), names, index, "image")
