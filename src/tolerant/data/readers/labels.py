"""Labels as people write them: the labelled rows of a table, and words turned into class numbers.

Likely slips are pointed out.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.data.encoders.cells import refuse_nested
from tolerant.hints import did_you_mean, warn_caller

_MOST_NAMED = 20  # columns in a message
_NOTHING = ("nan", "NaN", "NULL", "null", "#N/A", "#NV", "<NA>", "NaT")
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
    if skip_unlabelled:
        frame = frame.iloc[_rows_with_label(frame, label, path)]
    ids = ids_or_numbers(frame, id)
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
            meant = did_you_mean(name, names)
            raise ValueError(
                f"{path} has no column {name!r}; it has {names[:_MOST_NAMED]}{more}. "
                f"{f'{meant} ' if meant else ''}Say which with {option}=...{command}"
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


def ids_or_numbers(frame: Any, name: str | None) -> np.ndarray | None:
    """The names of the rows, or their numbers in the file where rows were left out; None: they count up."""
    if name is not None:
        return row_ids(frame, name)
    numbers: np.ndarray = frame.index.to_numpy()
    return None if np.array_equal(numbers, np.arange(len(numbers))) else numbers


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
    refuse_nested(frame[name], frame[name].to_numpy(object))
    return [
        "" if missing
        else str(int(cell)) if isinstance(cell, float) and cell.is_integer()
        else str(cell).strip()
        for cell, missing in zip(frame[name].to_numpy(object), frame[name].isna(), strict=True)
    ]  # fmt: skip


def encode_labels(
    words: Any, source: object, class_names: Any = None, min_per_class: int = 2
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Label words as int64 (N,) and the class names, sorted (as numbers if all are whole numbers).

    With `class_names` the classes are those, in that order, and any other label is an error.

    >>> encode_labels(["10", "9", "10", "9"], "x.csv")
    (array([1, 0, 1, 0]), ('9', '10'))
    """
    found, codes, counts = np.unique(np.asarray(words, dtype=str), return_inverse=True, return_counts=True)
    names = [str(word) for word in found]
    if class_names is not None:
        known = [str(name) for name in class_names]
        unknown = sorted(set(names).difference(known))
        if unknown:
            raise ValueError(
                f"{source}: label {unknown[0]!r} is none of the classes {known!r}; correct it or drop the row"
            )
    else:
        _warn_of_alike(names, source)  # first: the label of one row may be a slip of the pen
        _check_counts(dict(zip(names, counts.tolist(), strict=True)), source, min_per_class)
        _warn_of_nothing(names, source)
        whole = all(name.removeprefix("-").isdecimal() for name in names)
        known = sorted(names, key=int) if whole else names
    place = {name: code for code, name in enumerate(known)}
    return np.array([place[name] for name in names], np.int64)[codes], tuple(known)


def _check_counts(counts: Mapping[str, int], source: object, min_per_class: int) -> None:
    """A ValueError unless there are two classes at least, each with enough rows."""
    if len(counts) < 2:
        why = f"every row is labelled {next(iter(counts))!r}" if counts else "there is no row"
        raise ValueError(f"{source}: {why}; at least two classes are needed")
    rare = [name for name, count in counts.items() if count < min_per_class]
    if not rare:
        return
    mostly_rare = len(rare) > len(counts) / 2
    if mostly_rare and all(map(_is_number, counts)):
        raise ValueError(
            f"{source}: {len(rare)} of {len(counts)} different labels have fewer than the "
            f"{min_per_class} rows a class needs, and all are numbers. Is this a quantity? "
            "Only classes are learnt: cut it into ranges first, or pass min_per_class=1 "
            "(--min-per-class 1)"
        )
    num_rows = sum(counts.values())
    # Up to ten different labels are classes, of which some are rare by a slip of the pen.
    if mostly_rare and len(counts) > max(10, num_rows / 2):
        raise ValueError(
            f"{source}: {len(counts)} different labels in {num_rows} rows, such as {rare[0]!r}: "
            "they look like names of rows. Name the column of classes with label=... (--label), "
            "or pass min_per_class=1 (--min-per-class 1)"
        )
    others = f" (so have {len(rare) - 1} other labels)" if len(rare) > 1 else ""
    raise ValueError(
        f"{source}: label {rare[0]!r} has fewer than the {min_per_class} rows a class needs{others}; "
        "correct it, drop the row, or pass min_per_class=1 (--min-per-class 1)"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _warn_of_alike(names: Sequence[str], source: object) -> None:
    """Warn of class names that a person can hardly tell apart: they are probably one class."""
    alike = Counter(_plain(name) for name in names)
    for word in (word for word, count in alike.items() if count > 1):
        same = [name for name in names if _plain(name) == word]
        # Two ways to encode one accented letter look the same when printed: these are shown as escapes.
        differ = len({unicodedata.normalize("NFC", name) for name in same}) == len(same)
        listed = " and ".join((repr if differ else ascii)(name) for name in same)
        warn_caller(f"{source}: {listed} count as different labels; if they are one, write them alike")


def _warn_of_nothing(names: Sequence[str], source: object) -> None:
    """Warn of a class that is what programs write where nothing is; NA and None may well be classes."""
    for name in (name for name in names if name in _NOTHING):
        warn_caller(
            f"{source}: {name!r} counts as a class like the others; if these rows have no label, empty the "
            "cells, and leave the rows out: skip_unlabelled=True (--skip-unlabelled)"
        )


def _plain(name: str) -> str:
    """One form for all the names that look alike: Yes and yes, 1 and 1.0, an é of one character or two."""
    if len(name) == 1:
        return name  # the letters a and A may well be two classes
    plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    return re.sub(r"(?<=\d)\.0+$", "", plain)
