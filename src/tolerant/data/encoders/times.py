"""The cells of one column of a table, read as times of day: 13:30, 7:05:30 or 1:30 PM.

One number, the hours since midnight, in which trees find any part of the day. A place on the circle of the
day beside it, such that 23:59 is near 0:00, was tried: it helped logistic regression alone, and not the
models that `--model auto` takes together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tolerant.data.encoders.cells import MOSTLY_NUMBERS, SPACE, as_codes, as_words
from tolerant.extras import extra

_MINUTES = r":(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:\.\d+)?))?"
_OF_24_HOURS = rf"(?P<hour>\d+){_MINUTES}"
_OF_12_HOURS = rf"(?P<hour>0?[1-9]|1[0-2])(?:{_MINUTES})?{SPACE}?(?i:(?P<half>[ap])\.?m\.?)"


def as_times(series: Any, name: str, *, known: bool = False) -> tuple[np.ndarray | None, np.ndarray]:
    """(hours since midnight, float64 (N,), where missing), or None for a column of words.

    Among times that have elapsed some are over 24:00: these are words, and so are the others beside them.
    ``known``: the fitted rows held times of day, so what is over 24:00 is a mistake.

    >>> import pandas
    >>> as_times(pandas.Series(["7:30", "24:00"]), "from")[0]
    array([ 7.5, 24. ])
    """
    words, empty = as_words(series)
    cells = extra("pandas").Series(words[~empty], dtype=object)
    fits = {pattern: cells.str.fullmatch(pattern).mean() for pattern in (_OF_24_HOURS, _OF_12_HOURS)}
    pattern = max(fits, key=fits.__getitem__)
    if fits[pattern] < MOSTLY_NUMBERS:
        return None, empty
    found = cells.str.extract(rf"^{pattern}$")
    hour, minute, second = (found[part].astype(float) for part in ("hour", "minute", "second"))
    if pattern == _OF_12_HOURS:  # 12:30 AM is half past midnight
        hour = hour % 12 + 12 * found["half"].str.lower().eq("p")
    hours = (hour + minute.fillna(0) / 60 + second.fillna(0) / 3600).to_numpy()
    if (hours > 24).any() and not known:
        return None, empty
    bad = np.flatnonzero(~empty)[~(hours <= 24)]  # NaN: no time
    if len(bad):
        raise ValueError(
            f"column {name!r} holds times of day except for {len(bad)} cells (first: {words[bad[0]]!r} in "
            f"row {series.index[bad[0]]}); correct them (empty means missing), or {as_codes(name)}"
        )
    numbers = np.full(len(words), np.nan)
    numbers[~empty] = hours
    return numbers, empty
