"""Data frames as they are, with words, gaps, dates and texts, and rows of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tolerant.adapters.sklearn_inputs import is_missing
from tolerant.data.column_roles import has_values, text_columns
from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.columns import TableEncoder
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.texts import texts_in
from tolerant.own_data.settings import Settings
from tolerant.own_data.text_features import reads_characters, takes_characters


@dataclass(frozen=True)
class FrameReader:
    """Turns a frame, or texts, into a data set, the same way for training and for new rows."""

    encoder: InputEncoder
    texts: tuple[str, ...]
    """Of a frame the columns of text."""

    @classmethod
    def fit(cls, X: Any, settings: Settings) -> FrameReader:
        """Learn from the training rows how they are read. A column of pandas' type "category" has words."""
        table, texts = None, list[str]()
        if hasattr(X, "columns"):
            X = _named(X)
            texts = text_columns(X)
            columns = X.drop(columns=texts)
            codes = [name for name, dtype in columns.dtypes.items() if dtype == "category"]
            if not texts or any(has_values(column) for _, column in columns.items()):
                table = TableEncoder.fit(_whole_codes(columns, codes), categorical=codes)
        rows = _read(X, table, texts)
        labels = np.zeros(len(X), np.int64)
        raw = NoisyDataset(rows.inputs, labels, None, ("",), None, rows.kind, table, texts=rows.texts)
        characters = reads_characters(raw, takes_characters(settings))
        return cls(InputEncoder.fit(raw, with_characters=characters), tuple(texts))

    @property
    def sparse(self) -> bool:
        """Whether the rows are, as those with texts."""
        return self.encoder.text is not None

    def dataset(self, X: Any, labels: np.ndarray, class_names: tuple[str, ...]) -> NoisyDataset:
        """The rows X with these labels."""
        of_frame = self.encoder.encoder is not None or bool(self.texts)
        if not (hasattr(X, "columns") if of_frame else are_texts(X)):
            wanted = "a data frame" if of_frame else "a list of texts"
            raise ValueError(f"X must be {wanted}, as in fit; got {type(X).__name__}.")
        X = _named(X) if of_frame else X
        rows = _read(X, self.encoder.encoder, self.texts)
        return replace(self.encoder.unlabelled(rows, "X"), given_labels=labels, class_names=class_names)

    def news(self, X: Any) -> list[str]:
        """What the rows of a frame have that no fitted one had, a sentence each."""
        table = self.encoder.encoder
        return [] if table is None else table.news(_as_words(_named(X), table))


def _read(X: Any, table: TableEncoder | None, texts: Sequence[str]) -> Unlabelled:
    """A frame, by the encoder of its columns and the names of those of text; or texts."""
    if not hasattr(X, "columns"):
        return Unlabelled(np.asarray(X, object), None, "text")
    found = texts_in(X, texts) if texts else None
    if table is None:
        assert found is not None
        return Unlabelled(found, None, "text")
    return Unlabelled(table.transform(_as_words(X, table)), None, "table", found)


def _as_words(X: Any, table: TableEncoder) -> Any:
    """The frame with its columns of words as they were fitted."""
    return _whole_codes(X, [column.name for column in table.columns if column.kind == "category"])


def must_be_read(X: Any) -> bool:
    """Whether X is a frame that has other columns than whole ones of numbers, or rows of texts."""
    if not hasattr(X, "columns"):
        return are_texts(X)
    return any(dtype.kind not in "iufb" for dtype in X.dtypes) or bool(X.isna().any(axis=None))


def as_pandas(X: Any) -> Any:
    """Frames and series of polars and pyarrow as those of pandas; anything else as it is."""
    return X.to_pandas() if hasattr(X, "to_pandas") else X


def are_texts(X: Any) -> bool:
    """Whether X is a row of texts: a list, an array or a series of them, some perhaps missing.

    >>> are_texts(["a red fox"]), are_texts([None, "a red fox"]), are_texts([["a red fox"]]), are_texts([1.0])
    (True, True, False, False)
    """
    if not isinstance(X, list | tuple) and getattr(X, "ndim", 0) != 1:
        return False
    if getattr(getattr(X, "dtype", None), "kind", "O") in "biufc":
        return False
    return len(X) > 0 and isinstance(next((cell for cell in X if not is_missing(cell)), ""), str)


def as_texts(X: Any) -> np.ndarray:
    """Object (n,) of str, "" for a missing one, as in a column of texts."""
    texts = np.array(["" if is_missing(cell) else cell for cell in X], object)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"X must hold texts; got {type(text).__name__} in row {row}: {text!r}. Write it as one, "
                "or leave None there, which counts as an empty text."
            )
    return texts


def _whole_codes(frame: Any, names: Sequence[str]) -> Any:
    """The frame with whole numbers in these columns of words, where pandas has made floats of them.

    It does so where one is missing, and the word would be 1.0 in place of 1.
    """
    found = {}
    for name in names:
        if name in frame.columns and _numbers(frame[name]).dtype.kind == "f":
            numbers = frame[name].astype("Float64")
            if (numbers % 1 == 0).all() and (numbers.abs() < 2**53).all():  # of those that are there
                found[name] = "Int64"
    return frame.astype(dict.fromkeys(found, "Float64")).astype(found) if found else frame


def _numbers(column: Any) -> Any:
    """The different values of a column of codes, else itself."""
    return column.cat.categories if column.dtype == "category" else column


def _named(frame: Any) -> Any:
    """The frame with columns that have words for names."""
    return frame.set_axis([str(name) for name in frame.columns], axis=1)
