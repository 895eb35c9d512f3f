"""CIFAR-10 and CIFAR-100 from their binary files, and the human labels of CIFAR-N."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.published.download import Root
from tolerant.data.readers.npz import read_npz

if TYPE_CHECKING:
    from tolerant.data.cards import Card


def read_records(path: str | os.PathLike[str], label_bytes: int) -> np.ndarray:
    """The rows of a CIFAR binary file, uint8 (N, label_bytes + 3072): labels, then R, G, B."""
    length = label_bytes + 3072
    size = os.path.getsize(path)
    if size == 0 or size % length:
        raise ValueError(f"{path} is incomplete: {size} bytes are not whole rows of {length}")
    return np.fromfile(path, np.uint8).reshape(-1, length)


def load_cifar(
    card: Card, split: str, root: Root, *, label_bytes: int = 1, label_byte: int = 0
) -> NoisyDataset:
    """Pictures with the byte of each record's labels that holds these classes."""
    download = card.downloads[0]
    files = [file for file in download.files if ("test" in file) == (split == "test")]
    paths = [download.find(file, root) for file in files]
    num_rows = sum(path.stat().st_size for path in paths) // (label_bytes + 3072)
    images = np.empty((num_rows, 32, 32, 3), np.uint8)
    labels = np.empty(num_rows, np.int64)
    first = 0
    for path in paths:
        records = read_records(path, label_bytes)
        download.check(path, records)
        rows = slice(first, first + len(records))
        labels[rows] = records[:, label_byte]
        _channels_last(records[:, label_bytes:].reshape(-1, 3, 32, 32), images[rows])
        first = rows.stop
    return NoisyDataset(images, labels, labels.copy(), card.class_names, kind="image")


def load_cifar_n(
    card: Card,
    split: str,
    root: Root,
    *,
    given: str,
    true: str = "clean",
    label_bytes: int = 1,
    label_byte: int = 0,
) -> NoisyDataset:
    """CIFAR with labels that people gave, by the names of the label arrays. The test split is clean."""
    clean = load_cifar(card, split, root, label_bytes=label_bytes, label_byte=label_byte)
    if split == "test":
        return clean
    download = card.downloads[1]
    (file,) = download.files
    path = download.find(file, root)
    labels = read_npz(path)
    download.check(path, b"".join(labels[key].tobytes() for key in sorted(labels)))
    if not np.array_equal(labels[true], clean.given_labels):
        raise ValueError(f"{file}: its clean labels are not those of the images, row by row")
    return clean.with_given_labels(labels[given])


def _channels_last(planes: np.ndarray, images: np.ndarray) -> None:
    # Plane by plane in blocks that stay in the cache: a sixth of the time of a transpose.
    for start in range(0, len(planes), 64):
        block = slice(start, start + 64)
        for channel in range(3):
            images[block, :, :, channel] = planes[block, channel]
