"""Rows of a table as a person knows them, for the cards of the review page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tolerant.data.dataset import NoisyDataset

_MOST_COLUMNS = 40  # nobody reads more
_MOST_CHARACTERS = 500  # of a cell: enough for a comment, and 5,000 rows with a few of them stay under 10 MB


def columns_and_values(
    dataset: NoisyDataset, index: np.ndarray, feature_names: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Names and values of the columns, as text, of the rows of `index`.

    The cells as they stand in the table where the data set has them; else the features, under
    `feature_names` or the encoder's.
    """
    if dataset.cells is not None and feature_names is None:
        used = {column.name for column in dataset.encoder.columns} if dataset.encoder else set(dataset.cells)
        return _cells(dataset.cells, index, used)
    rows = np.asarray(dataset.inputs[index])
    if feature_names is None and dataset.encoder is not None:
        feature_names = dataset.encoder.feature_names
    names = _check_names(feature_names, rows.shape[1])
    return names[:_MOST_COLUMNS], [[f"{v:.5g}" for v in row[:_MOST_COLUMNS]] for row in rows.tolist()]


def _cells(frame: Any, index: np.ndarray, used: set[str]) -> tuple[list[str], list[list[str]]]:
    ours = [name for name in frame.columns if name in used]
    others = [name for name in frame.columns if name not in used]
    # Of a wide table, columns that are not used are shown too: a comment tells a person more than feature 38.
    room = max(_MOST_COLUMNS - len(others), _MOST_COLUMNS // 2)
    names = [*ours[:room], *others][:_MOST_COLUMNS]
    shown = frame[names].iloc[index]
    columns = []
    for name in names:
        words, missing = shown[name].astype(str).tolist(), shown[name].isna().tolist()
        columns.append(
            [
                "missing" if absent or not word.strip() else cut(word, _MOST_CHARACTERS)
                for word, absent in zip(words, missing, strict=True)
            ]
        )
    titles = [f"{name}" if name in used else f"{name} (not used)" for name in names]
    return titles, [list(row) for row in zip(*columns, strict=True)]


def cut(text: str, most: int) -> str:
    """The first ``most`` characters, and a note if there were more."""
    return text if len(text) <= most else f"{text[:most]} … (cut here)"


def _check_names(names: Sequence[str] | None, num_features: int) -> list[str]:
    if names is None:
        return [f"feature {number}" for number in range(1, num_features + 1)]
    if len(names) != num_features:
        raise ValueError(f"feature_names must name {num_features} columns; got {len(names)} names.")
    return [str(name) for name in names]
