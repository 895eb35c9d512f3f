"""CSV and Parquet files: tables, and tables with a column of text."""

from __future__ import annotations

import codecs
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.damage import reason
from tolerant.data.dataset import NoisyDataset, encode_labels
from tolerant.data.encoder import TableEncoder
from tolerant.extras import extra

SUFFIXES = (".csv", ".tsv", ".parquet")
_FEWEST_TO_JUDGE = 20  # in fewer rows a column may be like the label by chance


def read_frame(path: str | os.PathLike[str]) -> Any:
    """The rows of a CSV, TSV or Parquet file as a pandas DataFrame.

    Cells of text files stay words here, so that a class called NA or 007 keeps its name. The
    separator is the one of , ; tab and | that the first line has most of.
    """
    pandas = extra("pandas")
    path = Path(path)
    try:
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path)
        else:
            with path.open("rb") as start:
                utf16 = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text"
            encoding = "utf-16" if utf16 else "utf-8-sig"
            with path.open(encoding=encoding) as file:
                header = file.readline(2**20)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # pandas warns of rows longer than the header
                frame = pandas.read_csv(
                    path,
                    sep=max(",;\t|", key=header.count),
                    dtype=str,
                    keep_default_na=False,
                    index_col=False,
                    encoding=encoding,
                )
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: it has a byte {error.object[error.start]:#04x}. "
            f'Save it as UTF-8 (in Excel "CSV UTF-8"), or: iconv -f WINDOWS-1252 -t UTF-8 {path.name}'
        ) from error
    except Exception as error:  # pandas and pyarrow have their own for every kind of damage
        raise ValueError(f"{path} is not a readable table: {reason(error)}") from error
    frame.columns = [str(name).strip() for name in frame.columns]
    if not len(frame):
        raise ValueError(f"{path} has no rows")
    return frame


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
) -> NoisyDataset:
    """A data set from a CSV, TSV or Parquet file.

    frame: its rows as a DataFrame, if they are read already; `path` then only names them.
    label, true_label, id: the columns of given labels, true labels and row names.
    text: the column of text; without it every other column is a feature.
    ignore, categorical: columns to leave out; columns of codes that look like numbers.
    encoder, class_names: those of the training rows, for rows that come later.

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
    given, names = encode_labels(label_words(frame, label, path), path, class_names, min_per_class)
    true = None
    if true_label is not None:
        true, _ = encode_labels(label_words(frame, true_label, path), path, names)
    ids = None if id is None else frame[id].to_numpy(object).astype(str)
    if text is not None:
        texts = np.array([str(cell) for cell in frame[text].fillna("")], object)
        return NoisyDataset(texts, given, true, names, ids, "text")
    used = {label, true_label, id, *ignore}
    features = frame[[name for name in frame.columns if name not in used]]
    if encoder is None:
        _warn_of_copies(features, given, label)
        encoder = TableEncoder.fit(features, categorical=categorical)
    return NoisyDataset(encoder.transform(features), given, true, names, ids, "table", encoder)


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
            command = f" (--{option})" if option in ("label", "id", "text", "ignore") else ""
            raise ValueError(
                f"{path} has no column {name!r}; it has {list(frame.columns)}. "
                f"Say which with {option}=...{command}"
            )


def label_words(frame: Any, name: str, path: Any) -> list[str]:
    """The label words; whole numbers stored as floats lose their .0."""
    words = [
        "" if cell is None or cell != cell  # NaN alone differs from itself
        else str(int(cell)) if isinstance(cell, float) and cell.is_integer()
        else str(cell).strip()
        for cell in frame[name].to_numpy(object)
    ]  # fmt: skip
    empty = [row for row, word in enumerate(words) if not word]
    if empty:
        raise ValueError(
            f"{path}: {len(empty)} rows have no {name!r} (first: row {empty[0]}, counted from 0); "
            "fill them in or drop those rows"
        )
    return words
