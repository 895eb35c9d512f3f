"""Committees on disk, without pickle: a file from anywhere is read, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.regular import read_bytes

_DIGEST = "run digest"  # no model is called so
# What the named classifiers are made of beyond what skops trusts by itself.
_TRUSTED = (
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "tolerant.own_data.classifiers.discriminant.RoundDiscriminant",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
)


def write_classifiers(path: Path, fitted: Mapping[str, Any], digest: str) -> None:
    """``digest``: of the run, an entry of its own."""
    write_atomic(path, extra("skops.io").dumps({**fitted, _DIGEST: digest}))


def read_classifiers(path: Path) -> tuple[dict[str, Any], str | None]:
    """Those of `write_classifiers` and their digest; a file with anything else in it is refused."""
    skops = extra("skops.io")
    try:
        data = read_bytes(path)
        strange = sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED))
        if strange:
            raise ValueError(f"it holds {strange[0]}, which none of our models has")
        fitted = dict(skops.loads(data, trusted=list(_TRUSTED)))
        return fitted, fitted.pop(_DIGEST, None)
    except Exception as error:  # a damaged archive fails in many ways
        raise ValueError(f"{path} cannot be read: {error}. Train again.") from error
