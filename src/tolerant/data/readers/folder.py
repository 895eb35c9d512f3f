"""A folder of pictures with a sub-folder for each class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.listed import load_pictures, read_new_pictures
from tolerant.data.readers.pictures import Size
from tolerant.hints import warn_caller

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
    at_most: int | None = None,
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
        at_most: without a size, pictures that differ or are larger become squares of this many pixels.
    """
    path = Path(path)
    folder = path if split is None else path / split
    if not folder.is_dir():
        raise ValueError(
            f"{path} is not a folder" if split is None else f"split {split!r} is not a folder in {path}"
        )
    classes = sorted(entry for entry in folder.iterdir() if _is_class(entry))
    if not classes:
        raise ValueError(
            f"{folder} has no sub-folders; it needs one per class, or give a CSV file that lists "
            "the pictures in its columns file and label"
        )
    if split is None and {entry.name for entry in classes} <= {"train", "test", "val", "valid"}:
        raise ValueError(f"{folder} is divided into {classes[0].name} ...: pass split='train'")
    loose = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and _is_picture(entry.name))
    if loose:
        warn_caller(
            f"{len(loose)} pictures in {folder} lie in no class folder and are left out (first: {loose[0]})"
        )
    of_class = {entry: _find_pictures(entry) for entry in classes}
    if empty := [str(entry) for entry, found in of_class.items() if not found]:
        what = f"class folder {empty[0]} has" if len(empty) == 1 else f"class folders {', '.join(empty)} have"
        raise ValueError(f"{what} no pictures; remove {'it' if len(empty) == 1 else 'them'} or put some in")
    files = [file for found in of_class.values() for file in found]
    labels = [_readable(entry.name) for entry, found in of_class.items() for _ in found]
    ids = [_readable(file.relative_to(folder).as_posix()) for file in files]
    return load_pictures(folder, files, labels, ids, size, class_names, min_per_class, at_most=at_most)


def read_folder(path: Path, encoder: InputEncoder, *, split: str | None = None) -> Unlabelled:
    """All pictures in a folder and below, in sub-folders or not, resized to what the model takes."""
    folder = path / split if split else path
    # A class may be a link to a folder, as in training.
    links = (entry for entry in folder.iterdir() if entry.is_symlink() and _is_class(entry))
    found = sorted(picture for top in (folder, *links) for picture in _find_pictures(top))
    if not found:
        raise ValueError(f"{folder} has no pictures ({', '.join(SUFFIXES[:4])} ...)")
    names = [_readable(picture.relative_to(folder).as_posix()) for picture in found]
    return read_new_pictures(folder, found, names, encoder)


def _find_pictures(folder: Path) -> list[Path]:
    """All pictures in `folder` and below, sorted; hidden folders (thumbnails) are passed over."""
    found = []
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(base) / name for name in names if _is_picture(name)]
    return sorted(found)


def _readable(name: str) -> str:
    r"""A name that can be printed and stored: bytes that are not UTF-8 (an old archive's) become `\xe9`.

    >>> _readable(os.fsdecode(b"caf\xe9.png"))
    'caf\\xe9.png'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _is_picture(name: str) -> bool:
    """By its ending; a name that starts with a dot is a system's own file."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _is_class(entry: Path) -> bool:
    """A folder, or a link to one, that is not hidden."""
    return entry.is_dir() and not entry.name.startswith(".")
