"""Pictures on disk: a folder with a sub-folder a class, or a table of file and label."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tolerant.data.damage import reason
from tolerant.data.dataset import Inputs, NoisyDataset, encode_labels
from tolerant.data.table import check_columns, label_words, read_frame
from tolerant.extras import extra
from tolerant.progress import Bar, progress_bar

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
# Decoded pictures up to this many bytes are kept in memory; more are decoded when asked for.
MEMORY_BYTES = 2**31
_GREY_MODES = ("1", "L")
_COLOUR_MODES = (
    "RGB",
    "RGBA",
    "RGBX",
    "P",
    "PA",
    "LA",
    "La",
    "RGBa",
    "CMYK",
    "YCbCr",
    "LAB",
    "HSV",
)
_ORIENTATION = 0x0112  # the EXIF tag with which a camera says how it was held

T = TypeVar("T")


class ImageFiles:
    """Picture files as an array: uint8 (N, height, width, channels), decoded when indexed."""

    dtype = np.dtype(np.uint8)

    def __init__(self, paths: Sequence[Path], height: int, width: int, channels: int) -> None:
        self.paths = list(paths)
        self.shape = (len(self.paths), height, width, channels)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> np.ndarray:
        rows = np.arange(len(self))[index]
        images = np.zeros((rows.size, *self.shape[1:]), np.uint8)
        for row, why in self.decode_into(images, rows.reshape(-1)):
            warnings.warn(f"{self.paths[row]}: {why}; a black picture stands in for it", stacklevel=2)
        return images.reshape(*rows.shape, *self.shape[1:])

    def decode_into(self, images: np.ndarray | None, rows: np.ndarray) -> list[tuple[int, str]]:
        """Decode `rows` side by side, into `images` if given; (row, why) for those that fail."""

        def decode(place: int) -> tuple[int, str] | None:
            try:
                image = _decode(self.paths[rows[place]], *self.shape[1:])
            except Exception as error:  # a damaged picture can make a decoder raise anything
                return int(rows[place]), _reason(error)
            if images is not None:
                images[place] = image
            return None

        return [failed for failed in _side_by_side(decode, range(len(rows))) if failed is not None]


def load_folder(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    size: int | tuple[int, int] | None = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
) -> NoisyDataset:
    """A data set from a folder of pictures: the name of a sub-folder is the label of what is in it.

    split: take the classes from this sub-folder (train, test ...).
    size: resize every picture to this (height, width), or to a square; otherwise all must agree.
    Pictures that cannot be read are named in a warning and left out. All grey ones give one
    channel, all others three.
    """
    path = Path(path)
    folder = path if split is None else path / split
    if not folder.is_dir():
        raise ValueError(f"split {split!r} is not a folder in {path}")
    classes = sorted(entry for entry in folder.iterdir() if _is_class(entry))
    if not classes:
        raise ValueError(
            f"{folder} has no sub-folders; it needs one a class, or give a CSV file that lists "
            "the pictures in its columns file and label"
        )
    if split is None and {entry.name for entry in classes} <= {"train", "test", "val", "valid"}:
        raise ValueError(f"{folder} is divided into {classes[0].name} ...: pass split='train'")
    files, labels = [], []
    for entry in classes:
        found = sorted(
            Path(base) / name
            for base, _, names in os.walk(entry)
            for name in names
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
        )
        if not found:
            raise ValueError(f"class folder {entry} has no pictures; remove it or put some in")
        files += found
        labels += [entry.name] * len(found)
    ids = [file.relative_to(folder).as_posix() for file in files]
    return _load_files(folder, files, labels, ids, size, class_names, min_per_class)


def load_listed(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    file: str = "file",
    label: str = "label",
    size: int | tuple[int, int] | None = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
) -> NoisyDataset:
    """A data set from a table with a picture (relative to the table) and its label in each row."""
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, file=file, label=label)
    names = [str(name) for name in frame[file]]
    labels = label_words(frame, label, path)
    files = [Path(path).parent / name for name in names]
    return _load_files(path, files, labels, names, size, class_names, min_per_class)


def _is_class(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _load_files(
    source: Any,
    files: list[Path],
    labels: list[str],
    ids: list[str],
    size: int | tuple[int, int] | None,
    class_names: Sequence[str] | None,
    min_per_class: int,
) -> NoisyDataset:
    with warnings.catch_warnings():
        bomb = extra("PIL.Image").DecompressionBombWarning
        warnings.simplefilter("error", bomb)  # a picture that unpacks to gigabytes counts as broken
        heads = list(_side_by_side(_probe, files, f"look at {len(files)} pictures"))
        broken = {row: head for row, head in enumerate(heads) if isinstance(head, str)}
        good = [row for row in range(len(files)) if row not in broken]
        if not good:
            raise ValueError(f"{source}: no picture can be read (first: {ids[0]}: {broken[0]})")
        shape = _common_shape([heads[row] for row in good], [ids[row] for row in good], size)
        pictures = ImageFiles([files[row] for row in good], *shape)
        inputs, failed = _decode_all(pictures)
    broken |= {good[row]: why for row, why in failed}
    if broken:
        named = "; ".join(f"{ids[row]}: {why}" for row, why in sorted(broken.items())[:10])
        more = f" and {len(broken) - 10} more" if len(broken) > 10 else ""
        warnings.warn(f"{len(broken)} of {len(files)} pictures left out: {named}{more}", stacklevel=3)
    kept = [row for row in good if row not in broken]
    given, names = encode_labels([labels[r] for r in kept], source, class_names, min_per_class)
    return NoisyDataset(inputs, given, None, names, np.array([ids[r] for r in kept]), "image")


def _decode_all(pictures: ImageFiles) -> tuple[Inputs, list[tuple[int, str]]]:
    """All pictures decoded once, so that every broken one is known before training starts."""
    in_memory = int(np.prod(pictures.shape)) <= MEMORY_BYTES
    images = np.empty(pictures.shape, np.uint8) if in_memory else None
    failed: list[tuple[int, str]] = []
    with progress_bar("decode pictures", total=len(pictures)) as bar:
        for start in range(0, len(pictures), 1024):
            rows = np.arange(start, min(start + 1024, len(pictures)))
            part = None if images is None else images[rows[0] : rows[-1] + 1]
            failed += pictures.decode_into(part, rows)
            bar.update(int(rows[-1]) + 1)
    bad = {row for row, _ in failed}
    good = [row for row in range(len(pictures)) if row not in bad]
    if images is not None:
        return images[good] if bad else images, failed
    return ImageFiles([pictures.paths[row] for row in good], *pictures.shape[1:]), failed


def _side_by_side(work: Callable[[Any], T], items: Sequence[Any], what: str | None = None) -> Iterator[T]:
    # Pillow lets go of the interpreter while it decodes, so threads do and nothing is copied.
    # In groups: handing over one small picture costs a third of the time to decode it.
    groups = [items[start : start + 32] for start in range(0, len(items), 32)]
    done = 0
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda group: [work(item) for item in group], groups)
        with progress_bar(what, total=len(items)) if what else nullcontext(Bar()) as bar:
            for group in results:
                yield from group
                done += len(group)
                bar.update(done)


def _probe(path: Path) -> tuple[int, int, int] | str:
    """(height, width, channels) from the header of a picture, or why it cannot be read."""
    try:
        with extra("PIL.Image").open(path) as image:
            width, height = image.size
            if image.getexif().get(_ORIENTATION, 1) >= 5:  # held upright: width and height swap
                width, height = height, width
            if image.mode in _GREY_MODES:
                return height, width, 1
            if image.mode in _COLOUR_MODES:
                return height, width, 3
            return f"mode {image.mode} has no 8-bit meaning; save it as 8-bit grey or RGB"
    except Exception as error:  # a damaged picture can make a decoder raise anything
        return _reason(error)


def _decode(path: Path, height: int, width: int, channels: int) -> np.ndarray:
    with extra("PIL.Image").open(path) as file:
        extra("PIL.ImageOps").exif_transpose(file, in_place=True)
        image = file.convert("L" if channels == 1 else "RGB")
        if image.size != (width, height):
            image = image.resize((width, height), extra("PIL.Image").Resampling.BILINEAR)
        return np.asarray(image).reshape(height, width, channels)


def _common_shape(
    heads: list[Any], ids: list[str], size: int | tuple[int, int] | None
) -> tuple[int, int, int]:
    channels = max(head[2] for head in heads)
    if size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        if height < 1 or width < 1:
            raise ValueError(f"size must be positive; got {size!r}")
        return height, width, channels
    (most, _), *others = Counter(head[:2] for head in heads).most_common()
    if others:
        other = next(row for row, head in enumerate(heads) if head[:2] != most)
        raise ValueError(
            f"{ids[other]} is {heads[other][0]} x {heads[other][1]} pixels, others are {most[0]} x "
            f"{most[1]}; pass size={most[0]} to resize all"
        )
    return most[0], most[1], channels


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not a picture"
    return f"damaged ({reason(error)})"
