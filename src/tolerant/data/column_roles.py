"""What the columns of a table are for: labels, pictures, texts, names of the rows, or values to learn from.

The options say it, or else the columns themselves do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tolerant.data.dataset import Kind
from tolerant.data.encoders.cells import as_dates, as_numbers, as_words
from tolerant.data.encoders.findings import MAX_CATEGORIES, counts_rows
from tolerant.data.encoders.times import as_times
from tolerant.data.readers.texts import text_names
from tolerant.data.readers.walk import SUFFIXES as PICTURES

_FILES = ("file_name", "filename", "image", "img", "path")  # what lists of pictures call their column
_ID_NAME = re.compile(
    # The last two: userId and PassengerID, and what pandas calls the index that it wrote.
    r"(?i:id|key|index|uuid|guid|nr|.+[ _.-](id|key|index)|row[ _.-]?(names?|number|nr|no))|.*[a-z]I[dD]"
    r"|Unnamed: 0"
)
_HAS_LETTERS = re.compile(r"[^\W\d_]")
_HAS_DIGIT = re.compile(r"\d")
_ONE_WORD = re.compile(r"[\w.:/@#-]+")
_FEWEST_NAMED = 20  # rows; of fewer all words may differ by chance
_WORDS_OF_TEXT = 3  # on average; names of people and places have fewer
_MOST_LISTED = 8  # columns in a line


def with_label(frame: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the labels in the only column of classes, or called Label, if none is called label."""
    if "label" in options or "label" in frame.columns:
        return options
    classes = frame.attrs.get("classes", ()) or [name for name in frame.columns if name.lower() == "label"]
    return {**options, "label": classes[0]} if len(classes) == 1 else options


def _other_columns(frame: Any, options: Mapping[str, Any]) -> list[str]:
    """The columns without a role."""
    roles = {options.get(role) for role in ("label", "true_label", "id", "group")} | {"label"}
    return [column for column in frame.columns if column not in roles]


def picture_column(frame: Any, options: Mapping[str, Any]) -> str | None:
    """The column that holds pictures, or else the one that names their files."""
    stored = frame.attrs.get("pictures", ())
    if len(stored) > 1 and "file" not in options:
        raise ValueError(
            f"{frame.attrs['path']} has pictures in the columns {' and '.join(map(repr, stored))}. Say which "
            "with file=... (--file)"
        )
    if stored:
        return str(stored[0])
    others = _other_columns(frame, options)
    if others == ["file"]:
        return "file"
    # Beside measurements, a file is what these were measured on, unless the column is called file.
    likely = ["file"] if "file" in others else others if len(others) == 1 and others[0] in _FILES else []
    named = [name for name in likely if str(frame[name].iloc[0]).lower().endswith(PICTURES)]
    return named[0] if named else None


