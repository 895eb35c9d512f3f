"""CIFAR-10 and CIFAR-100 from their binary files, and the human labels of CIFAR-N."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tolerant import class_names
from tolerant.data.arrays import read_npz
from tolerant.data.dataset import NoisyDataset, check_split
from tolerant.data.published import PUBLISHED, check_content, find_file

_FILES = {
    ("cifar10", "train"): [f"data_batch_{i}.bin" for i in range(1, 6)],
    ("cifar10", "test"): ["test_batch.bin"],
    ("cifar100", "train"): ["train.bin"],
    ("cifar100", "test"): ["test.bin"],
}

Root = str | os.PathLike[str] | None


def read_records(path: str | os.PathLike[str], label_bytes: int) -> np.ndarray:
    """The rows of a CIFAR binary file, uint8 (N, label_bytes + 3072): labels, then R, G, B."""
    length = label_bytes + 3072
    size = os.path.getsize(path)
    if size == 0 or size % length:
        raise ValueError(f"{path} is incomplete: {size} bytes are not whole rows of {length}")
    return np.fromfile(path, np.uint8).reshape(-1, length)


def load_cifar10(split: str = "train", root: Root = None) -> NoisyDataset:
    """CIFAR-10: 50,000 or 10,000 images of 32 x 32 in ten classes."""
    images, labels = _load("cifar10", split, root, label_bytes=1)
    return _clean(images, labels[:, 0], class_names.CIFAR10)


def load_cifar100(split: str = "train", root: Root = None, *, coarse: bool = False) -> NoisyDataset:
    """CIFAR-100 with its 100 fine or 20 coarse classes."""
    images, labels = _load("cifar100", split, root, label_bytes=2)
    if coarse:
        return _clean(images, labels[:, 0], class_names.CIFAR100_COARSE)
    return _clean(images, labels[:, 1], class_names.CIFAR100)


def load_cifar10n(split: str = "train", root: Root = None, *, labels: str) -> NoisyDataset:
    """CIFAR-10 with labels people gave: aggre, random1, random2, random3 or worse.

    The test split is clean.
    """
    clean = load_cifar10(split, root)
    return clean if split == "test" else _with_human(clean, "cifar10n", labels, "clean", root)


def load_cifar100n(split: str = "train", root: Root = None, *, coarse: bool = False) -> NoisyDataset:
    """CIFAR-100 with labels people gave. The test split is clean."""
    clean = load_cifar100(split, root, coarse=coarse)
    ending = "_coarse" if coarse else ""
    return (
        clean
        if split == "test"
        else _with_human(clean, "cifar100n", f"noisy{ending}", f"clean{ending}", root)
    )


def read_human_labels(name: str, path: Path) -> dict[str, np.ndarray]:
    """The label arrays of cifar10n_labels.npz or cifar100n_labels.npz, checked as a whole."""
    arrays = read_npz(path)
    content = b"".join(arrays[key].tobytes() for key in sorted(arrays))
    check_content(name, path, content)
    return arrays


def _load(name: str, split: str, root: Root, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    check_split(split)
    paths = [find_file(name, file, root) for file in _FILES[name, split]]
    num_rows = sum(path.stat().st_size for path in paths) // (label_bytes + 3072)
    images = np.empty((num_rows, 32, 32, 3), np.uint8)
    labels = np.empty((num_rows, label_bytes), np.uint8)
    first = 0
    for path in paths:
        records = read_records(path, label_bytes)
        check_content(name, path, records)
        rows = slice(first, first + len(records))
        labels[rows] = records[:, :label_bytes]
        _channels_last(records[:, label_bytes:].reshape(-1, 3, 32, 32), images[rows])
        first = rows.stop
    return images, labels


def _channels_last(planes: np.ndarray, images: np.ndarray) -> None:
    # Plane by plane in blocks that stay in the cache: a sixth of the time of a transpose.
    for start in range(0, len(planes), 64):
        block = slice(start, start + 64)
        for channel in range(3):
            images[block, :, :, channel] = planes[block, channel]


def _clean(images: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> NoisyDataset:
    labels = labels.astype(np.int64)
    return NoisyDataset(images, labels, labels.copy(), names, kind="image")


def _with_human(clean: NoisyDataset, name: str, noisy_key: str, clean_key: str, root: Root) -> NoisyDataset:
    (file,) = PUBLISHED[name].files
    labels = read_human_labels(name, find_file(name, file, root))
    if not np.array_equal(labels[clean_key], clean.given_labels):
        raise ValueError(f"{file}: its clean labels are not those of the images, row by row")
    return clean.with_given_labels(labels[noisy_key])
