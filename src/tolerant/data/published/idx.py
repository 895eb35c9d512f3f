"""MNIST's layout: gzipped idx files of pictures and of labels."""

from __future__ import annotations

import gzip
import os
import struct
from typing import TYPE_CHECKING

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.published.download import Download, Root
from tolerant.data.read_errors import READ_ERRORS, reason
from tolerant.data.readers.npz import MAX_RATIO

if TYPE_CHECKING:
    from tolerant.data.cards import Card

FILES = tuple(
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
        raise ValueError(f"{path} is not a readable idx file: {reason(error)}") from error
    return np.frombuffer(data, np.uint8).reshape(shape), magic + header + data


def idx_download(
    name: str, title: str, url: str, *sums: tuple[str, str], size_mb: int, licence: str
) -> Download:
    """The four files below `url`; `sums`: md5 of what is in each of `FILES`, and of the file itself."""
    contents = {file: content for file, (content, _) in zip(FILES, sums, strict=True)}
    remotes = {f"{url}/{file}": packed for file, (_, packed) in zip(FILES, sums, strict=True)}
    return Download(name, title, name, contents, remotes, size_mb, licence)


def load_idx(card: Card, split: str, root: Root) -> NoisyDataset:
    """Grey pictures from the files of one split."""
    (download,) = card.downloads
    arrays = []
    for file in FILES[:2] if split == "train" else FILES[2:]:
        path = download.find(file, root)
        array, content = read_idx(path)
        download.check(path, content)
        arrays.append(array)
    images, labels = arrays[0][..., None].copy(), arrays[1].astype(np.int64)
    return NoisyDataset(images, labels, labels.copy(), card.class_names, kind="image")
