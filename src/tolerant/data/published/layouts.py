"""The layouts of published sets: MNIST's idx files, CIFAR's binary files, scikit-learn's digits."""

from __future__ import annotations

import gzip
import os
import struct
from typing import TYPE_CHECKING

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.published.local_files import Root
from tolerant.data.read_errors import READ_ERRORS, reason
from tolerant.data.readers.npz import MAX_RATIO, read_npz
from tolerant.extras import extra

if TYPE_CHECKING:
    from tolerant.data.published_sets import Card

# Of MNIST and sets like it: gzipped idx files of pictures and of labels.
IDX_FILES = tuple(
    f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
)


def read_idx(path: str | os.PathLike[str]) -> tuple[np.ndarray, bytes]:
    """The uint8 array of a gzipped idx file, and the bytes it came from."""
    try:
        with gzip.open(path) as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:3] != b"\0\0\x08" or magic[3] > 4:
                raise ValueError("it does not start like an idx file of bytes")
            header = file.read(4 * magic[3])
            shape = struct.unpack(f">{magic[3]}I", header)
            size = int(np.prod(shape, dtype=object))
            if size > MAX_RATIO * os.path.getsize(path):
                raise ValueError(f"its header claims {size} bytes, more than the file can hold")
            data = file.read(size)
            if len(data) != size or file.read(1):
                raise ValueError(f"its header claims {size} bytes of data, which it does not have")
    except FileNotFoundError:
        raise
    except (*READ_ERRORS, OSError) as error:
        raise ValueError(
            f"{path} is not a readable idx file: {reason(error)}. Delete it and get it again: tolerant "
            "download"
        ) from error
    return np.frombuffer(data, np.uint8).reshape(shape), magic + header + data


def load_idx(card: Card, split: str, root: Root) -> NoisyDataset:
    """Grey pictures from the files of one split."""
    (download,) = card.downloads
    arrays = []
    for file in IDX_FILES[:2] if split == "train" else IDX_FILES[2:]:
        path = download.find(file, root)
        array, content = read_idx(path)
        download.check(path, content)
        arrays.append(array)
    images, labels = arrays[0][..., None].copy(), arrays[1].astype(np.int64)
    return NoisyDataset(images, labels, labels.copy(), card.class_names, kind="image")


def read_records(path: str | os.PathLike[str], label_bytes: int) -> np.ndarray:
    """The rows of a CIFAR binary file, uint8 (N, label_bytes + 3072): labels, then R, G, B."""
    length = label_bytes + 3072
    size = os.path.getsize(path)
    if size == 0 or size % length:
        raise ValueError(
            f"{path} is incomplete: {size} bytes are not whole rows of {length}. Delete it and get it again: "
            "tolerant download"
        )
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
    card: Card, split: str, root: Root, *, given: str, true: str = "clean", **label_bytes: int
) -> NoisyDataset:
    """CIFAR with labels that people gave, by the names of the label arrays. The test split is clean."""
    clean = load_cifar(card, split, root, **label_bytes)
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


def load_digits(card: Card, split: str, root: Root) -> NoisyDataset:
    """scikit-learn's own, grey and 8 x 8; a fifth of them, drawn once and for all, is the test split."""
    bunch = extra("sklearn.datasets").load_digits()
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(bunch.target))
    num_test = len(order) // 5
    index = np.sort(order[num_test:] if split == "train" else order[:num_test])
    images = np.rint(bunch.images[index] * (255 / 16)).astype(np.uint8)[..., None]  # the originals are 0..16
    labels = bunch.target[index].astype(np.int64)
    return NoisyDataset(images, labels, labels.copy(), card.class_names, index, "image")
