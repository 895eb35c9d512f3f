"""Numbers as spreadsheets write them: 1,234.5 in one country, 1.234,5 in another."""

from __future__ import annotations

import numpy as np

from tolerant.extras import extra

_GROUPED = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_DECIMAL_COMMA = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d+)?"


def plain_numbers(words: np.ndarray, separator: str) -> np.ndarray:
    """The words of a column, its numbers in the digits that Python reads.

    Between commas a comma groups digits: a decimal one would have moved the columns apart, and "1,3" may be
    two answers. Between semicolons it is a decimal one, which is why commas do not separate there. Else the
    column tells: it groups digits where it could everywhere.

    >>> plain_numbers(np.array(["1.234,5", "0,25"], object), ";").tolist()
    ['1234.5', '0.25']
    >>> plain_numbers(np.array(["1,234", "25"], object), "\\t").tolist()
    ['1234', '25']
    """
    cells = extra("pandas").Series(words, dtype=object)
    comma = cells.str.contains(",", regex=False)
    if not comma.any():
        return words
    grouped, decimal = cells.str.fullmatch(_GROUPED), cells.str.fullmatch(_DECIMAL_COMMA)
    groups = separator == "," or (separator != ";" and bool(grouped[comma].sum() >= decimal[comma].sum()))
    plain = cells.str.replace("," if groups else ".", "", regex=False).str.replace(",", ".", regex=False)
    return cells.where(~(grouped if groups else decimal), plain).to_numpy(object)
