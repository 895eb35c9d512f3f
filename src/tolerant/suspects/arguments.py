"""What people pass to `find_suspects`, as arrays: labels, names of rows, a value for each row."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_ids, check_labels

T = TypeVar("T", np.bool_, np.int64)


def as_numpy(values: Any) -> Any:
    """A tensor of any device and type, with or without a gradient, as an array; anything else as it is."""
    if not hasattr(values, "detach"):  # by what it can do, so that torch need not be there
        return values
    values = values.detach().cpu()
    is_bfloat16 = str(values.dtype) == "torch.bfloat16"  # which numpy does not have
    return (values.float() if is_bfloat16 else values).numpy()


def words_of(given_labels: ArrayLike, num_classes: int) -> list[str] | None:
    """The words in alphabetical order, if labels are words and there are as many as classes."""
    labels = np.asarray(as_numpy(given_labels))
    if labels.dtype.kind not in "OUT":
        return None
    words = sorted({str(word) for word in labels.ravel().tolist()})
    return words if len(words) == num_classes else None


def read_labels(
    argument: str, values: ArrayLike, num_rows: int, names: tuple[str, ...], *, named: bool
) -> NDArray[np.int64]:
    """Class numbers, one for each row; ``named``: the caller gave the names, so labels may be words."""
    labels = np.asarray(as_numpy(values))
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
