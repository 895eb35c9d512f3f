"""Pictures on disk: a folder with a sub-folder for each class, or a table of files and labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.frame import check_columns, group_numbers, label_words, labelled_rows, read_frame
from tolerant.data.labels import encode_labels
from tolerant.data.pictures import Size, read_pictures

# HEIC needs the plugin pillow-heif; without it those files are reported as left out, not passed over.
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".avif", ".heic", ".heif"),
)


def load_folder(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    size: Size = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
) -> NoisyDataset:
    """A data set from a folder of pictures: the name of a sub-folder is the label of what is in it.

    Pictures that cannot be read are named in a warning and left out. If all are grey they have one
    channel, else three. They are turned the way the camera was held, and transparent ones are laid on
    white. Of 16-bit values the upper eight bits are used, of an animation the first picture.

    Args:
        path: the folder.
        split: take the classes from this sub-folder (train, test ...).
        size: resize every picture to this (height, width), or to a square; otherwise all must agree.
        class_names: those of the training rows, for rows that come later.
        min_per_class: fewest pictures a class may have.
    """
    path = Path(path)
    folder = path if split is None else path / split
    if not folder.is_dir():
        raise ValueError(
            f"{path} is not a folder" if split is None else f"split {split!r} is not a folder in {path}"
        )
    classes = sorted(entry for entry in folder.iterdir() if is_class(entry))
    if not classes:
        raise ValueError(
            f"{folder} has no sub-folders; it needs one per class, or give a CSV file that lists "
            "the pictures in its columns file and label"
        )
    if split is None and {entry.name for entry in classes} <= {"train", "test", "val", "valid"}:
        raise ValueError(f"{folder} is divided into {classes[0].name} ...: pass split='train'")
    loose = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and is_picture(entry.name))
    if loose:
        warnings.warn(
            f"{len(loose)} pictures in {folder} lie in no class folder and are left out (first: {loose[0]})",
            stacklevel=3,
        )
    of_class = {entry: find_pictures(entry) for entry in classes}
    if empty := [str(entry) for entry, found in of_class.items() if not found]:
        what = f"class folder {empty[0]} has" if len(empty) == 1 else f"class folders {', '.join(empty)} have"
        raise ValueError(f"{what} no pictures; remove {'it' if len(empty) == 1 else 'them'} or put some in")
    files = [file for found in of_class.values() for file in found]
    labels = [readable(entry.name) for entry, found in of_class.items() for _ in found]
    ids = [readable(file.relative_to(folder).as_posix()) for file in files]
    return _load_files(folder, files, labels, ids, size, class_names, min_per_class)


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
) -> NoisyDataset:
    """A data set from a table with a picture (relative to the table) and its label in each row.

    ``group`` is the column that says which pictures belong together (`NoisyDataset.groups`).
    """
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, file=file, label=label, group=group)
    if skip_unlabelled:
        frame = frame.iloc[labelled_rows(frame, label, path)]
    names = [str(name) for name in frame[file]]
    labels = label_words(frame, label, path)
    files = [Path(path).parent / name for name in names]
    groups = None if group is None else group_numbers(frame, group, label, path)
    return _load_files(path, files, labels, names, size, class_names, min_per_class, groups)


def find_pictures(folder: Path) -> list[Path]:
    """All pictures in `folder` and below, sorted; hidden folders (thumbnails) are passed over."""
    found = []
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(base) / name for name in names if is_picture(name)]
    return sorted(found)


def readable(name: str) -> str:
    r"""A name that can be printed and stored: bytes that are not UTF-8 (an old archive's) become `\xe9`.

    >>> readable(os.fsdecode(b"caf\xe9.png"))
    'caf\\xe9.png'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_picture(name: str) -> bool:
    """By its ending; a name that starts with a dot is a system's own file."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def is_class(entry: Path) -> bool:
    """A folder, or a link to one, that is not hidden."""
    return entry.is_dir() and not entry.name.startswith(".")


def _load_files(
    source: Any,
    files: list[Path],
    labels: list[str],
    ids: list[str],
    size: Size,
    class_names: Sequence[str] | None,
    min_per_class: int,
    groups: np.ndarray | None = None,
) -> NoisyDataset:
    inputs, kept = read_pictures(source, files, ids, size)
    words = [labels[row] for row in kept]
    lost = sorted(set(labels) - set(words))
    if lost:
        raise ValueError(f"{source}: no picture of class {lost[0]!r} can be read")
    given, names = encode_labels(words, source, class_names, min_per_class)
    paths = np.array([str(files[row]) for row in kept])
    row_ids = np.array([ids[row] for row in kept])
    groups = None if groups is None else groups[kept]
    return NoisyDataset(inputs, given, None, names, row_ids, "image", files=paths, groups=groups)
