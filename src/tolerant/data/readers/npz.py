"""NPZ files: read without pickles and without trusting their headers."""

from __future__ import annotations

import math
import os
import struct
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from tolerant.data.dataset import Kind, NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.read_errors import READ_ERRORS, reason
from tolerant.data.readers.labels import encode_labels
from tolerant.hints import warn_caller

# Deflate shrinks at most 1032-fold, so a larger claim is false and would only cost memory.
MAX_RATIO = 1032
# Arrays that np.savez stored as they are and that are larger than this are mapped, not read.
MEMORY_MAP_BYTES = 2**28
_CHUNK = 2**22
_ROWS_LOOKED_AT = 2**16  # at a time: an array may be a memory map larger than memory

_INPUTS = ("inputs", "images", "features", "embeddings", "texts", "x", "X")
_LABELS = ("given_labels", "labels", "y")


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Every array of an NPZ file; a ValueError that names the file if it is damaged."""
    arrays: dict[str, np.ndarray] = {}
    try:
        with warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
            warnings.simplefilter("ignore")  # of numpy, about odd headers
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    raise ValueError(f"two arrays are called {name!r}")
                if info.file_size > MAX_RATIO * info.compress_size + 64:
                    raise ValueError(f"{name!r} cannot hold the {info.file_size} bytes it claims")
                arrays[name] = _read_member(Path(path), archive, info)
    except FileNotFoundError:
        raise
    except (*READ_ERRORS, OSError) as error:
        raise ValueError(
            f"{path} is not a readable NPZ file: {reason(error)}. Save or fetch it again"
        ) from error
    return arrays


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        shape, fortran, dtype = _read_header(file)
        num_bytes = math.prod(shape) * dtype.itemsize
        start = info.file_size - num_bytes
        if dtype.hasobject:
            raise ValueError(
                f"{info.filename!r} holds Python objects, which are never unpickled; save words as "
                "array.astype(str), numbers as array.astype(float)"
            )
        if start != file.tell():
            raise ValueError(f"{info.filename!r} claims {num_bytes} bytes of data, which it does not have")
        if info.compress_type == zipfile.ZIP_STORED and num_bytes > MEMORY_MAP_BYTES:
            offset = _data_offset(path, info) + start
            return np.memmap(path, dtype, "r", offset, shape, order="F" if fortran else "C")
        data = np.empty(num_bytes, np.uint8)
        for first in range(0, num_bytes, _CHUNK):
            chunk = file.read(min(_CHUNK, num_bytes - first))
            data[first : first + len(chunk)] = np.frombuffer(chunk, np.uint8)
        file.read(1)  # the end of the member is where its CRC is checked
        flat = data.view(dtype)
        return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"array format {version} is not known")


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes start: after its local header, which alone says how long it is."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26x2H", file.read(30))
    return info.header_offset + 30 + int(name_length) + int(extra_length)


def load_npz(
    path: str | os.PathLike[str],
    *,
    inputs: str | None = None,
    label: str | None = None,
    min_per_class: int | None = None,
) -> NoisyDataset:
    """A data set from the arrays of an NPZ file.

    The arrays `true_labels`, `class_names`, `ids` and `groups` are used where the file has them, and `files`:
    pictures, relative to the NPZ file, that the review page shows instead of the numbers computed from them.

    Args:
        path: the file.
        inputs: the array of inputs, by default `inputs`, `images`, `features`, `embeddings`, `texts` or
            `x`: uint8 (N, H, W, C) or (N, H, W) are images, numbers (N, D) a table, words (N,) texts.
        label: the array of given labels, by default `given_labels`, `labels` or `y`: whole numbers or
            words.
        min_per_class: fewest rows a class may have, by default 2; with `class_names` it may have none.
    """
    arrays = read_npz(path)
    x, kind = _as_inputs(_pick(arrays, inputs, _INPUTS, "inputs", path), path)
    words = _whole(_pick(arrays, label, _LABELS, "label", path))
    names = arrays.get("class_names")
    if names is not None and min_per_class is not None:
        raise ValueError(
            f"{path} has an array class_names, and those classes may have any number of rows; leave "
            "min_per_class (--min-per-class) out"
        )
    true = _whole(arrays["true_labels"]) if "true_labels" in arrays else None
    if len(words) != len(x) or words.ndim != 1:
        raise ValueError(f"{path}: {len(x)} inputs need as many labels; got shape {words.shape}")
    if words.dtype.kind in "iu" and names is not None:
        given, class_names = words, tuple(str(name) for name in names)
    elif words.dtype.kind in "biuUS":
        words = words.astype(str)
        given, class_names = encode_labels(words, path, names, 2 if min_per_class is None else min_per_class)
        if true is not None:
            true, _ = encode_labels(true.astype(str), path, class_names)
    else:
        raise ValueError(f"{path}: labels must be whole numbers or words; got {words.dtype}")
    files = arrays.get("files")
    ids = arrays.get("ids", files)
    if files is not None:
        files = np.array([str(Path(path).parent / str(file)) for file in np.atleast_1d(files)])
    groups = arrays.get("groups")
    return NoisyDataset(x, given, true, class_names, ids, kind, files=files, groups=groups)


def read_new_npz(path: Path, encoder: InputEncoder) -> Unlabelled:
    """The inputs of new rows, and their ids where the file has them."""
    arrays = read_npz(path)
    inputs, kind = _as_inputs(_pick(arrays, None, _INPUTS, "inputs", path), path)
    return Unlabelled(inputs, arrays.get("ids"), kind)


def _whole(labels: np.ndarray) -> np.ndarray:
    """Floats that are all whole numbers as integers; anything else as it is."""
    whole = labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == np.floor(labels)).all()
    return labels.astype(np.int64) if whole else labels


def _pick(
    arrays: dict[str, np.ndarray], name: str | None, known: tuple[str, ...], option: str, path: Any
) -> np.ndarray:
    for candidate in known if name is None else (name,):
        if candidate in arrays:
            if arrays[candidate].ndim == 0:
                raise ValueError(f"{path}: {candidate!r} is a single value, not one per row")
            return arrays[candidate]
    raise ValueError(
        f"{path} has no array {' or '.join(map(repr, known if name is None else (name,)))}; it has "
        f"{sorted(arrays)}. Say which with {option}=..., or rename it"
    )


def _as_inputs(x: np.ndarray, path: Any) -> tuple[np.ndarray, Kind]:
    if 0 in x.shape:
        raise ValueError(f"{path}: inputs of shape {x.shape} hold nothing; every axis must be 1 or more")
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        x = x[..., None] if x.ndim == 3 else x
        if x.shape[-1] > 4:
            raise ValueError(
                f"{path}: images must be (N, H, W, C) with at most 4 channels; got {x.shape}. "
                "Move the channels last: x.transpose(0, 2, 3, 1)"
            )
        return x, "image"
    if x.dtype.kind in "US" and x.ndim == 1:
        return x.astype(str).astype(object), "text"
    if x.dtype.kind in "biuf" and x.ndim == 2:
        if len(x) and x.dtype.itemsize >= 4 and x.dtype != np.float32:
            _warn_of_rounding(x[:_ROWS_LOOKED_AT], path)
        x = x.astype(np.float32, copy=False)
        for first in range(0, len(x), _ROWS_LOOKED_AT):
            bad = np.flatnonzero(~np.isfinite(x[first : first + _ROWS_LOOKED_AT]).all(axis=1))
            if len(bad):
                raise ValueError(
                    f"{path}: row {first + bad[0]} has a NaN or infinite feature; "
                    "fill such values in or drop the rows"
                )
        return x, "table"
    raise ValueError(
        f"{path}: inputs must be uint8 images (N, H, W, C), numbers (N, D) or words (N,); "
        f"got {x.dtype} {x.shape}"
    )


def _warn_of_rounding(x: np.ndarray, path: Any) -> None:
    """Times in seconds, for one, are near 1.7e9, where float32 has only every 128th number."""
    with np.errstate(all="ignore"):  # NaN and what overflows are refused after this
        error = np.abs(x - x.astype(np.float32).astype(np.float64)).max(axis=0)
        lossy = np.flatnonzero((error > 0.01 * x.std(axis=0)) & (x != x[0]).any(axis=0))
    if len(lossy):
        warn_caller(
            f"{path}: column {lossy[0]} of the inputs varies too little for its size to be kept in float32 "
            f"(first value: {x[0, lossy[0]]!s}); subtract its mean before you save it"
        )
