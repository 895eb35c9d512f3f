"""CSV, JSON Lines and Parquet files: tables, and tables with a column of text."""

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
from tolerant.data.dataset import NoisyDataset, encode_labels
from tolerant.data.encoder import TableEncoder
from tolerant.extras import extra

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_FEWEST_TO_JUDGE = 20  # in fewer rows a column may be like the label by chance


def check_table(path: Path) -> None:
    """A ValueError for a file that, by its ending, is none of those read here."""
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
    or 007 keeps its name. The separator is the one of , ; tab and | that the first line has most of.
    """
    pandas = extra("pandas")
    path = Path(path)
    try:
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path)
        elif ".jsonl" in [ending.lower() for ending in path.suffixes[-2:]]:
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
    except Exception as error:  # pandas and pyarrow have their own for every kind of damage
        raise ValueError(f"{path} is not a readable table: {reason(error)}") from error
    frame.columns = _stripped([str(name) for name in frame.columns])
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
    frame.attrs["separator"] = separator  # which tells what a comma means in a number
    return frame


def _read_json_lines(path: Path) -> Any:
    rows = []
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise ValueError(f"line {number} is not JSON: {error}") from error
                if not isinstance(rows[-1], dict):
                    raise ValueError(f"line {number} is no JSON object with a name for every cell")
    return extra("pandas").DataFrame(rows)


def _open(path: Path) -> IO[bytes]:
    packed: IO[bytes] = _UNPACK.get(path.suffix.lower(), open)(path, "rb")
    return packed


def _stripped(names: Sequence[str]) -> list[str]:
    """Names without blanks around them, but for one that another column has already."""
    found: dict[str, None] = {}
    for name in names:
        found[name if name.strip() in found else name.strip()] = None
    return list(found)


def load_table(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    label: str = "label",
    true_label: str | None = None,
    text: str | None = None,
    id: str | None = None,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    encoder: TableEncoder | None = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
    skip_unlabelled: bool = False,
) -> NoisyDataset:
    """A data set from a CSV, TSV, JSON Lines or Parquet file.

    frame: its rows as a DataFrame, if they are read already; `path` then only names them.
    label, true_label, id: the columns of given labels, true labels and row names.
    text: the column of text; without it every other column is a feature.
    ignore, categorical: columns to leave out, which a person still sees; columns of codes that look
        like numbers.
    encoder, class_names: those of the training rows, for rows that come later.
    skip_unlabelled: leave rows with an empty label out; without `id` the others keep their number.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("size,colour,kind\\n1.5,red,apple\\n0.2,blue,plum\\n1.4,red,apple\\n0.3,red,plum")
    ...     file.flush()
    ...     rows = load_table(file.name, label="kind")
    >>> rows.class_names, rows.given_labels.tolist(), rows.encoder.feature_names
    (('apple', 'plum'), [0, 1, 0, 1], ('size', 'colour = red', 'colour = blue'))
    """
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, label=label, true_label=true_label, text=text, id=id)
    for name in ignore:
        check_columns(frame, path, ignore=name)
    ids = None if id is None else frame[id].to_numpy(object).astype(str)
    if skip_unlabelled:
        rows = labelled_rows(frame, label, path)
        frame, ids = frame.iloc[rows], rows if ids is None else ids[rows]
    given, names = encode_labels(label_words(frame, label, path), path, class_names, min_per_class)
    true = None
    if true_label is not None:
        true, _ = encode_labels(label_words(frame, true_label, path), path, names)
    if text is not None:
        texts = np.array([str(cell) for cell in frame[text].fillna("")], object)
        return NoisyDataset(texts, given, true, names, ids, "text")
    used = {label, true_label, id, *ignore}
    features = frame[[name for name in frame.columns if name not in used]]
    if encoder is None:
        _warn_of_copies(features, given, label)
        encoder = TableEncoder.fit(features, categorical=categorical)
    inputs = encoder.transform(features)
    shown = dict.fromkeys([*(c.name for c in encoder.columns), *ignore])
    cells = frame[[name for name in shown if name not in (label, true_label, id)]]
    return NoisyDataset(inputs, given, true, names, ids, "table", encoder, cells=cells)


def _warn_of_copies(features: Any, given: np.ndarray, label: str) -> None:
    """A column that is the label again, under any names, makes every label look right."""
    pandas = extra("pandas")
    for name in features.columns if len(given) >= _FEWEST_TO_JUDGE else ():
        for rows in (1000, len(given)):  # nearly every column is done with after the first
            codes, words = pandas.factorize(features[name].iloc[:rows].astype(str))
            labels = len(np.unique(given[:rows]))
            pairs = len(np.unique(codes * (given.max() + 1) + given[:rows]))
            if not pairs == len(words) == labels:
                break
        else:
            warnings.warn(
                f"column {name!r} is {label!r} in other words, so every label will look right; "
                f"leave it out: ignore=[{name!r}] (--ignore {name!r})",
                stacklevel=3,
            )


def check_columns(frame: Any, path: Any, **wanted: str | None) -> None:
    """A ValueError for the first option that names a column the table has not."""
    for option, name in wanted.items():
        if name is not None and name not in frame.columns:
            command = f" (--{option})" if option in ("label", "id", "file", "text", "ignore") else ""
            raise ValueError(
                f"{path} has no column {name!r}; it has {list(frame.columns)}. "
                f"Say which with {option}=...{command}"
            )


def label_words(frame: Any, name: str, path: Any) -> list[str]:
    """The label words, all of which must be there; whole numbers stored as floats lose their .0."""
    words = _words(frame, name)
    empty = [row for row, word in enumerate(words) if not word]
    if empty:
        raise ValueError(
            f"{path}: {len(empty)} rows have no {name!r} (first: row {empty[0]}, counted from 0); "
            "fill them in, or leave those rows out: skip_unlabelled=True (--skip-unlabelled)"
        )
    return words


def labelled_rows(frame: Any, name: str, path: Any) -> np.ndarray:
    """The rows that have a label; a warning that says how many have none."""
    rows = np.flatnonzero([bool(word) for word in _words(frame, name)])
    if len(rows) < len(frame):
        warnings.warn(
            f"{path}: {len(frame) - len(rows):,} of {len(frame):,} rows have no {name!r} and are left out; "
            "the trained model can label them: tolerant predict",
            stacklevel=5,  # where `load` was called
        )
    return rows


def _words(frame: Any, name: str) -> list[str]:
    return [
        "" if cell is None or cell != cell  # NaN alone differs from itself
        else str(int(cell)) if isinstance(cell, float) and cell.is_integer()
        else str(cell).strip()
        for cell in frame[name].to_numpy(object)
    ]  # fmt: skip
