"""Texts: a column of a table, with a label in each row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.cells import refuse_nested
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.labels import check_columns, check_ignored, ids_or_numbers, labelled_rows
from tolerant.data.readers.row_files import read_frame


def load_texts(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    text: str = "text",
    label: str = "label",
    true_label: str | None = None,
    id: str | None = None,
    group: str | None = None,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
    skip_unlabelled: bool = False,
) -> NoisyDataset:
    """A data set from one column of text in a CSV, TSV, JSON Lines or Parquet file.

    Options are those of `load_table`; ``categorical`` is refused, since no other column is read.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("text,label\\na red car,car\\na plum,fruit\\na blue car,car\\nan apple,fruit")
    ...     file.flush()
    ...     rows = load_texts(file.name)
    >>> rows.inputs[0], rows.class_names, rows.given_labels.tolist()
    ('a red car', ('car', 'fruit'), [0, 1, 0, 1])
    """
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, true_label=true_label, text=text)
    check_ignored(frame, path, ignore, label)
    if categorical:
        raise ValueError(
            f"{path}: categorical (--categorical) is for the columns of a table; with text={text!r} only "
            "that one is read. Leave one of the two out"
        )
    rows = labelled_rows(path, frame, label=label, id=id, group=group, skip_unlabelled=skip_unlabelled)
    given, true, names = rows.encode(path, true_label, class_names, min_per_class)
    return NoisyDataset(_texts(rows.frame, text), given, true, names, rows.ids, "text", groups=rows.groups)


def read_texts(
    path: Path, encoder: InputEncoder, *, frame: Any = None, text: str = "text", id: str | None = None
) -> Unlabelled:
    """The texts of a column."""
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, id=id, text=text)
    return Unlabelled(_texts(frame, text), ids_or_numbers(frame, id), "text")


def _texts(frame: Any, name: str) -> np.ndarray:
    """The cells of a column as they are, object (N,) of str; "" for a missing one."""
    refuse_nested(frame[name], frame[name].to_numpy(object))
    cells = zip(frame[name].to_numpy(object), frame[name].isna(), strict=True)
    return np.array(["" if missing else str(cell) for cell, missing in cells], object)
