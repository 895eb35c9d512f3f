"""The cells of one column of a table, read as numbers, as dates or as words.

Numbers may be written as spreadsheets write them: 1,234.5 in one country, 1.234,5 in another.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tolerant.extras import extra

# What an empty cell may look like in a CSV file; compared in lower case, without blanks around it.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})
# A column of numbers with a few words in it is a typing error; one with many is a set of codes.
MOSTLY_NUMBERS = 0.9
# Dates that mean one thing everywhere, with or without a time: 2024-12-31, 2024/12/31, 31.12.2024, and with
# an English month 31-Dec-2024, Dec 31, 2024 and Dec 31 2024.
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
_CLOCK = r"(?: (?P<hour>\d{1,2})(?P<rest>:\d{2}(?::\d{2}(?:\.\d+)?)?))?"
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH = rf"(?i:sept|{'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)})\.?"
_DATES = (
    _ISO_DATE,
    rf"(?P<year>\d{{4}})/(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}}){_CLOCK}",
    rf"(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.(?P<year>\d{{4}}){_CLOCK}",
    rf"(?P<day>\d{{1,2}})[ -](?P<month>{_MONTH})[ -](?P<year>\d{{4}}){_CLOCK}",
    rf"(?P<month>{_MONTH}) (?P<day>\d{{1,2}}),? (?P<year>\d{{4}}){_CLOCK}",
)
# 12/11/2024 is a date only in a column that shows, by a day after the 12th, which of the numbers is the day.
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_WITH_SLASHES = {
    True: rf"(?P<day>{_DAY})/(?P<month>{_DAY})/(?P<year>\d{{4}}){_CLOCK}",
    False: rf"(?P<month>{_DAY})/(?P<day>{_DAY})/(?P<year>\d{{4}}){_CLOCK}",
}
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}
_GROUPED = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_DECIMAL_COMMA = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d+)?"
_SIGNS = "%$€£¥"
# Spreadsheets take the first for amounts and cut zeros off. Nobody writes an amount like the second.
_ZIP, _ZIP_PLUS_4 = r"\d{3,5}", r"\d{5}-\d{4}"
SPACE = r"[ \u00a0\u202f]"  # the last two do not break: what spreadsheets write
_SPACED = rf"[+-]?[1-9]\d{{0,2}}(?:{SPACE}\d{{3}})+(?:[.,]\d+)?"


def leave_out(name: str) -> str:
    """How to leave a column out, for files and for frames that `NoisyLabelClassifier` gets."""
    return f"leave it out: ignore=[{name!r}] (--ignore {name!r}), of a frame X.drop(columns={name!r})"


def as_codes(name: str) -> str:
    """How to have the words of a column taken as such, though many look like numbers."""
    frame = f"X.astype({{{name!r}: 'category'}})"
    return f"pass categorical=[{name!r}] (--categorical {name!r}), of a frame {frame}"


def as_words(series: Any) -> tuple[np.ndarray, np.ndarray]:
    """(object (N,) of str, bool (N,) where the cell is missing)."""
    cells = series.to_numpy(object)
    refuse_nested(series, cells)
    words = np.array([str(cell).strip() for cell in cells], object)
    empty = np.fromiter((word.lower() in MISSING for word in words), bool, len(words))
    return words, empty | np.asarray(series.isna(), bool)


_NESTED = (list, dict, tuple, set, np.ndarray)


def refuse_nested(series: Any, cells: Any) -> None:
    """A ValueError for the first cell that is no single value, wherever it is, or is bytes."""
    if series.dtype != object:
        return
    where = f"{series.attrs['path']}: " if "path" in series.attrs else ""
    way_out = leave_out(series.name)
    for row, cell in zip(series.index, cells, strict=True):
        if isinstance(cell, _NESTED):
            raise ValueError(
                f"{where}column {series.name!r} holds lists (first: row {row}); only numbers, dates and "
                f"words are read. Make a column of each entry, or {way_out}"
            )
        if isinstance(cell, bytes | bytearray | memoryview):
            raise ValueError(
                f"{where}column {series.name!r} holds bytes (first: row {row}), which may be text in any "
                f"encoding. Save it as text: column.str.decode('utf-8'); or {way_out}"
            )


def as_numbers(series: Any, name: str, *, known: bool = False) -> tuple[np.ndarray | None, np.ndarray]:
    """(float64 (N,), where missing), or None for a column of words.

    ZIP codes are words if some have four digits more, 94110-1234. ``known``: the fitted rows held numbers, so
    these are mistakes.
    """
    pandas = extra("pandas")
    if pandas.api.types.is_datetime64_any_dtype(series.dtype):
        return None, np.asarray(series.isna(), bool)
    if pandas.api.types.is_numeric_dtype(series.dtype):
        numbers = series.to_numpy(np.float64, na_value=np.nan)
        empty = np.isnan(numbers)
    elif (quick := _all_numbers(series)) is not None:
        numbers, empty = quick, np.zeros(len(quick), bool)
    else:
        words, empty = as_words(series)
        numbers = np.full(len(words), np.nan)
        numbers[~empty] = _read_numbers(words[~empty], series)
        bad = np.flatnonzero(np.isnan(numbers) & ~empty)
        if len(bad) > (1 - MOSTLY_NUMBERS) * (~empty).sum():
            return None, empty
        if len(bad) and not known and _are_zip_codes(words[~empty]):
            return None, empty
        if len(bad):
            alike = len(bad) > 1 and len(set(words[bad].tolist())) == 1  # a sign with a meaning, no slips
            raise ValueError(
                f"column {name!r} holds numbers except for {len(bad)} cells{', all alike' if alike else ''} "
                f"(first: {words[bad[0]]!r} in row {series.index[bad[0]]}); correct them (empty means "
                f"missing), or {as_codes(name)}"
            )
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise ValueError(
            f"column {name!r} has an infinite value in row {series.index[infinite[0]]}; write a number or "
            f"leave the cell empty, which counts as missing; or {leave_out(name)}"
        )
    return numbers, empty


def _are_zip_codes(words: np.ndarray) -> bool:
    return all(re.fullmatch(f"{_ZIP}|{_ZIP_PLUS_4}", word) for word in words)


def not_numbers(words: list[str], series: Any) -> list[str]:
    """The words of a column that cannot be read as a number."""
    numbers = _read_numbers(np.array(words, object), series)
    return [word for word, number in zip(words, numbers, strict=True) if np.isnan(number)]


def _read_numbers(words: np.ndarray, series: Any) -> np.ndarray:
    """float64, NaN for a word that is not a number; the series says what separated its cells."""
    pandas = extra("pandas")
    plain = _plain_numbers(words, series.attrs.get("separator", ","))
    return np.asarray(pandas.to_numeric(pandas.Series(plain, dtype=object), errors="coerce"), np.float64)


def _plain_numbers(words: np.ndarray, separator: str) -> np.ndarray:
    """The words of a column, with numbers rewritten as Python reads them.

    What a comma in a number means depends on what separates the columns of the file:

    - commas: it groups digits. A decimal comma would have cut the cell in two, and a quoted "1,3" may be two
      answers.
    - semicolons: it is a decimal comma, which is why the columns could not be separated by commas.
    - tabs or bars: it groups digits, unless more cells can be read with a decimal comma.

    A blank groups digits too, and a sign of percent or of a currency that every cell has is left out.

    >>> _plain_numbers(np.array(["1.234,5", "0,25"], object), ";").tolist()
    ['1234.5', '0.25']
    >>> _plain_numbers(np.array(["1,234", "25"], object), "\\t").tolist()
    ['1234', '25']
    >>> _plain_numbers(np.array(["1 234,5 %", "25 %"], object), ";").tolist()
    ['1234.5', '25']
    >>> _plain_numbers(np.array(["$1,234.50", "-$25"], object), ",").tolist()
    ['1234.50', '-25']
    """
    cells = extra("pandas").Series(words, dtype=object)
    if signs := [sign for sign in _SIGNS if len(words) and sign in words[0]]:
        cells = _without_sign(cells, signs[0])
    spaced = cells.str.fullmatch(_SPACED)
    cells = cells.where(~spaced, cells.str.replace(SPACE, "", regex=True))
    comma = cells.str.contains(",", regex=False)
    if not comma.any():
        return cells.to_numpy(object)
    grouped, decimal = cells.str.fullmatch(_GROUPED), cells.str.fullmatch(_DECIMAL_COMMA)
    groups = separator == "," or (separator != ";" and bool(grouped[comma].sum() >= decimal[comma].sum()))
    plain = cells.str.replace("," if groups else ".", "", regex=False).str.replace(",", ".", regex=False)
    return cells.where(~(grouped if groups else decimal), plain).to_numpy(object)


def _without_sign(cells: Any, sign: str) -> Any:
    """The words without it, if it stands at the same end of all of them."""
    if cells.str.endswith(sign).all():
        return cells.str[:-1].str.rstrip()
    before = rf"^([+-]?){re.escape(sign)}{SPACE}?"
    return cells.str.replace(before, r"\1", regex=True) if cells.str.match(before).all() else cells


def _all_numbers(series: Any) -> np.ndarray | None:
    """Cells of text that are numbers without exception, as in most columns: the fast way."""
    pandas = extra("pandas")
    if not pandas.api.types.is_string_dtype(series):  # Python's True in a column of objects is a word
        return None
    # Of the bare cells: to_numeric of a series also makes one, in as much time as it takes to read 200 rows.
    numbers = np.asarray(pandas.to_numeric(series.to_numpy(object), errors="coerce"), np.float64)
    return None if np.isnan(numbers).any() else numbers


def is_day_first(series: Any) -> bool | None:
    """Whether a column has dates such as 31/12/2024, or (False) such as 12/31/2024.

    None if it has others, or none of which the day is after the 12th, or both.

    >>> import pandas
    >>> is_day_first(pandas.Series(["1/2/2024", "3/31/2024"])), is_day_first(pandas.Series(["1/2/2024"]))
    (False, None)
    """
    words, empty = as_words(series)
    cells = extra("pandas").Series(words[~empty], dtype=object)
    if not cells.str.fullmatch(_WITH_SLASHES[True]).mean() >= MOSTLY_NUMBERS:  # NaN of no cells
        return None
    found = cells.str.extract(rf"^{_WITH_SLASHES[True]}$")
    first, second = (found[part].astype(float).max() > 12 for part in ("day", "month"))
    return None if first == second else bool(first)


def as_dates(
    series: Any, name: str, *, day_first: bool | None = None
) -> tuple[np.ndarray | None, np.ndarray]:
    """(days since 1970, float64 (N,), where missing), or None for a column of words.

    ``day_first``: `is_day_first` of the rows that were fitted; None: of these.
    """
    pandas = extra("pandas")
    day = pandas.Timedelta(days=1)
    if pandas.api.types.is_datetime64_any_dtype(series.dtype):
        # Not a difference of times, which ends at the year 2262 for some units and not for others.
        seconds = series.dt.tz_localize(None) if series.dt.tz is None else series.dt.tz_convert(None)
        # Nor finer than they are: beyond the year 290,000 microseconds silently begin again below zero.
        unit = series.dt.unit if series.dt.unit in _PER_SECOND else "us"
        seconds = seconds.to_numpy(f"datetime64[{unit}]").astype(np.float64) / _PER_SECOND[unit]
        numbers = np.where(np.asarray(series.isna(), bool), np.nan, seconds / 86_400)
        return numbers, np.isnan(numbers)
    words, empty = as_words(series)
    cells = pandas.Series(words[~empty], dtype=object)
    patterns = [*_DATES]
    if (order := is_day_first(series) if day_first is None else day_first) is not None:
        patterns.append(_WITH_SLASHES[order])
    fits = {pattern: cells.str.fullmatch(pattern).mean() for pattern in patterns}
    pattern = max(fits, key=fits.__getitem__)
    if fits[pattern] < MOSTLY_NUMBERS:
        return None, empty
    if pattern != _ISO_DATE:
        cells = cells.str.replace(rf"^{pattern}$", _as_iso, regex=True)
    parsed = pandas.to_datetime(cells, format="ISO8601", errors="coerce", utc=True)
    bad = np.flatnonzero(~empty)[parsed.isna()]
    if len(bad):
        raise ValueError(
            f"column {name!r} holds dates except for {len(bad)} cells (first: {words[bad[0]]!r} in row "
            f"{series.index[bad[0]]}); correct them (empty means missing), or {as_codes(name)}"
        )
    numbers = np.full(len(words), np.nan)
    numbers[~empty] = (parsed - pandas.Timestamp(0, tz="UTC")) / day
    return numbers, empty


def _as_iso(date: re.Match[str]) -> str:
    """A cell of a date as 2024-12-31, with the time behind it."""
    clock = f" {date['hour']:0>2}{date['rest']}" if date["hour"] else ""
    month = date["month"]
    start = month[:3].lower()
    number = month if month.isdecimal() else 1 + [name[:3] for name in _MONTHS].index(start)
    return f"{date['year']}-{number:0>2}-{date['day']:0>2}{clock}"
