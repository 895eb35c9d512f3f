"""What helps a person on: the word that was probably meant, and warnings at the line that they wrote."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

from tolerant.printable import printable


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6, most: int = 1) -> str:
    """A question that names the nearest known words, so many at the most; empty where none is near.

    >>> did_you_mean("resnet43", ["resnet18", "resnet34", "mlp"]), did_you_mean("vit", ["mlp"])
    ("Did you mean 'resnet34'?", '')
    >>> did_you_mean("lite", ["lite0", "lite1", "minilm"], most=2)
    "Did you mean 'lite0' or 'lite1'?"
    """
    words = list(known)
    near = difflib.get_close_matches(word, words, n=most, cutoff=cutoff)
    named = [repr(each) for each in sorted(near, key=words.index)]
    return f"Did you mean {' or '.join(named)}?" if near else ""


def warn_caller(message: str) -> None:
    """A UserWarning at the line outside of this package from which it was called, however deep we are."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tolerant":
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message), stacklevel=level)
