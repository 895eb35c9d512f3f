"""Rows of a table as a person knows them, for the cards of the review page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tolerant.data.encoder import TableEncoder

_MOST_COLUMNS = 40  # more is no longer read


def columns_and_values(
    rows: NDArray[np.float32],
    encoder: TableEncoder | None,
    feature_names: Sequence[str] | None,
) -> tuple[list[str], list[list[str]]]:
    """Names and values of the columns of `rows`, as text.

    With the encoder that made the features, the columns as they were in the table: numbers in their
    own unit, words as words. Else the features themselves, under `feature_names` if given.
    """
    if encoder is not None and feature_names is None:
        names = [column.name for column in encoder.columns]
        values = [list(_decoded(row, encoder)) for row in rows]
    else:
        names = _check_names(feature_names, rows.shape[1])
        values = [[f"{value:.5g}" for value in row] for row in rows.tolist()]
    return names[:_MOST_COLUMNS], [row[:_MOST_COLUMNS] for row in values]


def _decoded(row: NDArray[np.float32], encoder: TableEncoder) -> Iterator[str]:
    place = 0
    for column in encoder.columns:
        width = len(column.feature_names)
        own = row[place : place + width]
        place += width
        if column.missing and own[-1] == 1.0:
            yield "missing"
        elif column.kind == "number":
            yield f"{float(own[0]) * column.std + column.mean:.6g}"
        elif column.kind == "date":
            days = float(own[0]) * column.std + column.mean
            yield str(np.datetime64(int(np.floor(days + 0.01)), "D"))  # midnight, to the digits of float32
        else:
            words = [word for word, is_it in zip(column.categories, own, strict=False) if is_it]
            yield words[0] if words else "another"


def _check_names(names: Sequence[str] | None, num_features: int) -> list[str]:
    if names is None:
        return [f"feature {number}" for number in range(1, num_features + 1)]
    if len(names) != num_features:
        raise ValueError(f"feature_names must name {num_features} columns; got {len(names)} names.")
    return [str(name) for name in names]
