"""Valid JSON with one thing wrong in it, as an editor or a bad disk leaves it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

WRONG = (None, -1, 0.5, "x", ["x"], {"x": 1})


def wrong_in(value: Any) -> Iterator[Any]:
    """The value with one of its fields, at any depth, missing or something else."""
    entries: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        entries = list(range(min(len(value), 2)))
    for key in entries:
        without = copy.copy(value)
        del without[key]
        yield without
        for inner in (*WRONG, *wrong_in(value[key])):
            changed = copy.copy(value)
            changed[key] = inner
            yield changed
