"""What a person should know of the columns of a table before a model learns from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tolerant.data.encoders.cells import as_codes, leave_out
from tolerant.hints import warn_caller

MAX_CATEGORIES = 64  # of a column that have a feature each
_AS_READ = "amounts as plain numbers, dates as 2024-12-31 and times as 13:30"


def counts_rows(numbers: np.ndarray) -> bool:
    """Whether a column counts the rows: 1, 2, 3 ..., from any number on.

    >>> counts_rows(np.arange(100) + 7.0), counts_rows(np.arange(9.0))  # which may be nine categories
    (True, False)
    """
    return len(numbers) > MAX_CATEGORIES and np.array_equal(numbers, numbers[0] + np.arange(len(numbers)))


@dataclass(frozen=True)
class Findings:
    """What a person should know about the columns, by their names."""

    empty: list[str] = field(default_factory=list)
    row_names: list[str] = field(default_factory=list)
    """Columns with a different word in nearly every row, each with an example."""
    mixed: dict[str, str] = field(default_factory=dict)
    """Columns of words of which most are numbers. By name: in how many rows, and what the others hold."""
    counters: list[str] = field(default_factory=list)
    """Columns that count the rows: 1, 2, 3 ..."""

    def warn(self) -> None:
        """Warn of all of them, at the call of `TableEncoder.fit`."""
        for name in self.empty:
            warn_caller(f"column {name} is empty and is left out")
        if self.row_names:
            warn_caller(
                f"nearly every row has a different word in {', '.join(self.row_names[:5])}; "
                f"{MAX_CATEGORIES} of them become features. Pass row names as id=... (--id), free text as "
                f"text=... (--text); write {_AS_READ}; leave other such columns out with ignore=... "
                "(--ignore), of a frame with X.drop(columns=...)"
            )
        for name, shares in self.mixed.items():
            warn_caller(
                f"column {name!r} is read as words, though it holds {shares}. Leave a cell empty where "
                f"the number is missing; for codes {as_codes(name)}"
            )
        if self.counters:
            warn_caller(
                f"{', '.join(map(repr, self.counters[:5]))} counts the rows, and so tells how they were "
                f"sorted; {leave_out(self.counters[0])}"
            )
