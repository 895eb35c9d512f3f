"""From the columns of a table to float32 features, the same way for training and for new rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tolerant.checks import check_numbers, check_words
from tolerant.data.encoders.cells import as_dates, as_numbers, as_words, is_day_first, not_numbers
from tolerant.data.encoders.findings import MAX_CATEGORIES, Findings, counts_rows
from tolerant.data.encoders.times import as_times
from tolerant.data.standardise import moments, standardise
from tolerant.extras import extra
from tolerant.progress import progress_bar

ColumnKind = Literal["number", "date", "time", "category"]
_MOST_LISTED = 5


@dataclass(frozen=True)
class Column:
    """How one column becomes features."""

    name: str
    kind: ColumnKind
    missing: bool  # cells were missing in the fitted rows, so there is a feature that says so
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()
    """The words of the fitted rows, the most frequent first."""
    day_first: bool | None = None  # of dates such as 12/11/2024

    @property
    def has_place(self) -> bool:
        """Whether a feature says which of very many words a cell holds."""
        return len(self.categories) > MAX_CATEGORIES

    @property
    def feature_names(self) -> list[str]:
        named = [f"{self.name} = {word}" for word in self.categories[:MAX_CATEGORIES]] or [self.name]
        named += [f"{self.name}, place among {len(self.categories):,} words"] if self.has_place else []
        return [*named, f"{self.name} is missing"] if self.missing else named

    def features(self, series: Any) -> list[np.ndarray]:
        if self.kind != "category":
            if self.kind == "date":
                numbers, empty = as_dates(series, self.name, day_first=self.day_first)
            elif self.kind == "time":
                numbers, empty = as_times(series, self.name, known=True)
            else:
                numbers, empty = as_numbers(series, self.name, known=True)
            if numbers is None:
                raise ValueError(
                    f"column {self.name!r} held {self.kind}s in training; now it holds words. Write "
                    f"{self.kind}s or leave the cells empty, which counts as missing; or train again "
                    "with such rows"
                )
            return self.encode(numbers, empty)
        return self.encode(*as_words(series))

    def encode(self, cells: np.ndarray, empty: np.ndarray) -> list[np.ndarray]:
        """The features of cells that are read: numbers, or words."""
        if self.kind != "category":
            named = [standardise(np.where(empty, self.mean, cells), self.mean, self.std)]
        else:
            words = extra("pandas").Index(self.categories, dtype=object)
            place = np.where(empty, len(words), words.get_indexer(cells))
            place[place < 0] = len(words) + 1
            named = [place == each for each in range(len(self.categories[:MAX_CATEGORIES]))]
            named += [standardise(place, self.mean, self.std)] if self.has_place else []
        return [*named, empty] if self.missing else named

    def places(self, feature: np.ndarray) -> np.ndarray:
        """Of many words which each cell holds, as the feature says: 0 is the most frequent one; behind all
        words are a missing one and then those that were not fitted."""
        return np.asarray(np.rint(feature * self.std + self.mean), np.int64)


@dataclass(frozen=True)
class TableEncoder:
    """Numbers are standardised, words become one feature each; fitted once, applied to any rows.

    - number, date as a number of days, or time of day as hours: (value - mean) / std of the fitted rows. A
      missing one becomes the mean (0), with a second feature that says so if any was missing in the fitted
      rows.
    - category: a 0/1 feature for each of the 64 most frequent words of the fitted rows (of equally
      frequent ones the first in the alphabet). If there are more, another feature is the place of the word
      among all of them, by how frequent they are, standardised; classifiers are told by it how often the
      rows of each word have each label. Unseen words give zeros, and the last place; a missing one has a
      feature if any was missing in the fitted rows.

    >>> import pandas
    >>> rows = pandas.DataFrame({"age": [20, 40, None], "town": ["Bonn", "Ulm", "Ulm"]})
    >>> encoder = TableEncoder.fit(rows)
    >>> encoder.feature_names
    ('age', 'age is missing', 'town = Ulm', 'town = Bonn')
    >>> encoder.transform(pandas.DataFrame({"age": [30], "town": ["Jena"]})).tolist()
    [[0.0, 0.0, 0.0, 0.0]]
    """

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, frame: Any, *, categorical: Sequence[str] = ()) -> TableEncoder:
        """Learn the columns of `frame`; those in `categorical` are words even if they look like numbers."""
        return cls.fit_transform(frame, categorical=categorical)[0]

    @classmethod
    def fit_transform(cls, frame: Any, *, categorical: Sequence[str] = ()) -> tuple[TableEncoder, np.ndarray]:
        """`fit`, and what `transform` gives of the same rows; every cell is read once."""
        absent = sorted(set(categorical) - set(frame.columns))
        if absent:
            raise ValueError(
                f"categorical names {absent[0]!r}, which is not among the columns {list(frame.columns)}"
            )
        findings, columns = Findings(), []
        features: list[np.ndarray] = []
        with progress_bar("read columns", total=len(frame.columns)) as bar:
            for number, (name, series) in enumerate(frame.items(), start=1):
                # As words, True and False are the same in every kind of file, and beside missing ones.
                are_codes = name in categorical or series.dtype in ("bool", "boolean")
                cells, empty, kind = _read(series, name, are_codes)
                column = _fit_column(series, cells, empty, kind, are_codes, findings)
                if column is not None:
                    columns.append(column)
                    features += column.encode(cells, empty)
                if number % 100 == 0:
                    bar.update(number)
        findings.warn()
        if not columns:
            raise ValueError(
                "the table has no column with values beside the label: there is nothing to learn from. See "
                "what label, id and ignore name (--label, --id, --ignore)"
            )
        return cls(tuple(columns)), _side_by_side(features, len(frame))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the features of each column lie."""
        ends = np.cumsum([len(column.feature_names) for column in self.columns]).tolist()
        return tuple(map(slice, [0, *ends[:-1]], ends))

    def transform(self, frame: Any) -> np.ndarray:
        """The features of `frame`, float32 (N, D); columns that were not fitted are ignored."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            named = f"column {absent[0]!r}" if len(absent) == 1 else f"columns {absent}"
            raise ValueError(
                f"the table has no {named}, with which the encoder was fitted; it has {list(frame.columns)}. "
                "Name one so, add it with empty cells, which count as missing, or train again without it"
            )
        features: list[np.ndarray] = []
        series = dict(frame.items())
        for column in self.columns:
            features += column.features(series[column.name])
        return _side_by_side(features, len(frame))

    def news(self, frame: Any) -> list[str]:
        """What the rows of `frame` have that no fitted one had, a sentence each; strange columns first.

        Of columns with a new word in nearly every row nobody knows which were there.

        >>> import pandas
        >>> encoder = TableEncoder.fit(pandas.DataFrame({"sex": ["female", "male"], "age": [20, 30]}))
        >>> [news[:40] for news in encoder.news(pandas.DataFrame({"sex": ["f", "m"], "age": [40, None]}))]
        ["no word in the column 'sex' is known fro", '1 of 2 rows have no value in the column ']
        """
        strange, new_words = [], []
        gaps: dict[str, int] = {}
        share = f"of {len(frame):,} rows have"
        for column in self.columns:
            words, empty = as_words(frame[column.name])
            if column.kind == "category" and not empty.all():
                known = set(column.categories)
                new = [word for word in words[~empty] if word not in known]
                if known.isdisjoint(words[~empty]):
                    strange.append(
                        f"no word in the column {column.name!r} is known from training, so it tells the "
                        "model nothing. Are its words spelt as in the training rows?"
                    )
                elif new and len(known) != MAX_CATEGORIES:
                    new_words.append(
                        f"{len(new):,} {share} a word in the column {column.name!r} that training never saw "
                        f"(first: {new[0][:40]!r}); it counts as none of the known ones, and the other "
                        "columns decide"
                    )
            if not column.missing and empty.any():
                gaps[column.name] = int(empty.sum())
        return [*strange, *new_words, *_say_gaps(gaps, share)]

    def to_dict(self) -> dict[str, Any]:
        """A value for JSON, from which `from_dict` makes the same encoder."""
        return {"columns": [dict(vars(column)) for column in self.columns]}

    @classmethod
    def from_dict(cls, value: Any) -> TableEncoder:
        try:
            return cls(tuple(map(_read_column, value["columns"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not a saved table encoder: {error!r}") from error


def _say_gaps(gaps: dict[str, int], share: str) -> list[str]:
    """One sentence, however many columns there are: a table of 80 has a gap in many of them."""
    if not gaps:
        return []
    meaning = (
        "A number, date or time counts as the mean of the training rows, a word as none of the known ones"
    )
    if len(gaps) == 1:
        [(name, count)] = gaps.items()
        return [
            f"{count:,} {share} no value in the column {name!r}, in which no training row had a missing one. "
            f"{meaning}"
        ]
    listed = ", ".join(f"{name!r} ({count:,})" for name, count in [*gaps.items()][:_MOST_LISTED])
    more = ", ..." if len(gaps) > _MOST_LISTED else ""
    return [
        f"some {share} no value in one of {len(gaps)} columns in which no training row had a missing one: "
        f"{listed}{more}. {meaning}"
    ]


def _read_column(value: Any) -> Column:
    column = Column(**{**value, "categories": check_words(value["categories"], "categories")})
    check_words([column.name], "the name of a column")
    check_numbers([column.mean, column.std], "mean and std of a column", many=2)
    if column.kind not in get_args(ColumnKind) or not isinstance(column.missing, bool):
        raise ValueError(f"a column is of kind {column.kind!r}, with {column.missing!r} for missing cells")
    if column.day_first not in (None, True, False):
        raise ValueError(f"day_first of a column is true, false or null; got {column.day_first!r}")
    return column


def _side_by_side(features: Sequence[np.ndarray], num_rows: int) -> np.ndarray:
    """float32 (N, D)."""
    table = np.empty((num_rows, len(features)), np.float32)
    for place, feature in enumerate(features):
        table[:, place] = feature
    return table


def _read(series: Any, name: str, are_codes: bool) -> tuple[np.ndarray, np.ndarray, ColumnKind]:
    """(numbers if a column holds such, else dates, times of day or words; where missing; which of them)."""
    if not are_codes:
        numbers, empty = as_numbers(series, name)
        if numbers is not None:
            return numbers, empty, "number"
        numbers, empty = as_dates(series, name)
        if numbers is not None:
            return numbers, empty, "date"
        numbers, empty = as_times(series, name)
        if numbers is not None:
            return numbers, empty, "time"
    return *as_words(series), "category"


def _fit_column(
    series: Any, cells: np.ndarray, empty: np.ndarray, kind: ColumnKind, are_codes: bool, findings: Findings
) -> Column | None:
    """How a column that is read becomes features; None if it is empty."""
    name = series.name
    if empty.all():
        findings.empty.append(repr(name))
        return None
    missing = bool(empty.any())
    if kind != "category":
        if counts_rows(cells):
            findings.counters.append(name)
        day_first = is_day_first(series) if kind == "date" else None
        return Column(name, kind, missing, *_moments(cells[~empty], name), day_first=day_first)
    counts = Counter(cells[~empty])
    by_number = sorted(counts, key=lambda word: (-counts[word], word))
    are_names = len(counts) > max(MAX_CATEGORIES, len(cells) / 2)
    others = [] if are_codes else not_numbers(by_number, series)
    filled, odd = int((~empty).sum()), sum(counts[word] for word in others)
    if 0 < odd < filled / 2:
        findings.mixed[name] = (
            f"numbers in {filled - odd:,} of {filled:,} rows (others hold {others[0][:40]!r} ...)"
        )
    elif are_names:
        findings.row_names.append(f"{name!r} ({len(counts):,} words: {cells[~empty][0][:40]!r} ...)")
    words = tuple(by_number[:MAX_CATEGORIES] if are_names else by_number)
    places = np.repeat(np.arange(len(words)), [counts[word] for word in words])
    return Column(name, "category", missing, *_moments(places, name), categories=words)


def _moments(numbers: np.ndarray, name: str) -> tuple[float, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = map(float, moments(numbers))
    if not np.isfinite(deviation):
        raise ValueError(f"column {name!r} has values too large to standardise; rescale it")
    return mean, deviation
