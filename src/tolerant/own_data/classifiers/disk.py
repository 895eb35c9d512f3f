"""Committees on disk, without pickle: a file from anywhere is read, and runs nothing.

A file is the length of its head in eight bytes, the head in JSON, and arrays in numpy's format. Of an object
the head has the class and what pickle would keep of it, but a class must be one of those below, and is made
by `__new__` alone or, for the trees of forests, by its own constructor. (skops does the same for any
estimator. It takes a second to import, since it lists all of scikit-learn, and ten times as long to write a
forest.)
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.regular import read_bytes

_MADE_BY_ARGUMENTS = ("sklearn.tree._tree.Tree",)
_KNOWN = (  # what the named classifiers are made of
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn.ensemble._forest.ExtraTreesClassifier",
    "sklearn.ensemble._forest.RandomForestClassifier",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.naive_bayes.ComplementNB",
    "sklearn.preprocessing._label.LabelEncoder",
    "sklearn.tree._classes.DecisionTreeClassifier",
    "sklearn.tree._classes.ExtraTreeClassifier",
    "tolerant.own_data.classifiers.by_word.ByWord",
    "tolerant.own_data.classifiers.discriminant.RoundDiscriminant",
    "tolerant.own_data.classifiers.taught.Taught",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
    *_MADE_BY_ARGUMENTS,
)
_TO_FIT_ALONE = ("_feature_subsample_rng", "closs")  # attributes that no prediction asks for


def write_classifiers(path: Path, fitted: Mapping[str, Any], digest: str) -> None:
    """``digest``: of the run."""
    arrays: list[np.ndarray] = []
    head = json.dumps({"digest": digest, "fitted": _packed(dict(fitted), arrays)}).encode()
    data = io.BytesIO()
    data.write(len(head).to_bytes(8, "little") + head)
    for array in arrays:
        np.lib.format.write_array(data, array, allow_pickle=False)
    write_atomic(path, data.getvalue())


def read_classifiers(path: Path) -> tuple[dict[str, Any], str | None]:
    """Those of `write_classifiers` and their digest; a file with anything else in it is refused."""
    try:
        data = io.BytesIO(read_bytes(path))
        head = json.loads(data.read(int.from_bytes(data.read(8), "little")))
        arrays = []
        while data.tell() < data.getbuffer().nbytes:
            arrays.append(np.lib.format.read_array(data, allow_pickle=False))
        return dict(_unpacked(head["fitted"], arrays)), head["digest"]
    except Exception as error:  # a damaged file fails in many ways
        raise ValueError(f"{path} cannot be read: {error}. Train again.") from error


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """As JSON: a plain value is itself, all else ``[kind, content]``; an array is its place in ``arrays``."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic | bytearray):
        kind = "bytes" if isinstance(value, bytearray) else "array" if np.ndim(value) else "number"
        arrays.append(np.frombuffer(value, np.uint8) if kind == "bytes" else np.asarray(value))
        return [kind, len(arrays) - 1]
    if isinstance(value, np.dtype):
        return ["dtype", value.str]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_packed(one, arrays) for one in value]]
    if isinstance(value, dict):
        pairs = ((key, None if key in _TO_FIT_ALONE else one) for key, one in value.items())
        return ["dict", [[_packed(key, arrays), _packed(one, arrays)] for key, one in pairs]]
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    _check_known(name)
    _, arguments, *state = value.__reduce_ex__(2)
    arguments = arguments if name in _MADE_BY_ARGUMENTS else arguments[1:]  # without the class
    return ["object", [name, _packed(list(arguments), arrays), _packed(state[0] if state else None, arrays)]]


def _unpacked(packed: Any, arrays: list[np.ndarray]) -> Any:
    if not isinstance(packed, list):
        return packed
    kind, content = packed
    match kind:
        case "array":
            return arrays[content]
        case "number":
            return arrays[content][()]
        case "bytes":
            return bytearray(arrays[content])
        case "dtype":
            return np.dtype(content)
        case "list" | "tuple":
            found = [_unpacked(one, arrays) for one in content]
            return found if kind == "list" else tuple(found)
        case "dict":
            return {_unpacked(key, arrays): _unpacked(one, arrays) for key, one in content}
    name, arguments, state = content
    _check_known(name)
    module, _, of_module = name.rpartition(".")
    of_class = getattr(extra(module), of_module)
    arguments, state = _unpacked(arguments, arrays), _unpacked(state, arrays)
    value = of_class(*arguments) if name in _MADE_BY_ARGUMENTS else of_class.__new__(of_class, *arguments)
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
    elif state is not None:
        value.__dict__.update(state)
    return value


def _check_known(name: str) -> None:
    if name not in _KNOWN:
        raise ValueError(f"it holds {name}, which none of our models has")
