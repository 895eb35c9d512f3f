"""Committees on disk, without pickle: a file from anywhere is read, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tolerant.extras import extra
from tolerant.files import write_atomic

# What the named classifiers are made of beyond what skops trusts by itself.
_TRUSTED = (
    "numpy.dtype",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)


def write_classifiers(path: Path, fitted: Mapping[str, Any]) -> None:
    write_atomic(path, extra("skops.io").dumps(dict(fitted)))


def read_classifiers(path: Path) -> dict[str, Any]:
    """Those of `write_classifiers`; a file with anything else in it is refused."""
    skops = extra("skops.io")
    try:
        data = path.read_bytes()
        strange = sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED))
        if strange:
            raise ValueError(f"it holds {strange[0]}, which none of our models has")
        return dict(skops.loads(data, trusted=list(_TRUSTED)))
    except Exception as error:  # a damaged archive fails in many ways
        raise ValueError(f"{path} cannot be read: {error}. Train again.") from error
