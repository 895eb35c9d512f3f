"""The rows of a table that are labelled: which columns there must be, label words, row names and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.data.readers.label_words import encode_labels
from tolerant.hints import warn_caller

_MOST_NAMED = 20  # columns in a message
_OPTIONS = ("label", "id", "file", "text", "ignore", "group")  # of the command line


@dataclass(frozen=True)
class LabelledRows:
    """What tables, texts and lists of pictures have in common, each array of N rows."""

    frame: Any
    words: list[str]
    """The given labels as they are written."""
    ids: np.ndarray | None
    groups: np.ndarray | None

    def encode(
        self, path: Any, true_label: str | None, class_names: Sequence[str] | None, min_per_class: int
    ) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
        """Given labels, true labels where a column has them, and class names."""
        given, names = encode_labels(self.words, path, class_names, min_per_class)
        if true_label is None:
            return given, None, names
        return given, encode_labels(_label_words(self.frame, true_label, path), path, names)[0], names


def labelled_rows(
    path: Any, frame: Any, *, label: str, id: str | None, group: str | None, skip_unlabelled: bool
) -> LabelledRows:
    """Every row must have a label, or with ``skip_unlabelled`` those without one are left out."""
    check_columns(frame, path, label=label, id=id, group=group)
    ids = None if id is None else row_ids(frame, id)
    if skip_unlabelled:
        rows = _rows_with_label(frame, label, path)
        frame, ids = frame.iloc[rows], rows if ids is None else ids[rows]
    words = _label_words(frame, label, path)
    return LabelledRows(
        frame, words, ids, None if group is None else _group_numbers(frame, group, label, path)
    )


def check_columns(frame: Any, path: Any, **wanted: str | None) -> None:
    """A ValueError for the first option that names a column the table does not have."""
    for option, name in wanted.items():
        if name is not None and name not in frame.columns:
            names = list(frame.columns)
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            command = f" (--{option})" if option in _OPTIONS else ""
            raise ValueError(
                f"{path} has no column {name!r}; it has {names[:_MOST_NAMED]}{more}. "
                f"Say which with {option}=...{command}"
            )


def check_ignored(frame: Any, path: Any, ignore: Sequence[str], label: str) -> None:
    """A ValueError for a column to ignore that is not there, or holds the labels."""
    for name in ignore:
        check_columns(frame, path, ignore=name)
    if label in ignore:
        raise ValueError(
            f"{path}: ignore (--ignore) names {label!r}, the column of labels; leave one of them out"
        )


def row_ids(frame: Any, name: str) -> np.ndarray:
    """The names of the rows, as words."""
    ids: np.ndarray = frame[name].to_numpy(object).astype(str)
    return ids


def _label_words(frame: Any, name: str, path: Any) -> list[str]:
    """The label words, all of which must be there; whole numbers stored as floats lose their .0."""
    words = _words(frame, name)
    empty = [row for row, word in enumerate(words) if not word]
    if empty:
        raise ValueError(
            f"{path}: {len(empty)} rows have no {name!r} (first: row {frame.index[empty[0]]}, counted from "
            "0); fill them in, or leave those rows out: skip_unlabelled=True (--skip-unlabelled)"
        )
    return words


def _rows_with_label(frame: Any, name: str, path: Any) -> np.ndarray:
    rows = np.flatnonzero([bool(word) for word in _words(frame, name)])
    if len(rows) < len(frame):
        warn_caller(
            f"{path}: {len(frame) - len(rows):,} of {len(frame):,} rows have no {name!r} and are left out; "
            "the trained model can label them: tolerant predict"
        )
    return rows


def _group_numbers(frame: Any, name: str, label: str, path: Any) -> np.ndarray:
    """int64 (N,): the same number for rows with the same word; a row with an empty cell is alone."""
    if name == label:
        raise ValueError(
            f"{path}: group (--group) names {name!r}, the column of labels. It should name what rows have "
            "in common that are alike for another reason, such as the patient"
        )
    words = np.array(_words(frame, name), object)
    _, numbers = np.unique(words, return_inverse=True)
    alone = words == ""
    return np.where(alone, numbers.max() + 1 + np.arange(len(words)), numbers)


def _words(frame: Any, name: str) -> list[str]:
    return [
        "" if missing
        else str(int(cell)) if isinstance(cell, float) and cell.is_integer()
        else str(cell).strip()
        for cell, missing in zip(frame[name].to_numpy(object), frame[name].isna(), strict=True)
    ]  # fmt: skip
