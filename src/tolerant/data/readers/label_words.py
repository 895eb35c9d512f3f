"""Labels as people write them, turned into class numbers; likely slips are pointed out."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tolerant.hints import warn_caller


def encode_labels(
    words: Any,
    source: object,
    class_names: Any = None,
    min_per_class: int = 2,
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
            raise ValueError(f"{source}: label {unknown[0]!r} is none of the classes {known!r}")
    else:
        _check_counts(dict(zip(names, counts.tolist(), strict=True)), source, min_per_class)
        _warn_of_alike(names, source)
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


def _plain(name: str) -> str:
    """One form for all the names that look alike: Yes and yes, 1 and 1.0, an é of one character or two."""
    if len(name) == 1:
        return name  # the letters a and A may well be two classes
    plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    return re.sub(r"(?<=\d)\.0+$", "", plain)
