"""What people pass to `find_suspects`, as arrays: labels, names of rows, a value for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_ids, check_labels

_NOTHING = ("None", "nan", "<NA>", "NaT")  # how Python, numpy and pandas print that there is none
T = TypeVar("T", np.bool_, np.int64)


def as_numpy(values: Any) -> Any:
    """A tensor of any device and type, with or without a gradient, as an array; anything else as it is."""
    if not hasattr(values, "detach"):  # by what it can do, so that torch need not be there
        return values
    values = values.detach().cpu()
    is_bfloat16 = str(values.dtype) == "torch.bfloat16"  # which numpy does not have
    return (values.float() if is_bfloat16 else values).numpy()


def columns_by_name(
    probs: Any, given_labels: ArrayLike, class_names: Sequence[str] | None
) -> tuple[Any, Sequence[str] | None]:
    """Probabilities whose columns go by their places, and the names of classes, which a data frame may give.

    Taken by their places alone, columns that somebody has ordered otherwise would make most labels wrong.
    """
    if not hasattr(probs, "columns"):
        return probs, class_names
    _check_same_order(probs, given_labels)
    called, labels = [str(name) for name in probs.columns], _labels(given_labels)
    if class_names is None and labels.dtype.kind in "OUT":
        return probs, called if {str(word) for word in labels.ravel().tolist()} <= {*called} else None
    for order in (() if class_names is None else class_names, range(len(called))):
        names = [str(name) for name in order]
        if sorted(called) == sorted(names):
            return np.asarray(probs)[:, [called.index(name) for name in names]], class_names
    return probs, class_names


def _check_same_order(probs: Any, given_labels: Any) -> None:
    """A ValueError where pandas' indices hold the same rows in another order, as after a shuffle of one."""
    rows: Any = getattr(given_labels, "index", None)
    named: Any = getattr(probs, "index", None)
    if not hasattr(rows, "sort_values") or not hasattr(named, "sort_values") or rows.equals(named):
        return
    if len(rows) == len(named) and rows.is_unique and rows.isin(named).all():
        raise ValueError(
            "given_labels and probs have the same rows in another order, by their index. Order them alike: "
            "probs.loc[given_labels.index]"
        )


def _labels(values: ArrayLike, argument: str = "given_labels") -> NDArray[Any]:
    """As an array; a missing label would else be a class called nan."""
    labels = np.asarray(as_numpy(values))
    if labels.dtype.kind in "OUT":
        cells = labels.ravel().tolist()
        missing = [
            row for row, cell in enumerate(cells) if not isinstance(cell, str) and str(cell) in _NOTHING
        ]
        if len(missing):
            raise ValueError(
                f"{argument} must have a value for every row; {len(missing):,} are missing (first: "
                f"{cells[missing[0]]!r} in row {missing[0]}). Leave those rows out, of probs too."
            )
    return labels


def words_of(given_labels: ArrayLike, num_classes: int) -> list[str] | None:
    """The words in alphabetical order, if labels are words and there are as many as classes."""
    labels = _labels(given_labels)
    if labels.dtype.kind not in "OUT":
        return None
    words = sorted({str(word) for word in labels.ravel().tolist()})
    return words if len(words) == num_classes else None


def read_labels(
    argument: str, values: ArrayLike, num_rows: int, names: tuple[str, ...], *, named: bool
) -> NDArray[np.int64]:
    """Class numbers, one for each row; ``named``: the caller gave the names, so labels may be words."""
    labels = _labels(values, argument)
    if labels.dtype.kind in "OUT":
        if not named:
            raise ValueError(
                f"{argument} must be whole numbers, or words: one for each of the {len(names)} columns of "
                "probs, or with class_names that say which column is whose, such as a scikit-learn model's "
                f"classes_; got {len(set(labels.ravel().tolist()))} words ({labels.ravel()[0]!r} ...)."
            )
        labels = _number_words(argument, labels, names)
    return check_labels(labels, len(names), argument, num_rows=num_rows)


def _number_words(argument: str, words: NDArray[Any], names: tuple[str, ...]) -> NDArray[np.int64]:
    place = {name: label for label, name in enumerate(names)}
    labels = [place.get(str(word), -1) for word in words.ravel().tolist()]
    if -1 in labels:
        row = labels.index(-1)
        raise ValueError(
            f"{argument} must be among class_names {names[:5]!r}{' ...' if len(names) > 5 else ''}; "
            f"got {words.ravel().tolist()[row]!r} in row {row}."
        )
    return np.array(labels, np.int64).reshape(words.shape)


def read_ids(ids: ArrayLike | None, num_rows: int) -> NDArray[Any]:
    """What a person calls each row: all different, and row numbers if not given."""
    array = np.arange(num_rows) if ids is None else np.asarray(ids)
    if array.shape != (num_rows,):
        raise ValueError(f"ids must name {num_rows} rows; got shape {array.shape}.")
    check_ids(array)
    return array


def read_row_values(name: str, values: ArrayLike | None, num_rows: int, dtype: type[T]) -> NDArray[T] | None:
    """A bool or a whole number for each row, or None where the user gave none."""
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


def read_groups(groups: ArrayLike | None, num_rows: int) -> NDArray[Any] | None:
    """Which rows belong together, or None where the user did not say."""
    if groups is None:
        return None
    array = np.asarray(as_numpy(groups))
    if array.shape != (num_rows,):
        raise ValueError(f"groups must have a value for each of {num_rows} rows; got shape {array.shape}.")
    return array
