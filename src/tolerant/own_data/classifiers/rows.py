"""The rows of a data set as classifiers take them: dense, as columns with gaps and codes, or sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tolerant.data.dataset import LazySubset, NoisyDataset
from tolerant.data.digest import row_digests
from tolerant.data.encoders.columns import Column
from tolerant.data.encoders.sparse import SparseRows
from tolerant.data.features import FeatureRows
from tolerant.extras import extra


class OwnRows:
    """Rows as a user's own classifier takes them: an array, a sparse matrix or a frame, unread."""

    dtype = np.dtype(object)

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.shape: tuple[int, ...] = tuple(rows.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return take(self.rows, index)

    @property
    def digests(self) -> np.ndarray:
        """For `tolerant.data.digest.row_digests`."""
        if hasattr(self.rows, "iloc"):
            hashed = extra("pandas").util.hash_pandas_object(self.rows, index=False)
            return np.asarray(hashed.to_numpy().view(np.int64))
        if hasattr(self.rows, "tocsr"):
            return SparseRows(self.rows, 1.0).digests
        if self.rows.dtype == object:
            return row_digests(np.array([repr(row) for row in self.rows.tolist()], object))
        return row_digests(self.rows)


def is_sparse(dataset: NoisyDataset) -> bool:
    return isinstance(dataset.inputs, SparseRows)


def are_texts(dataset: NoisyDataset) -> bool:
    """Sparse rows, such as those of texts; not of a table, though it has some.

    To leave doubted rows out, and to move predictions, as is done for tables and not as for texts was worth
    1.6 points there (standard error 0.7; five development sets, 15 draws of labels).
    """
    return is_sparse(dataset) and not has_part("columns", dataset)


def whole(dataset: NoisyDataset) -> Any:
    """All features, float32: dense, or a sparse matrix as it was before it was scaled for networks."""
    if isinstance(dataset.inputs, SparseRows):
        return dataset.inputs.unscaled()
    if isinstance(dataset.inputs, OwnRows):
        return dataset.inputs.rows
    return np.asarray(dataset.inputs[np.arange(len(dataset))])


def of_table(dataset: NoisyDataset) -> Any:
    """Of a table with texts its columns alone, dense; else all features."""
    return _part(dataset, "columns").toarray() if has_part("columns", dataset) else whole(dataset)


def with_words(dataset: NoisyDataset) -> Any:
    """Of a table with texts its columns and their words; else all features.

    The columns of each row are brought to the length that its words have. By steps, each on one row, the
    minimum is then found in a thirtieth of the time; and alone it was worth 1.3 points against columns as
    they are (seven development sets, 20 draws of labels).
    """
    if not has_part("columns", dataset):
        return whole(dataset)
    found = _part(dataset, "columns")
    places = of_many_words(dataset, of_table)  # brought to a length they would say nothing
    columns = extra("sklearn.preprocessing").normalize(found[:, np.delete(np.arange(found.shape[1]), places)])
    return extra("scipy.sparse").hstack([columns, _part(dataset, "words")], "csr", np.float32)


def unread(dataset: NoisyDataset) -> Any:
    """All features; a memory map stays one."""
    return dataset.inputs


def words(dataset: NoisyDataset) -> Any:
    """Of texts the columns of words; else all."""
    return _part(dataset, "words")


def characters(dataset: NoisyDataset) -> Any:
    """Of texts the columns of characters."""
    return _part(dataset, "characters")


def meaning(dataset: NoisyDataset) -> np.ndarray:
    """Of texts the features of a pretrained extractor, dense."""
    return np.asarray(_part(dataset, "meaning").toarray())


def has_part(name: str, dataset: NoisyDataset) -> bool:
    """Whether the rows are texts, or have some, and a part of that name (`SparseRows.parts`)."""
    return name in getattr(dataset.inputs, "parts", ())


def columns(dataset: NoisyDataset) -> np.ndarray:
    """float32 [N, columns]: a number is itself, a category its code, and a missing one NaN.

    A table is read into a feature for each category (`TableEncoder`); here they are one column again, the
    most frequent first, which trees split in few steps.
    """
    table, encoder = of_table(dataset), dataset.encoder
    if encoder is None:
        return np.asarray(table)
    found = np.empty((len(table), len(encoder.columns)), np.float32)
    for number, (column, features) in enumerate(zip(encoder.columns, encoder.slices, strict=True)):
        found[:, number] = _values(column, table[:, features])
    return found


def _values(column: Column, block: np.ndarray) -> np.ndarray:
    """Of one column: what `columns` makes of its features."""
    values = block[:, 0]
    if column.categories:
        known = block[:, : block.shape[1] - column.missing]
        if column.has_place:
            values = column.places(known[:, -1])
        else:
            values = np.where(known.any(1), known.argmax(1), len(column.categories))
    return np.where(block[:, -1] > 0, np.nan, values) if column.missing else values


def without_empty(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """`columns` of rows to fit, with zeros in those that hold nothing there, as nearly empty ones in a fold.

    scikit-learn's boosting (1.9) cannot bin a column without a value.

    >>> without_empty(np.array([[1.0, np.nan], [np.nan, np.nan]]), None).tolist()
    [[1.0, 0.0], [nan, 0.0]]
    """
    empty = np.isnan(X if weight is None else X[weight > 0]).all(axis=0)
    return np.where(empty, np.float32(0), X) if empty.any() else X


def of_many_words(dataset: NoisyDataset, given: Callable[[NoisyDataset], Any]) -> list[int]:
    """Which columns of ``given(dataset)`` say which of very many words a cell holds (`Column.has_place`)."""
    own = () if dataset.encoder is None else dataset.encoder.columns
    if dataset.encoder is None or not any(column.has_place for column in own):
        return []  # before it is worked out where 100,000 columns lie
    if given is columns:
        return [number for number, column in enumerate(own) if column.has_place]
    if given is of_table or (given in (whole, with_words) and not is_sparse(dataset)):
        lie = zip(own, dataset.encoder.slices, strict=True)
        return [features.stop - 1 - column.missing for column, features in lie if column.has_place]
    return []  # the other rows are words of texts, or columns brought to their length


def take(rows: Any, index: np.ndarray) -> Any:
    """The rows of ``index``, of an array, a sparse matrix, a frame, or unread."""
    if isinstance(rows, FeatureRows | LazySubset | np.memmap):
        return LazySubset(rows, index)
    return rows.iloc[index] if hasattr(rows, "iloc") else rows[index]


def _part(dataset: NoisyDataset, name: str) -> Any:
    inputs = dataset.inputs
    return inputs.part(name) if isinstance(inputs, SparseRows) and inputs.parts else whole(dataset)
