"""From the columns of a table to float32 features, the same way for training and for new rows."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from tolerant.data.spreadsheet import plain_numbers
from tolerant.extras import extra

# What an empty cell may look like in a CSV file; compared in lower case, without blanks around it.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})
MAX_CATEGORIES = 64
# A column of numbers with a few words in it is a typing error; one with many is a set of codes.
MOSTLY_NUMBERS = 0.9
# Dates that mean one thing everywhere: 2024-12-31, with or without a time; and 31.12.2024. Not 12/11/2024.
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
_DATES = {_ISO_DATE: "ISO8601", r"\d{1,2}\.\d{1,2}\.\d{4}": "%d.%m.%Y"}


@dataclass(frozen=True)
class Column:
    """How one column becomes features."""

    name: str
    kind: Literal["number", "date", "category"]
    missing: bool  # cells were missing in the fitted rows, so there is a feature that says so
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()

    @property
    def feature_names(self) -> list[str]:
        named = [f"{self.name} = {word}" for word in self.categories] or [self.name]
        return [*named, f"{self.name} is missing"] if self.missing else named

    def features(self, series: Any) -> list[np.ndarray]:
        if self.kind != "category":
            numbers, empty = (_as_dates if self.kind == "date" else _as_numbers)(series, self.name)
            if numbers is None:
                raise ValueError(
                    f"column {self.name!r} held {self.kind}s in training; now it holds words. Write "
                    f"{self.kind}s or leave the cells empty, which counts as missing; or train again "
                    "with such rows"
                )
            # Clipped, since a new value far outside the fitted range would overflow float32.
            scaled = np.clip((np.where(empty, self.mean, numbers) - self.mean) / self.std, -1e6, 1e6)
            named = [scaled]
        else:
            words, empty = _as_words(series)
            named = [(words == word) & ~empty for word in self.categories]
        return [*named, empty] if self.missing else named


@dataclass(frozen=True)
class TableEncoder:
    """Numbers are standardised, words become one feature each; fitted once, applied to any rows.

    - number, or date as a number of days: (value - mean) / std of the fitted rows. A missing one
      becomes the mean (0), with a second feature that says so if any was missing in the fitted rows.
    - category: a 0/1 feature for each of the 64 most frequent words of the fitted rows, of equally
      frequent ones the first by the alphabet; a warning says where there are more. A rarer word and one
      never seen give zeros; a missing one has a feature if any was missing then.

    >>> import pandas
    >>> rows = pandas.DataFrame({"age": [20, 40, None], "town": ["Bonn", "Ulm", "Ulm"]})
    >>> with warnings.catch_warnings(action="ignore"):
    ...     encoder = TableEncoder.fit(rows)
    >>> encoder.feature_names
    ('age', 'age is missing', 'town = Ulm', 'town = Bonn')
    >>> encoder.transform(pandas.DataFrame({"age": [30], "town": ["Jena"]})).tolist()
    [[0.0, 0.0, 0.0, 0.0]]
    """

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, frame: Any, *, categorical: Sequence[str] = ()) -> TableEncoder:
        """Learn the columns of `frame`; those in `categorical` are words though they be numbers."""
        absent = sorted(set(categorical) - set(frame.columns))
        if absent:
            raise ValueError(
                f"categorical names {absent[0]!r}, which is no column of the features {list(frame.columns)}"
            )
        columns, holes, names, counters = [], [], [], []
        many: dict[str, str] = {}
        for name in frame.columns:
            kind: Literal["number", "date"] = "number"
            numbers, empty = None, np.empty(0, bool)
            if name not in categorical:
                numbers, empty = _as_numbers(frame[name], name)
            if name not in categorical and numbers is None:
                kind, (numbers, empty) = "date", _as_dates(frame[name], name)
            if numbers is None:
                words, empty = _as_words(frame[name])
            if empty.all():
                warnings.warn(f"column {name!r} is empty and is left out", stacklevel=2)
                continue
            missing = bool(empty.any())
            if missing:
                holes.append(f"{name!r} ({empty.sum()})")
            if numbers is None:
                counts = Counter(words[~empty])
                by_number = sorted(counts, key=lambda word: (-counts[word], word))
                frequent, rare = by_number[:MAX_CATEGORIES], by_number[MAX_CATEGORIES:]
                if rare and len(counts) > len(words) / 2:
                    names.append(f"{name!r} ({len(counts):,} words: {words[~empty][0][:40]!r} ...)")
                elif rare:
                    rows = sum(counts[word] for word in rare)
                    many[name] = (
                        f"{name!r} ({len(counts):,}, the rarer ones in {rows:,} of {len(words):,} rows)"
                    )
                columns.append(Column(name, "category", missing, categories=tuple(frequent)))
            else:
                mean, std = _moments(numbers[~empty], name)
                if len(numbers) > MAX_CATEGORIES and np.array_equal(
                    numbers, numbers[0] + np.arange(len(numbers))
                ):
                    counters.append(repr(name))
                columns.append(Column(name, kind, missing, mean, std))
        if not columns:
            raise ValueError("the table has no column with values beside the label")
        if holes:
            more = ", ..." if len(holes) > 5 else ""
            warnings.warn(
                f"{len(holes)} of {len(frame.columns)} columns have missing values, which become "
                f"the mean, or a category of their own: {', '.join(holes[:5])}{more}",
                stacklevel=2,
            )
        if names:
            warnings.warn(
                f"nearly every row has a word of its own in {', '.join(names[:5])}; {MAX_CATEGORIES} of them "
                "become features. Names of rows go with id=... (--id), free text with text=... (--text), "
                "the rest with ignore=... (--ignore)",
                stacklevel=2,
            )
        if many:
            first = next(iter(many))
            more = ", ..." if len(many) > 5 else ""
            warnings.warn(
                f"only the {MAX_CATEGORIES} most frequent categories of a column are told apart; all others "
                f"count as one: {', '.join([*many.values()][:5])}{more}. Put alike ones under one word "
                f"first, or leave the column out: ignore=[{first!r}] (--ignore {first!r})",
                stacklevel=2,
            )
        if counters:
            warnings.warn(
                f"{', '.join(counters[:5])} counts the rows, and so tells how they were sorted; leave it out "
                f"with ignore=[{counters[0]}] (--ignore {counters[0]})",
                stacklevel=2,
            )
        return cls(tuple(columns))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    def transform(self, frame: Any) -> np.ndarray:
        """The features of `frame`, float32 (N, D); columns that were not fitted are ignored."""
        features: list[np.ndarray] = []
        for column in self.columns:
            if column.name not in frame.columns:
                raise ValueError(
                    f"the table has no column {column.name!r}, with which the encoder was fitted; "
                    f"it has {list(frame.columns)}. Name one so, or train again"
                )
            features += column.features(frame[column.name])
        table = np.empty((len(frame), len(features)), np.float32)
        for place, feature in enumerate(features):
            table[:, place] = feature
        return table

    def strange_columns(self, frame: Any) -> list[str]:
        """The columns of categories that hold words in `frame`, none of which was fitted.

        >>> import pandas
        >>> encoder = TableEncoder.fit(pandas.DataFrame({"sex": ["female", "male"], "age": [20, 30]}))
        >>> encoder.strange_columns(pandas.DataFrame({"sex": ["f", "m"], "age": [40, 50]}))
        ['sex']
        """
        strange = []
        for column in self.columns:
            if column.kind == "category":
                words, empty = _as_words(frame[column.name])
                if not empty.all() and set(column.categories).isdisjoint(words[~empty]):
                    strange.append(column.name)
        return strange

    def to_dict(self) -> dict[str, Any]:
        """A value for JSON, from which `from_dict` makes the same encoder."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, value: Any) -> TableEncoder:
        try:
            return cls(
                tuple(
                    Column(**{**column, "categories": tuple(column["categories"])})
                    for column in value["columns"]
                )
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not a saved table encoder: {error!r}") from error


def _as_words(series: Any) -> tuple[np.ndarray, np.ndarray]:
    """(object (N,) of str, bool (N,) where the cell is missing)."""
    cells = series.to_numpy(object)
    for cell in cells[:1]:
        if isinstance(cell, list | dict | tuple | np.ndarray):
            raise ValueError(
                f"column {series.name!r} holds lists; only numbers, dates and words are read. Make a column "
                f"of each entry, or leave it out: ignore=[{series.name!r}] (--ignore {series.name!r})"
            )
    words = np.array([str(cell).strip() for cell in cells], object)
    empty = np.fromiter((word.lower() in MISSING for word in words), bool, len(words))
    return words, empty | np.asarray(series.isna(), bool)


def _as_numbers(series: Any, name: str) -> tuple[np.ndarray | None, np.ndarray]:
    """(float64 (N,), where missing), or None for a column of words."""
    pandas = extra("pandas")
    if pandas.api.types.is_datetime64_any_dtype(series.dtype):
        return None, np.asarray(series.isna(), bool)
    if pandas.api.types.is_numeric_dtype(series.dtype):
        numbers = series.to_numpy(np.float64, na_value=np.nan)
        empty = np.isnan(numbers)
    elif (quick := _all_numbers(series)) is not None:
        numbers, empty = quick, np.zeros(len(quick), bool)
    else:
        words, empty = _as_words(series)
        numbers = np.full(len(words), np.nan)
        plain = plain_numbers(words[~empty], series.attrs.get("separator", ","))
        numbers[~empty] = pandas.to_numeric(pandas.Series(plain), errors="coerce")
        bad = np.flatnonzero(np.isnan(numbers) & ~empty)
        if len(bad) > (1 - MOSTLY_NUMBERS) * (~empty).sum():
            return None, empty
        if len(bad):
            raise ValueError(
                f"column {name!r} holds numbers except for {len(bad)} cells (first: "
                f"{words[bad[0]]!r} in row {series.index[bad[0]]}); correct them, or pass "
                f"categorical=[{name!r}] (--categorical {name!r})"
            )
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise ValueError(
            f"column {name!r} has an infinite value in row {series.index[infinite[0]]}; write a number or "
            "leave the cell empty, which counts as missing; or leave the column out: "
            f"ignore=[{name!r}] (--ignore {name!r})"
        )
    return numbers, empty


def _all_numbers(series: Any) -> np.ndarray | None:
    """Cells of text that are numbers without exception, as in most columns: the fast way."""
    pandas = extra("pandas")
    if not pandas.api.types.is_string_dtype(series):  # Python's True in a column of objects is a word
        return None
    numbers = pandas.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return None if np.isnan(numbers).any() else numbers


def _as_dates(series: Any, name: str) -> tuple[np.ndarray | None, np.ndarray]:
    """(days since 1970, float64 (N,), where missing), or None for a column of words."""
    pandas = extra("pandas")
    day = pandas.Timedelta(days=1)
    if pandas.api.types.is_datetime64_any_dtype(series.dtype):
        days = (series - pandas.Timestamp(0, tz=series.dt.tz)) / day
        numbers = days.to_numpy(np.float64, na_value=np.nan)
        return numbers, np.isnan(numbers)
    words, empty = _as_words(series)
    cells = pandas.Series(words[~empty], dtype=object)
    fits = {form: cells.str.fullmatch(pattern).mean() for pattern, form in _DATES.items()}
    form = max(fits, key=fits.__getitem__)
    if fits[form] < MOSTLY_NUMBERS:
        return None, empty
    parsed = pandas.to_datetime(cells, format=form, errors="coerce", utc=True)
    bad = np.flatnonzero(~empty)[parsed.isna()]
    if len(bad):
        raise ValueError(
            f"column {name!r} holds dates except for {len(bad)} cells (first: {words[bad[0]]!r} in row "
            f"{series.index[bad[0]]}); correct them, or pass categorical=[{name!r}] (--categorical {name!r})"
        )
    numbers = np.full(len(words), np.nan)
    numbers[~empty] = (parsed - pandas.Timestamp(0, tz="UTC")) / day
    return numbers, empty


def _moments(numbers: np.ndarray, name: str) -> tuple[float, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(numbers.mean()), float(numbers.std())
    if not np.isfinite(std):
        raise ValueError(f"column {name!r} has values too large to standardise; rescale it")
    return mean, std if std > 0 else 1.0
