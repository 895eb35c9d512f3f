"""Pictures with a label each: those that a table lists or has in its cells, or a folder holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.labels import check_columns, encode_labels, labelled_rows, row_ids
from tolerant.data.readers.pictures import Place, Sides, Size, read_pictures
from tolerant.data.readers.row_files import read_frame
from tolerant.data.stored_pictures import StoredPicture


def load_listed(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    file: str = "file",
    label: str = "label",
    id: str | None = None,
    group: str | None = None,
    size: Size = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
    skip_unlabelled: bool = False,
    at_most: Sides = None,
) -> NoisyDataset:
    """A data set from a table with a picture and its label in each row.

    The column ``file`` has paths (relative to the table) or, in a Parquet file, the pictures themselves;
    those are known by the column ``id``, else by the names that they came with, or by their rows. ``group``
    is the column that says which pictures belong together (`NoisyDataset.groups`).
    """
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, file=file)
    rows = labelled_rows(path, frame, label=label, id=id, group=group, skip_unlabelled=skip_unlabelled)
    ids, places = _places(path, rows.frame, file, id)
    return load_pictures(
        path, places, rows.words, ids, size, class_names, min_per_class, rows.groups, at_most
    )


def read_listed(
    path: Path, encoder: InputEncoder, *, frame: Any = None, file: str = "file", id: str | None = None
) -> Unlabelled:
    """The pictures that a table lists or has in its cells."""
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, file=file, id=id)
    ids, places = _places(path, frame, file, id)
    return read_new_pictures(path, places, ids, encoder)


def load_pictures(
    source: Any,
    files: Sequence[Place],
    labels: list[str],
    ids: list[str],
    size: Size,
    class_names: Sequence[str] | None,
    min_per_class: int,
    groups: np.ndarray | None = None,
    at_most: Sides = None,
) -> NoisyDataset:
    """A data set of the pictures that can be read, each with its label."""
    inputs, kept = read_pictures(source, files, ids, size, at_most)
    words = [labels[row] for row in kept]
    lost = sorted(set(labels) - set(words))
    if lost:
        raise ValueError(
            f"{source}: no picture of class {lost[0]!r} can be read; put in some that can, or leave the "
            "class out"
        )
    given, names = encode_labels(words, source, class_names, min_per_class)
    places = [files[row] for row in kept]
    stored = any(isinstance(place, StoredPicture) for place in places)
    paths = np.array(places, object) if stored else np.array([str(place) for place in places])
    row_ids = np.array([ids[row] for row in kept])
    groups = None if groups is None else groups[kept]
    return NoisyDataset(inputs, given, None, names, row_ids, "image", files=paths, groups=groups)


def read_new_pictures(
    source: Any, files: Sequence[Place], ids: list[str], encoder: InputEncoder
) -> Unlabelled:
    """The pictures that can be read, resized to what the model takes."""
    height, width, *_ = encoder.picture_shape or encoder.shape
    inputs, kept = read_pictures(source, files, ids, (height, width))
    return Unlabelled(inputs, np.array([ids[row] for row in kept]), "image")


def _places(
    path: str | os.PathLike[str], frame: Any, column: str, id: str | None
) -> tuple[list[str], list[Place]]:
    """The ids of the pictures in a column, and where each is."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    cells = frame[column].tolist()
    places = [cell if isinstance(cell, StoredPicture) else _file(folder, str(cell)) for cell in cells]
    names = [cell.name if isinstance(cell, StoredPicture) else str(cell) for cell in cells]
    if id is not None:
        return row_ids(frame, id).tolist(), places
    stored = any(isinstance(place, StoredPicture) for place in places)
    if stored and len({*names} - {None, ""}) < len(names):  # hubs drop names, or call all of them image.png
        return [str(row) for row in frame.index], places
    return [str(name) for name in names], places


def _file(folder: Path, name: str) -> Path:
    r"""Where a file that a table names lies; a list that was made on Windows has ``cat\001.jpg``."""
    path = folder / name
    return path if "\\" not in name or path.exists() else folder / name.replace("\\", "/")
