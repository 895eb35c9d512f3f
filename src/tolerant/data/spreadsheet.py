"""Numbers as spreadsheets write them: 1,234.5 in one country, 1.234,5 in another."""

from __future__ import annotations

import numpy as np

from tolerant.extras import extra

_GROUPED = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_DECIMAL_COMMA = r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d+)?"
_SPACE = r"[ \u00a0\u202f]"  # the last two do not break: what spreadsheets write
_SPACED = rf"[+-]?[1-9]\d{{0,2}}(?:{_SPACE}\d{{3}})+(?:[.,]\d+)?"


def plain_numbers(words: np.ndarray, separator: str) -> np.ndarray:
    """The words of a column, with numbers rewritten as Python reads them.

    What a comma in a number means depends on what separates the columns of the file:

    - commas: it groups digits. A decimal comma would have cut the cell in two, and a quoted "1,3" may be two
      answers.
    - semicolons: it is a decimal comma, which is why the columns could not be separated by commas.
    - tabs or bars: it groups digits, unless more cells can be read with a decimal comma.

    A blank groups digits too, and a percent sign that every cell has is left out.

    >>> plain_numbers(np.array(["1.234,5", "0,25"], object), ";").tolist()
    ['1234.5', '0.25']
    >>> plain_numbers(np.array(["1,234", "25"], object), "\\t").tolist()
    ['1234', '25']
    >>> plain_numbers(np.array(["1 234,5 %", "25 %"], object), ";").tolist()
    ['1234.5', '25']
    """
    cells = extra("pandas").Series(words, dtype=object)
    if cells.str.endswith("%").all():
        cells = cells.str[:-1].str.rstrip()
    spaced = cells.str.fullmatch(_SPACED)
    cells = cells.where(~spaced, cells.str.replace(_SPACE, "", regex=True))
    comma = cells.str.contains(",", regex=False)
    if not comma.any():
        return cells.to_numpy(object)
    grouped, decimal = cells.str.fullmatch(_GROUPED), cells.str.fullmatch(_DECIMAL_COMMA)
    groups = separator == "," or (separator != ";" and bool(grouped[comma].sum() >= decimal[comma].sum()))
    plain = cells.str.replace("," if groups else ".", "", regex=False).str.replace(",", ".", regex=False)
    return cells.where(~(grouped if groups else decimal), plain).to_numpy(object)
