"""The one place that checks numbers, labels, names and transition matrices that people pass in.

Every check returns the value in the form that the code works with, or raises a ValueError that names the
argument, the rule, the value and, where there is one, the way out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Transition = NDArray[np.float64]

_ROW_SUM_TOLERANCE = 1e-5  # float32 rows of 1,000 classes miss 1 by up to 1e-6, typing errors by more


def is_whole(value: Any) -> bool:
    """Whether it is a whole number by type: an int of Python, numpy or torch; neither a bool nor 3.0."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def check_whole(value: Any, name: str, *, least: int) -> int:
    """A whole number of at least `least`, as Python's int.

    >>> check_whole(0, "epochs", least=1)
    Traceback (most recent call last):
    ValueError: epochs must be a whole number of at least 1; got 0.
    """
    if not is_whole(value) or operator.index(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return operator.index(value)


@dataclass(frozen=True)
class Domain:
    """The numbers that an argument may be: an interval. None of them is infinite.

    Args:
        low: the lower end.
        high: the upper end.
        open_low: whether the lower end itself is left out.
        open_high: whether the upper end itself is left out.
        integer: only whole numbers.
        way_out: what to do instead; the end of the message.

    >>> Domain(0, 1).check("q", 0.7)
    >>> Domain(0, 1, open_low=True).check("k", 0)
    Traceback (most recent call last):
    ValueError: k must be in (0, 1]; got 0.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    integer: bool = False
    way_out: str = ""

    @property
    def kind(self) -> type[float]:
        return int if self.integer else float

    def __contains__(self, value: object) -> bool:
        number = int if self.integer else (int, float)
        # Not math.isfinite: torch.compile cannot follow it once a number differs from call to call.
        if isinstance(value, bool) or not isinstance(value, number) or not abs(value) < math.inf:
            return False
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def check(self, name: str, value: object) -> None:
        if value not in self:
            raise ValueError(f"{name} must be {self}; got {value!r}. {self.way_out}".rstrip())

    def __str__(self) -> str:
        number = "a whole number" if self.integer else "a finite number"
        if math.isfinite(self.low) and math.isfinite(self.high):
            ends = "[("[self.open_low], "])"[self.open_high]
            return f"{number} " * self.integer + f"in {ends[0]}{self.low:g}, {self.high:g}{ends[1]}"
        if math.isfinite(self.low):
            return f"{number} {'above' if self.open_low else 'of at least'} {self.low:g}"
        if math.isfinite(self.high):
            return f"{number} {'below' if self.open_high else 'of at most'} {self.high:g}"
        return number


def check_num_classes(value: Any) -> int:
    """A number of classes: a whole number of at least two."""
    return check_whole(value, "num_classes", least=2)


def check_seed(value: Any) -> int:
    """What numpy, torch and scikit-learn all take for a seed.

    >>> check_seed(2**32)
    Traceback (most recent call last):
    ValueError: seed must be below 2**32; got 4294967296.
    """
    seed = check_whole(value, "seed", least=0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2**32; got {seed}.")
    return seed


def check_rate(value: Any, name: str = "rate") -> float:
    """A noise rate or another number in [0, 1]; one that looks like per cent is told so."""
    try:
        rate = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0.0 <= rate <= 1.0:
        hint = f" Did you mean {rate / 100:g}?" if 1.0 < rate <= 100.0 else ""
        raise ValueError(f"{name} must be a number in [0, 1]; got {value!r}.{hint}")
    return rate


def check_prior(value: Any, num_classes: int, name: str = "prior") -> NDArray[np.float64]:
    """How frequent each class is, float64 [C].

    >>> check_prior([0.5, "x"], 2)
    Traceback (most recent call last):
    ValueError: prior must be 2 numbers in [0, 1], one for each class; got [0.5, 'x'].
    """
    try:
        shares = np.array([check_rate(share) for share in value])
    except (TypeError, ValueError):
        shares = np.empty(0)
    if len(shares) != num_classes:
        raise ValueError(
            f"{name} must be {num_classes} numbers in [0, 1], one for each class; got {value!r}."
        )
    return shares


def check_words(values: Any, name: str) -> tuple[str, ...]:
    """Words alone, as a file should hold them."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be words; got {str(values)[:80]}.")
    return tuple(values)


def check_numbers(values: Any, name: str, *, many: int) -> tuple[float, ...]:
    """So many finite numbers, as a file should hold them."""
    right = isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
    try:
        numbers = tuple(map(float, values)) if right else ()
    except OverflowError:  # a whole number of 400 digits
        numbers = ()
    if len(numbers) != many or not all(map(math.isfinite, numbers)):
        raise ValueError(f"{name} must be {many:,} finite numbers; got {str(values)[:80]}.")
    return numbers


