"""A folder of pictures with a sub-folder for each class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.listed import load_pictures, read_new_pictures
from tolerant.data.readers.pictures import Sides, Size
from tolerant.data.readers.row_files import SUFFIXES as TABLES
from tolerant.data.readers.walk import SUFFIXES, Unused, find_pictures, readable, why_unused


def load_folder(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    size: Size = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
    at_most: Sides = None,
) -> NoisyDataset:
    """A data set from a folder of pictures: the name of a sub-folder is the label of what is in it.

    Whatever is not used is counted in a warning, by reason: pictures that cannot be read, other files,
    folders without permission, links to folders within a class. If all are grey they have one channel, else
    three. They are turned the way the camera was held, and transparent ones are laid on white. Of
    16-bit values the upper eight bits are used, of an animation the first picture.

    Args:
        path: the folder.
        split: take the classes from this sub-folder (train, test ...).
        size: resize every picture to this (height, width), or to a square; without, pictures that
            differ in size become squares of at most 64 pixels, and a warning says so.
        class_names: those of the training rows, for rows that come later.
        min_per_class: fewest pictures a class may have.
        at_most: without a size, pictures that differ or are larger become squares of this many pixels; of
            several numbers the first that is no smaller than the pictures, else the last.
    """
    path = Path(path)
    folder = path if split is None else path / split
    if not folder.is_dir():
        raise ValueError(
            f"{path} is not a folder" if split is None else f"split {split!r} is not a folder in {path}"
        )
    classes = sorted(entry for entry in folder.iterdir() if _is_class(entry))
    if not classes:
        tables = sorted(entry for entry in folder.iterdir() if entry.name.lower().endswith(TABLES))
        hint = f". Was {tables[0]} meant?" if tables else ""
        raise ValueError(
            f"{folder} has no sub-folders; it needs one per class, or give a CSV file that lists "
            f"the pictures in its columns file and label{hint}"
        )
    if split is None and {entry.name for entry in classes} <= {"train", "test", "val", "valid"}:
        raise ValueError(f"{folder} is divided into {classes[0].name} ...: pass split='train'")
    unused = Unused(folder)
    for entry in folder.iterdir():
        if entry not in classes:
            why = "hidden folders" if entry.is_dir() else why_unused(entry)
            unused.add(entry, why or "pictures that lie in no class folder")
    of_class = {entry: find_pictures(entry, unused) for entry in classes}
    unused.warn()
    if empty := [str(entry) for entry, found in of_class.items() if not found]:
        what = f"class folder {empty[0]} has" if len(empty) == 1 else f"class folders {', '.join(empty)} have"
        raise ValueError(f"{what} no pictures; remove {'it' if len(empty) == 1 else 'them'} or put some in")
    files = [file for found in of_class.values() for file in found]
    labels = [readable(entry.name) for entry, found in of_class.items() for _ in found]
    ids = [readable(file.relative_to(folder).as_posix()) for file in files]
    return load_pictures(folder, files, labels, ids, size, class_names, min_per_class, at_most=at_most)


def read_folder(path: Path, encoder: InputEncoder, *, split: str | None = None) -> Unlabelled:
    """All pictures in a folder and below, in sub-folders or not, resized to what the model takes."""
    folder = path / split if split else path
    # A class may be a link to a folder, as in training.
    links = {entry for entry in folder.iterdir() if entry.is_symlink() and _is_class(entry)}
    unused = Unused(folder)
    found = sorted(picture for top in (folder, *links) for picture in find_pictures(top, unused, links))
    unused.warn()
    if not found:
        raise ValueError(f"{folder} has no pictures ({', '.join(SUFFIXES[:4])} ...)")
    names = [readable(picture.relative_to(folder).as_posix()) for picture in found]
    return read_new_pictures(folder, found, names, encoder)


def load_picture(path: Path) -> NoisyDataset:
    """Refused: a picture alone has no label."""
    raise ValueError(
        f"{path} is one picture, which has no label to learn from. Name the folder that has a sub-folder for "
        "each class"
    )


def read_picture(path: Path, encoder: InputEncoder) -> Unlabelled:
    """One picture file."""
    return read_new_pictures(path, [path], [readable(path.name)], encoder)


def _is_class(entry: Path) -> bool:
    """A folder, or a link to one, that is not hidden."""
    return entry.is_dir() and not entry.name.startswith(".")
