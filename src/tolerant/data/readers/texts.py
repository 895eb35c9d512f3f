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
    text: str | Sequence[str] = "text",
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
    """A data set from a column of text, or several, in a CSV, TSV, JSON Lines or Parquet file.

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
    check_columns(frame, path, true_label=true_label)
    check_texts(frame, path, text, label=label, ignore=ignore)
    check_ignored(frame, path, ignore, label)
    if categorical:
        raise ValueError(
            f"{path}: categorical (--categorical) is for the columns of a table; with text={text!r} only "
            "that one is read. Leave one of the two out"
        )
    rows = labelled_rows(path, frame, label=label, id=id, group=group, skip_unlabelled=skip_unlabelled)
    given, true, names = rows.encode(path, true_label, class_names, min_per_class)
    texts = texts_in(rows.frame, text)
    return NoisyDataset(texts, given, true, names, rows.ids, "text", groups=rows.groups)


def read_texts(
    path: Path,
    encoder: InputEncoder,
    *,
    frame: Any = None,
    text: str | Sequence[str] = "text",
    id: str | None = None,
) -> Unlabelled:
    """The texts of a column, or several."""
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, id=id)
    check_texts(frame, path, text)
    return Unlabelled(texts_in(frame, text), ids_or_numbers(frame, id), "text")


def text_names(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of text that an option names."""
    return (text,) if isinstance(text, str) else tuple(text or ())


def check_texts(frame: Any, path: Any, text: str | Sequence[str], **roles: Any) -> None:
    """A ValueError for the first column of text that the table does not have, or that has another role."""
    for name in text_names(text):
        check_columns(frame, path, text=name)
        for role, named in roles.items():
            if name == named or (not isinstance(named, str) and name in (named or ())):
                raise ValueError(
                    f"{path}: text (--text) and {role} (--{role}) both name {name!r}; leave one of them out"
                )


def texts_in(frame: Any, text: str | Sequence[str]) -> np.ndarray:
    """What the columns of text hold, object (N,) of str: of several the cells, a line each."""
    columns = [_cells(frame, name) for name in text_names(text)]
    if len(columns) == 1:
        return columns[0]
    return np.array(["\n".join(filter(None, cells)) for cells in zip(*columns, strict=True)], object)


def _cells(frame: Any, name: str) -> np.ndarray:
    """The cells of a column as they are, object (N,) of str; "" for a missing one."""
    refuse_nested(frame[name], frame[name].to_numpy(object))
    cells = zip(frame[name].to_numpy(object), frame[name].isna(), strict=True)
    return np.array(["" if missing else str(cell) for cell, missing in cells], object)