def kind_of_rows(frame: Any, options: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """What a table holds, as the options or else its columns say, and the options with that said."""
    if "file" not in options and "text" not in options:
        if _other_columns(frame, options) == ["text"]:
            options = {**options, "text": "text"}
        elif found := picture_column(frame, options):
            options = {**options, "file": found}
    if "file" in options:
        return "image", options
    no_columns = {*text_names(options.get("text")), *options.get("ignore", ()), *frame.attrs.get("index", ())}
    others = (name for name in _other_columns(frame, options) if name not in no_columns)
    if "text" in options and not any(has_values(frame[name]) for name in others):
        return "text", options
    return "table", options


def has_values(series: Any) -> bool:
    """Whether any cell of a column is filled."""
    try:
        return not as_words(series)[1].all()
    except ValueError:  # the reader says what is wrong with it
        return True


def guess_roles(frame: Any, options: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The options of a table with `id`, `text` and `ignore` filled in; ``say`` is told of each.

    A column in which nearly every row has another word tells a model nothing, or the row itself: it is the
    name of the rows, or a text. Texts are read beside the other columns, unless somebody has said which
    columns are texts. Names are left out, but if there is nothing else the longest are read as texts.
    """
    said = text_names(options.get("text"))
    known = {options.get(role) for role in ("id", "group", "true_label")} | {options.get("label", "label")}
    known |= {*said, *options.get("ignore", ()), *options.get("categorical", ())}
    kinds = {name: _kind(series, str(name)) for name, series in frame.items() if name not in known}
    texts = [name for name, kind in kinds.items() if kind == "text"]
    others = [*options.get("categorical", ()), *(name for name, kind in kinds.items() if kind == "other")]
    found, read = dict(options), [*said] or texts
    if not others and not read and (pool := [name for name, kind in kinds.items() if kind == "name"]):
        read = [max(pool, key=lambda name: frame[name].astype(str).str.len().mean())]
    names = [name for name, kind in kinds.items() if kind in ("name", "number") and name not in read]
    whole = (name for name in names if frame[name].is_unique and not frame[name].isna().any())
    if "id" not in options and (row_name := next(whole, None)) is not None:
        found["id"] = row_name
        say(f"Column {row_name!r} names the rows: --id {shlex.quote(row_name)}")
    if read:
        found["text"] = read
        say(_reading(read, others))
    left_out = [name for name in [*names, *texts] if name not in (found.get("id"), *read)]
    if left_out and (others or read):
        found["ignore"] = [*options.get("ignore", ()), *left_out]
        say(f"Left out, since nearly every row has something else there: {', '.join(map(repr, left_out))}")
        for name in [name for name in left_out if name not in texts][:1]:
            say(f"  To learn from one all the same: --categorical {shlex.quote(name)}")
    return found


def text_columns(frame: Any) -> list[str]:
    """The columns of free text, as `guess_roles` would read them."""
    return [name for name, series in frame.items() if _kind(series, str(name)) == "text"]


def _reading(texts: list[str], columns: list[str]) -> str:
    """What is read as texts, and beside which columns."""
    how = " ".join(f"--text {shlex.quote(name)}" for name in texts)
    if not columns:
        holds = f"Column {texts[0]!r} holds" if len(texts) == 1 else f"Columns {_listed(texts)} hold"
        return f"{holds} texts, and {'is' if len(texts) == 1 else 'are'} trained on: {how}"
    return f"Text: {_listed(texts)} ({how}); columns beside it: {_listed(columns)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(map(repr, names[:_MOST_LISTED])) + more


def _kind(series: Any, name: str) -> str:
    """ "name", "number" (of the rows), "text", "empty" or "other"."""
    try:
        numbers, empty = as_numbers(series, name)
        if empty.all():
            return "empty"
        if numbers is not None:
            # Without a look at the words, on which a table of 100,000 columns would spend half of its time.
            return "number" if _number_rows(numbers, series, name) else "other"
        if as_dates(series, name)[0] is not None or as_times(series, name)[0] is not None:
            return "other"
        words, empty = as_words(series)
    except ValueError:  # the reader says what is wrong with it
        return "other"
    filled = words[~empty]
    different = len(set(filled.tolist()))
    # A word that no other row has tells nothing of any, however few rows there are.
    alone = different == len(filled) >= _FEWEST_NAMED
    # Not everybody writes a comment: half of those that are there must differ.
    if different <= max(MAX_CATEGORIES, len(filled) / 2) and not alone:
        return "other"
    if np.mean([len(word.split()) for word in filled]) >= _WORDS_OF_TEXT:
        return "text" if _share_words(filled) else "name"
    if different <= len(words) / 2:
        return "other"
    return "name" if np.mean([_is_name(word) for word in filled]) > 0.9 else "other"


def _share_words(cells: np.ndarray) -> bool:
    """Whether any two have a word in common, without which nothing can be learnt from them."""
    seen: set[str] = set()
    for cell in cells:
        words = set(cell.lower().split())
        if not seen.isdisjoint(words):
            return True
        seen |= words
    return False


def _is_name(word: str) -> bool:
    """Whether it names a row, a person or a place. Amounts ($1,234) and dates do not: rewrite those."""
    return bool(_HAS_LETTERS.search(word) and (_ONE_WORD.fullmatch(word) or not _HAS_DIGIT.search(word)))


def _number_rows(numbers: np.ndarray, series: Any, name: str) -> bool:
    """Whether they count the rows, or differ in all of them in a column that is called like an id."""
    if len(numbers) < _FEWEST_NAMED or not (numbers % 1 == 0).all():  # a missing one is NaN
        return False
    if counts_rows(numbers):
        return True
    # As words: numbers of 18 digits differ, their floats may not.
    return bool(_ID_NAME.fullmatch(name)) and len(set(as_words(series)[0])) == len(numbers)
