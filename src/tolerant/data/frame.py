"""Files of rows as pandas frames, and what their columns must hold."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import lzma
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from tolerant.data.damage import reason
from tolerant.extras import extra

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_MOST_NAMED = 20  # columns in a message
_UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def check_table(path: Path) -> None:
    """A ValueError for a file whose ending is none of those read here."""
    packed = [f"{text}{end}" for text in SUFFIXES[:3] for end in _UNPACK]
    if not path.name.lower().endswith((*SUFFIXES, *packed)):
        sheet = path.suffix.lower() in (".xlsx", ".xls", ".ods")
        hint = '. Save the sheet as CSV (in Excel "CSV UTF-8")' if sheet else ""
        raise ValueError(
            f"{path}: only folders, .npz, {', '.join(SUFFIXES)}, and .csv.gz and the like are read{hint}"
        )


def read_frame(path: str | os.PathLike[str]) -> Any:
    """The rows of a CSV, TSV, JSON Lines or Parquet file as a pandas DataFrame.

    Text may be packed (.csv.gz, .bz2, .xz). Cells of CSV and TSV stay words here, so that a class called NA
    or 007 keeps its name. The separator is whichever of , ; tab and | the first line has most of.
    """
    pandas = extra("pandas")
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        extra("pyarrow")  # pandas' own message names two engines, but not how to get one
    try:
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path, engine="pyarrow")
            # To others an index with a name is a column of the file, and --id may name it; but no feature.
            index = [name for name in frame.index.names if name is not None and name not in frame.columns]
            frame = frame.reset_index(index) if index else frame
            frame.attrs["index"] = [str(name).strip() for name in index]
        elif (path.with_suffix("") if path.suffix.lower() in _UNPACK else path).suffix.lower() == ".jsonl":
            frame = _read_json_lines(path)
        else:
            frame = _read_separated(path)
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: it has a byte {error.object[error.start]:#04x}. "
            f'Save it as UTF-8 (in Excel "CSV UTF-8"), or: iconv -f WINDOWS-1252 -t UTF-8 {path.name}'
        ) from error
    except Exception as error:  # pandas and pyarrow raise many kinds of their own
        raise ValueError(f"{path} is not a readable table: {reason(error)}") from error
    frame.columns = _stripped([str(name) for name in frame.columns])
    frame.index = range(len(frame))  # messages name rows by it, even where some are left out
    if not len(frame):
        raise ValueError(f"{path} has no rows")
    return frame


def _read_separated(path: Path) -> Any:
    pandas = extra("pandas")
    with _open(path) as start:
        utf16 = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text"
    encoding = "utf-16" if utf16 else "utf-8-sig"
    with _open(path) as file:
        header = codecs.getreader(encoding)(file).readline(2**20)
    separator = max(",;\t|", key=header.count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pandas warns of rows longer than the header
        try:
            frame = pandas.read_csv(
                path,
                sep=separator,
                dtype=str,
                keep_default_na=False,
                index_col=False,
                encoding=encoding,
            )
        except pandas.errors.ParserWarning as error:
            raise ValueError(
                "its rows have more cells than its first line, which must name every column"
            ) from error
    first = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    twice = [name for name, count in Counter(first).items() if name and count > 1]
    if twice:
        warnings.warn(
            f"{path} has more than one column {twice[0]!r}; the first of them is meant by that name",
            stacklevel=5,  # where `load` was called
        )
    frame.attrs["separator"] = separator  # decides what a comma means in a number
    return frame


def _read_json_lines(path: Path) -> Any:
    rows = []
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    rows.append(json.loads(_whole_characters(line)))
                except json.JSONDecodeError as error:
                    raise ValueError(f"line {number} is not JSON: {error}") from error
                if not isinstance(rows[-1], dict):
                    raise ValueError(f"line {number} is not a JSON object with a name for every cell")
    return extra("pandas").DataFrame(rows)


def _whole_characters(line: bytes) -> bytes | str:
    r"""JSON without lone surrogates, which cutting a text at a length leaves: "\ud83d" becomes U+FFFD.

    pandas refuses them, and no file could hold them.
    """
    if b"\\ud" not in line.lower():
        return line
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _open(path: Path) -> IO[bytes]:
    packed: IO[bytes] = _UNPACK.get(path.suffix.lower(), open)(path, "rb")
    return packed


def _stripped(names: Sequence[str]) -> list[str]:
    """Names without blanks around them; a repeated one gets a number, as in pandas."""
    found: dict[str, None] = {}
    for name in map(str.strip, names):
        own, number = name, 0
        while own in found:
            number += 1
            own = f"{name}.{number}"
        found[own] = None
    return list(found)


def check_columns(frame: Any, path: Any, **wanted: str | None) -> None:
    """A ValueError for the first option that names a column the table does not have."""
    for option, name in wanted.items():
        if name is not None and name not in frame.columns:
            names = list(frame.columns)
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            command = f" (--{option})" if option in ("label", "id", "file", "text", "ignore", "group") else ""
            raise ValueError(
                f"{path} has no column {name!r}; it has {names[:_MOST_NAMED]}{more}. "
                f"Say which with {option}=...{command}"
            )


def label_words(frame: Any, name: str, path: Any) -> list[str]:
    """The label words, all of which must be there; whole numbers stored as floats lose their .0."""
    words = _words(frame, name)
    empty = [row for row, word in enumerate(words) if not word]
    if empty:
        raise ValueError(
            f"{path}: {len(empty)} rows have no {name!r} (first: row {frame.index[empty[0]]}, counted from "
            "0); fill them in, or leave those rows out: skip_unlabelled=True (--skip-unlabelled)"
        )
    return words


def labelled_rows(frame: Any, name: str, path: Any) -> np.ndarray:
    """The rows that have a label; warns how many have none."""
    rows = np.flatnonzero([bool(word) for word in _words(frame, name)])
    if len(rows) < len(frame):
        warnings.warn(
            f"{path}: {len(frame) - len(rows):,} of {len(frame):,} rows have no {name!r} and are left out; "
            "the trained model can label them: tolerant predict",
            stacklevel=5,  # where `load` was called
        )
    return rows


def group_numbers(frame: Any, name: str, label: str, path: Any) -> np.ndarray:
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


def texts(frame: Any, name: str) -> np.ndarray:
    """The cells of a column as they are, object (N,) of str; "" for a missing one."""
    cells = zip(frame[name].to_numpy(object), frame[name].isna(), strict=True)
    return np.array(["" if missing else str(cell) for cell, missing in cells], object)


def _words(frame: Any, name: str) -> list[str]:
    return [
        "" if missing
        else str(int(cell)) if isinstance(cell, float) and cell.is_integer()
        else str(cell).strip()
        for cell, missing in zip(frame[name].to_numpy(object), frame[name].isna(), strict=True)
    ]  # fmt: skip
