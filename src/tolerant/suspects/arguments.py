"""The names, labels, ids and row-wise values that a user passes to `find_suspects`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_labels

T = TypeVar("T", np.bool_, np.int64)


def check_names(class_names: Sequence[str] | None, num_classes: int) -> tuple[str, ...]:
    """The classes' names, or their numbers as words; a ValueError if two are equal or one is empty."""
    names = tuple(map(str, range(num_classes) if class_names is None else class_names))
    if len(names) != num_classes or len(set(names)) != num_classes or "" in names:
        raise ValueError(
            f"class_names must be {num_classes} different names, none empty; got {names[:5]!r}"
            f"{' ...' if len(names) > 5 else ''} ({len(names)} names)."
        )
    return names


def read_labels(
    argument: str, values: ArrayLike, num_rows: int, names: tuple[str, ...], *, named: bool
) -> NDArray[np.int64]:
    """Class numbers, one for each row; ``named``: the caller gave the names, so labels may be words."""
    labels = np.asarray(values)
    if labels.dtype.kind in "OUT":
        if not named:
            raise ValueError(
                f"{argument} must be whole numbers, or words with class_names that say which column of "
                "probs is whose, such as a scikit-learn model's classes_; got words "
                f"({labels.ravel()[0]!r} ...)."
            )
        labels = _number_words(argument, labels, names)
    checked = check_labels(labels, len(names), argument)
    if len(checked) != num_rows:
        raise ValueError(
            f"{argument} must have a label for each of the {num_rows} rows of probs; got {len(checked)}."
        )
    return checked


def _number_words(argument: str, words: NDArray[Any], names: tuple[str, ...]) -> NDArray[np.int64]:
    place = {name: label for label, name in enumerate(names)}
    for row, word in enumerate(words.ravel().tolist()):
        if str(word) not in place:
            raise ValueError(
                f"{argument} must be among class_names {names[:5]!r}{' ...' if len(names) > 5 else ''}; "
                f"got {word!r} in row {row}."
            )
    return np.array([place[str(word)] for word in words.ravel().tolist()], np.int64).reshape(words.shape)


def read_ids(ids: ArrayLike | None, num_rows: int) -> NDArray[Any]:
    array = np.arange(num_rows) if ids is None else np.asarray(ids)
    if array.shape != (num_rows,):
        raise ValueError(f"ids must name {num_rows} rows; got shape {array.shape}.")
    check_ids(array)
    return array


def check_ids(ids: NDArray[Any]) -> None:
    """A ValueError for the first of these row names that occurs twice."""
    seen: set[str] = set()
    for row_id in map(str, ids.tolist()):
        if row_id in seen:
            raise ValueError(
                f"ids must all be different, or a correction could not say which row it means; "
                f"got {row_id!r} twice."
            )
        seen.add(row_id)


def read_optional(name: str, values: ArrayLike | None, num_rows: int, dtype: type[T]) -> NDArray[T] | None:
    if values is None:
        return None
    array = np.asarray(values)
    kinds = "b" if dtype is np.bool_ else "iu"
    if array.shape != (num_rows,) or array.dtype.kind not in kinds:
        raise ValueError(
            f"{name} must be {dtype.__name__} of shape ({num_rows},); "
            f"got {array.dtype} of shape {array.shape}."
        )
    return array.astype(dtype)
