"""What a word that nobody knows was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A question that names the nearest known word; empty where none is near.

    >>> did_you_mean("resnet43", ["resnet18", "resnet34", "mlp"]), did_you_mean("vit", ["mlp"])
    ("Did you mean 'resnet34'?", '')
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"Did you mean {near[0]!r}?" if near else ""
