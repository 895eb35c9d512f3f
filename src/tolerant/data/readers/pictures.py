"""Pictures, in files or in the cells of a column, decoded to arrays in threads; broken ones are named."""

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

from tolerant.checks import check_whole
from tolerant.data.dataset import Inputs
from tolerant.data.digest import row_digest
from tolerant.data.read_errors import reason
from tolerant.data.stored_pictures import EmptyCell, StoredPicture, to_open
from tolerant.extras import extra
from tolerant.hints import warn_caller
from tolerant.progress import Bar, progress_bar
from tolerant.regular import check_regular

# Decoded pictures up to this many bytes are kept in memory; more are decoded when asked for.
MEMORY_BYTES = 2**31
_MEMORY_BYTES_FOR_FEATURES = 2**28  # read once and then no more: there is no gain in having all at hand
_GREY_MODES = ("1", "L")
_COLOUR_MODES = tuple("RGB RGBA RGBX RGBa P PA LA La CMYK YCbCr LAB HSV".split())  # noqa: SIM905
# Microscopes and scanners store 12 bits in 16: scaled by 65535, such a picture would be black.
_DARKEST_16_BIT = 2**12
_ORIENTATION = 0x0112  # the EXIF tag with which a camera says how it was held

Size = int | tuple[int, int] | None
Sides = int | Sequence[int] | None
Place = Path | StoredPicture
T = TypeVar("T")


class ImageFiles:
    """Picture files, or cells that hold them, as uint8 (N, height, width, channels), decoded when indexed.

    digests: `tolerant.data.digest.row_digests` of the pictures, if they were decoded before.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        paths: Sequence[Place],
        height: int,
        width: int,
        channels: int,
        digests: np.ndarray | None = None,
    ) -> None:
        self.paths = list(paths)
        self.shape = (len(self.paths), height, width, channels)
        self.digests = digests

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> np.ndarray:
        rows = np.arange(len(self))[index]
        images = np.zeros((rows.size, *self.shape[1:]), np.uint8)
        for row, why in self.decode_into(images, rows.reshape(-1)):
            warn_caller(f"{self.paths[row]}: {why}; a black picture stands in for it")
        return images.reshape(*rows.shape, *self.shape[1:])

    def decode_into(
        self, images: np.ndarray | None, rows: np.ndarray, digests: np.ndarray | None = None
    ) -> list[tuple[int, str]]:
        """Decode `rows` in threads, into `images` and `digests` if given; (row, why) for those that fail."""

        def decode(place: int) -> tuple[int, str] | None:
            try:
                image = _decode(self.paths[rows[place]], *self.shape[1:])
            except Exception as error:  # a damaged picture can make a decoder raise anything
                return int(rows[place]), _reason(error)
            if images is not None:
                images[place] = image
            if digests is not None:
                digests[place] = row_digest(image)
            return None

        return [failed for failed in in_threads(decode, range(len(rows))) if failed is not None]


def read_pictures(
    source: Any, files: Sequence[Place], ids: Sequence[str], size: Size, at_most: Sides = None
) -> tuple[Inputs, list[int]]:
    """The pictures that can be read, decoded or to be decoded, and their places in `files`.

    ``size`` and ``at_most`` are those of `load_folder`. There is one channel if all are grey, else three.
    """
    with warnings.catch_warnings(action="ignore"):  # of Pillow, about odd metadata
        bomb = extra("PIL.Image").DecompressionBombWarning
        warnings.simplefilter("error", bomb)  # a picture that unpacks to gigabytes is broken
        heads = list(in_threads(_probe, files, f"look at {len(files)} pictures"))
        broken = {row: head for row, head in enumerate(heads) if isinstance(head, str)}
        good = [row for row in range(len(files)) if row not in broken]
        if not good:
            raise ValueError(f"{source}: no picture can be read (first: {ids[0]}: {broken[0]})")
        shape, remark = _common_shape([heads[row] for row in good], [ids[row] for row in good], size, at_most)
        memory = MEMORY_BYTES if at_most is None else _MEMORY_BYTES_FOR_FEATURES
        inputs, failed = _decode_all(ImageFiles([files[row] for row in good], *shape), memory)
    if remark:
        warn_caller(remark)
    broken |= {good[row]: why for row, why in failed}
    if broken:
        named = "; ".join(f"{ids[row]}: {why}" for row, why in sorted(broken.items())[:10])
        more = f" and {len(broken) - 10} more" if len(broken) > 10 else ""
        warn_caller(f"{len(broken)} of {len(files)} pictures left out: {named}{more}")
    return inputs, [row for row in good if row not in broken]


def _decode_all(pictures: ImageFiles, memory_bytes: int) -> tuple[Inputs, list[tuple[int, str]]]:
    """All pictures decoded once, so that every broken one is known before training starts."""
    in_memory = int(np.prod(pictures.shape)) <= memory_bytes
    images = np.empty(pictures.shape, np.uint8) if in_memory else None
    digests = None if in_memory else np.zeros(len(pictures), np.int64)
    failed: list[tuple[int, str]] = []
    with progress_bar("decode pictures", total=len(pictures)) as bar:
        for start in range(0, len(pictures), 1024):
            rows = np.arange(start, min(start + 1024, len(pictures)))
            part = slice(start, start + 1024)
            failed += pictures.decode_into(
                None if images is None else images[part], rows, None if digests is None else digests[part]
            )
            bar.update(int(rows[-1]) + 1)
    bad = {row for row, _ in failed}
    good = [row for row in range(len(pictures)) if row not in bad]
    if images is not None:
        return images[good] if bad else images, failed
    assert digests is not None
    return ImageFiles([pictures.paths[row] for row in good], *pictures.shape[1:], digests[good]), failed


def in_threads(work: Callable[[Any], T], items: Sequence[Any], what: str | None = None) -> Iterator[T]:
    """``work`` of each item in threads, in order, with a progress bar called ``what``."""
    # Pillow releases the interpreter's lock while it decodes, so threads are enough and nothing is copied.
    # In groups: handing over one small picture takes a third as long as decoding it.
    groups = [items[start : start + 32] for start in range(0, len(items), 32)]
    done = 0
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda group: [work(item) for item in group], groups)
        with progress_bar(what, total=len(items)) if what else nullcontext(Bar()) as bar:
            for group in results:
                yield from group
                done += len(group)
                bar.update(done)


def _probe(path: Place) -> tuple[int, int, int] | str:
    """(height, width, channels) from the header of a picture, or why it cannot be read."""
    try:
        if isinstance(path, Path):
            check_regular(path)  # or a pipe would be waited for
        with extra("PIL.Image").open(to_open(path)) as image:
            width, height = image.size
            if image.getexif().get(_ORIENTATION, 1) >= 5:  # turned by 90 degrees: width and height swap
                width, height = height, width
            if image.mode in _GREY_MODES or _has_16_bits(image):
                return height, width, 1
            if image.mode in _COLOUR_MODES:
                return height, width, 3
            return f"mode {image.mode} has no 8-bit meaning; save it as 8-bit grey or RGB"
    except Exception as error:  # a damaged picture can make a decoder raise anything
        return _reason(error)


def open_picture(path: str | Place, side: int) -> Any:
    """A picture as a viewer shows it, as a Pillow image of 8 bits; a JPEG at least twice ``side`` large."""
    with extra("PIL.Image").open(to_open(path)) as file:
        # A JPEG can be decoded at an eighth of its size, which saves most of the time of a large one. Twice
        # the wanted size is kept for resizing, so that hardly a value changes.
        file.draft(None, (2 * side, 2 * side))
        extra("PIL.ImageOps").exif_transpose(file, in_place=True)
        image = _in_8_bits(file) if _has_16_bits(file) else file
        if image.has_transparency_data:  # on white, as a viewer shows it; the colour below is often black
            white = extra("PIL.Image").new("RGBA", image.size, "white")
            return extra("PIL.Image").alpha_composite(white, image.convert("RGBA"))
        return image.convert("L" if image.mode in _GREY_MODES else "RGB")


def _decode(path: Place, height: int, width: int, channels: int) -> np.ndarray:
    image = open_picture(path, max(height, width)).convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), extra("PIL.Image").Resampling.BILINEAR)
    return np.asarray(image).reshape(height, width, channels)


def _has_16_bits(image: Any) -> bool:
    # Pillow opens a PGM of 16 bits in mode I, which in a TIFF means 32.
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _in_8_bits(image: Any) -> Any:
    """The upper eight of sixteen bits; Pillow's own convert("L") makes all above 255 white."""
    values = np.asarray(image)
    if values.max() < _DARKEST_16_BIT:
        raise _Dark(
            f"black as 16-bit grey, with no value above {values.max()}; "
            "stretch it over 0 .. 65535, or save it with 8 bits"
        )
    return extra("PIL.Image").fromarray((values >> 8).astype(np.uint8))


