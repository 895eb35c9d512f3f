"""Digests of rows, which tell later which of them were edited, or are no longer where they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tolerant.data.stored_pictures import StoredPicture

if TYPE_CHECKING:
    from tolerant.data.dataset import NoisyDataset


def row_digests(inputs: Any) -> np.ndarray:
    """int64 (N,), of what the rows hold: numbers, pixels or a text.

    Pictures that do not fit in memory have theirs already, from when they were first decoded.

    >>> old, new = np.array(["red", "blue"], object), np.array(["red", "green"], object)
    >>> (row_digests(old) == row_digests(new)).tolist()
    [True, False]
    """
    known = getattr(inputs, "digests", None)
    if known is not None:
        return np.asarray(known)
    rows = np.asarray(inputs) if isinstance(inputs, np.ndarray) else inputs  # rows of a map are slow objects
    return np.fromiter((row_digest(row) for row in rows), np.int64, len(inputs))


def dataset_digests(dataset: NoisyDataset) -> np.ndarray:
    """int64 (N,), `row_digests` of the inputs and of the texts beside them."""
    found = row_digests(dataset.inputs)
    return found if dataset.texts is None else found ^ row_digests(dataset.texts)


def row_digest(row: Any) -> int:
    """The digest of one row: an array, or a text."""
    text = not isinstance(row, np.ndarray)
    data: Any = str(row).encode("utf-8", "surrogatepass") if text else np.ascontiguousarray(row)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


def content_digests(dataset: NoisyDataset, index: Iterable[int]) -> list[str]:
    """A digest of what a person sees in each of these rows, whatever the other rows and the options are.

    Of a picture its file, of a row of a table its cells (numbers by their value), of any other its inputs.
    """
    rows = np.fromiter(index, np.int64)
    if dataset.files is not None:
        return [_word(_file_bytes(dataset.files[row])) for row in rows]
    if dataset.cells is not None:
        # Sorted, for ignored columns come last, whichever they are; a selection of rows by pandas takes twice
        # the time of all else here if there are 100,000.
        named = sorted(dataset.cells.items(), key=lambda column: column[0])
        cells = zip(*(series.to_numpy(object)[rows] for _, series in named), strict=True)
        return [_word(_row_bytes(row)) for row in cells]
    inputs = dataset.inputs[rows]
    return [_word(row_digest(row).to_bytes(8, "little", signed=True)) for row in inputs]


def _word(data: bytes) -> str:
    # A letter first: a spreadsheet would make a number of 8472e10093110023.
    return f"r{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def _file_bytes(path: str | StoredPicture) -> bytes:
    if isinstance(path, StoredPicture):
        return path.content()
    try:
        return Path(path).read_bytes()
    except OSError:  # features whose pictures are elsewhere: then they are known by name
        return path.encode("utf-8", "surrogateescape")


def _row_bytes(cells: Iterable[Any]) -> bytes:
    """Empty cells count as not there: a column without any value is not kept."""
    return "\0".join(word for word in map(_cell_word, cells) if word).encode("utf-8", "surrogatepass")


def _cell_word(cell: Any) -> str:
    word = str(cell).strip()
    try:
        number = float(word)  # a spreadsheet writes 0.50 as 0.5
    except ValueError:
        return word
    return "" if number != number else repr(number)


def label_digest(ids: np.ndarray, given_labels: np.ndarray) -> str:
    """A hash of ids and labels."""
    words = "\0".join(map(str, ids.tolist()))
    return hashlib.sha256(words.encode() + given_labels.tobytes()).hexdigest()