def check_labels(
    labels: ArrayLike, num_classes: int, name: str, *, num_rows: int | None = None, lowest: int = 0
) -> NDArray[np.int64]:
    """Class numbers as int64 [N], each in `lowest` to num_classes - 1.

    `num_rows` is how many there must be; without it at least one. `lowest` is -1 where a row may belong to
    none of the classes.
    """
    array = np.asarray(labels)
    if array.shape != (array.size if num_rows is None else num_rows,) or not (array.size or num_rows == 0):
        many = "at least one label" if num_rows is None else f"{num_rows} labels, one for each row"
        raise ValueError(f"{name} must be a vector of {many}; got shape {array.shape}.")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} must be whole class numbers; got dtype {array.dtype}. "
            "Number the classes first, for example with numpy.unique(..., return_inverse=True)."
        )
    wrong = (array < lowest) | (array >= num_classes)
    if wrong.any():
        row = wrong.argmax()
        raise ValueError(
            f"{name} must be in {lowest} to {num_classes - 1} for {num_classes} classes; got {array[row]} in "
            f"row {row} ({wrong.sum()} such rows)."
        )
    return array.astype(np.int64)


def check_rows(inputs: Any, labels: NDArray[np.int64]) -> None:
    """A ValueError unless there are as many inputs as labels."""
    if len(inputs) != len(labels):
        raise ValueError(
            f"inputs must have a row for each label; got {len(inputs)} rows and {len(labels)} labels."
        )


def check_class_names(class_names: Sequence[str] | None, num_classes: int) -> tuple[str, ...]:
    """The classes' names, or their numbers as words; a ValueError if two are equal or one is empty."""
    names = tuple(map(str, range(num_classes) if class_names is None else class_names))
    if len(names) != num_classes or len(set(names)) != num_classes or "" in names:
        raise ValueError(
            f"class_names must be {num_classes} different names, none empty; got {names[:5]!r}"
            f"{' ...' if len(names) > 5 else ''} ({len(names)} names)."
        )
    return names


def check_ids(ids: NDArray[Any]) -> None:
    """A ValueError for the first of these row names that occurs twice."""
    seen: set[str] = set()
    for row_id in map(str, ids.tolist()):
        if row_id in seen:
            raise ValueError(
                f"ids must all be different, or a correction could not say which row it means; "
                f"got {row_id!r} twice. Name another column, or none: then rows are numbered (id=..., --id)."
            )
        seen.add(row_id)


def check_transition(transition: ArrayLike, num_classes: int | None = None) -> Transition:
    """`transition` as a float64 array, or a ValueError that says what is wrong with it.

    >>> check_transition([[0.9, 0.1], [0.3, 0.9]])
    Traceback (most recent call last):
    ValueError: transition must have rows that sum to 1; row 1 sums to 1.2.
    """
    try:
        array = np.array(transition, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"transition must be a square matrix of numbers; {error}.") from error
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2:
        raise ValueError(f"transition must be a square matrix of at least 2 x 2; got shape {array.shape}.")
    if num_classes is not None and len(array) != num_classes:
        raise ValueError(
            f"transition must be {num_classes} x {num_classes}, a row and a column for each class; "
            f"got {len(array)} x {len(array)}."
        )
    for wrong, rule in ((~np.isfinite(array), "finite"), (array < 0.0, "at least 0")):
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise ValueError(f"transition must be {rule}; got {array[i, j]} at [{i}, {j}].")
    sums = array.sum(axis=1)
    wrong_rows = np.flatnonzero(np.abs(sums - 1.0) > _ROW_SUM_TOLERANCE)
    if wrong_rows.size:
        hint = ""
        if np.allclose(array.sum(axis=0), 1.0):
            hint = " Its columns do: pass the transpose, a row for each true class."
        elif (sums > 0.0).all() and (array == np.round(array)).all():
            hint = " These look like counts: divide each row by its sum."
        row = wrong_rows[0]
        raise ValueError(f"transition must have rows that sum to 1; row {row} sums to {sums[row]:g}.{hint}")
    return array


def unwrap_numbers(settings: Any) -> None:
    """Make numpy's numbers in a frozen dataclass Python's, as JSON and checks of types want them.

    They come from a search over `numpy.arange` or `scipy.stats`.
    """
    for name, value in vars(settings).items():
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())
