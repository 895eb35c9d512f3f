"""Picture files with a label each: those that a table lists, or a folder holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.labels import check_columns, encode_labels, labelled_rows
from tolerant.data.readers.pictures import Size, read_pictures
from tolerant.data.readers.row_files import read_frame


def load_listed(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    file: str = "file",
    label: str = "label",
    group: str | None = None,
    size: Size = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
    skip_unlabelled: bool = False,
    at_most: int | None = None,
) -> NoisyDataset:
    """A data set from a table with a picture (relative to the table) and its label in each row.

    ``group`` is the column that says which pictures belong together (`NoisyDataset.groups`).
    """
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, file=file)
    rows = labelled_rows(path, frame, label=label, id=None, group=group, skip_unlabelled=skip_unlabelled)
    names, files = _files(path, rows.frame, file)
    return load_pictures(
        path, files, rows.words, names, size, class_names, min_per_class, rows.groups, at_most
    )


def read_listed(path: Path, encoder: InputEncoder, *, file: str = "file") -> Unlabelled:
    """The pictures that a table lists."""
    frame = read_frame(path)
    check_columns(frame, path, file=file)
    names, files = _files(path, frame, file)
    return read_new_pictures(path, files, names, encoder)


def load_pictures(
    source: Any,
    files: list[Path],
    labels: list[str],
    ids: list[str],
    size: Size,
    class_names: Sequence[str] | None,
    min_per_class: int,
    groups: np.ndarray | None = None,
    at_most: int | None = None,
) -> NoisyDataset:
    """A data set of the pictures that can be read, each with its label."""
    inputs, kept = read_pictures(source, files, ids, size, at_most)
    words = [labels[row] for row in kept]
    lost = sorted(set(labels) - set(words))
    if lost:
        raise ValueError(f"{source}: no picture of class {lost[0]!r} can be read")
    given, names = encode_labels(words, source, class_names, min_per_class)
    paths = np.array([str(files[row]) for row in kept])
    row_ids = np.array([ids[row] for row in kept])
    groups = None if groups is None else groups[kept]
    return NoisyDataset(inputs, given, None, names, row_ids, "image", files=paths, groups=groups)


def read_new_pictures(source: Any, files: list[Path], ids: list[str], encoder: InputEncoder) -> Unlabelled:
    """The pictures that can be read, resized to what the model takes."""
    height, width, *_ = encoder.picture_shape or encoder.shape
    inputs, kept = read_pictures(source, files, ids, (height, width))
    return Unlabelled(inputs, np.array([ids[row] for row in kept]), "image")


def _files(path: str | os.PathLike[str], frame: Any, column: str) -> tuple[list[str], list[Path]]:
    names = [str(name) for name in frame[column]]
    return names, [Path(path).parent / name for name in names]
