"""What helps a person on: the word that was probably meant, and warnings at the line that they wrote."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

from tolerant.printable import printable


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A question that names the nearest known word; empty where none is near.

    >>> did_you_mean("resnet43", ["resnet18", "resnet34", "mlp"]), did_you_mean("vit", ["mlp"])
    ("Did you mean 'resnet34'?", '')
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"Did you mean {near[0]!r}?" if near else ""


def warn_caller(message: str) -> None:
    """A UserWarning at the line outside of this package from which it was called, however deep we are."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tolerant":
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message), stacklevel=level)