class _Dark(ValueError):
    """A picture on which nobody would see anything."""


def _common_shape(
    heads: list[Any], ids: list[str], size: Size, at_most: Sides
) -> tuple[tuple[int, int, int], str]:
    """Height, width and channels of all, and what a person should know of it."""
    channels = max(head[2] for head in heads)
    if size is not None:
        height, width = size if isinstance(size, tuple | list) else (size, size)
        return (check_whole(height, "size", least=1), check_whole(width, "size", least=1), channels), ""
    (most, _), *others = Counter(head[:2] for head in heads).most_common()
    # Not that of the most frequent size: if all differ, it is that of any picture, such as an icon.
    usual = int(np.median([min(head[:2]) for head in heads]))
    if at_most is not None:
        side = suitable_side(at_most, (usual, usual, channels))
        if others or max(most) > side:
            return (side, side, channels), ""
    elif others:
        other = next(row for row, head in enumerate(heads) if head[:2] != most)
        side = min(usual, 64)  # a size that a network learns in minutes, not hours
        return (side, side, channels), (
            f"pictures differ in size ({ids[other]} is {heads[other][0]} x {heads[other][1]} pixels, others "
            f"are {most[0]} x {most[1]}): all become {side} x {side}. For another size: size=... (--size)"
        )
    return (most[0], most[1], channels), ""


def suitable_side(sides: int | Sequence[int], shape: Sequence[int]) -> int:
    """Of several sides the first that is no smaller than pictures of this (height, width, channels).

    Else the last; for grey ones, of which features are not taken unasked, the first.

    >>> [suitable_side((128, 160, 224), (side, side + 9, 3)) for side in (32, 128, 150, 3000)]
    [128, 128, 160, 224]
    """
    sides = (sides,) if isinstance(sides, int) else sides
    wanted = min(shape[:2]) if shape[2] > 1 else 0
    return next((side for side in sides if side >= wanted), sides[-1])


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "a folder"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not a picture that Pillow reads"
    if isinstance(error, _Dark | EmptyCell):
        return str(error)
    if "is a pipe or a device" in str(error):
        return "a pipe or a device, no file"
    return f"damaged ({reason(error)})"
