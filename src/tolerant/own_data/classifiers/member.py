"""One classifier: fitted to rows with weights, asked for the probabilities of all classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.extras import extra
from tolerant.own_data.classifiers.by_word import ByWord
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.reweigh import fit_lq
from tolerant.own_data.classifiers.rows import columns, of_many_words, whole, without_empty

OWN = "own"  # what a user's own classifier is called


@dataclass(frozen=True)
class Member:
    """A classifier to be fitted."""

    name: str
    make: Callable[[NoisyDataset, int], Any]
    rows: Callable[[NoisyDataset], Any]
    q: float | None = None
    """Fit L_q by reweighting; None: what the classifier minimises itself."""
    relabels: bool = False
    """As its card says."""
    title: str | None = None
    """What errors call it; None: its name."""

    def fit(
        self,
        X: Any,
        labels: np.ndarray,
        weight: np.ndarray | None,
        make: Callable[[], Any],
        trusted: np.ndarray | None = None,
    ) -> Any:
        """A fitted classifier; ``make()`` gives one that is not, ``trusted`` labels stay as they are."""
        kept = {"trusted": trusted} if self.relabels else {}
        X = without_empty(X, weight) if self.rows is columns else X

        def fit(weight: np.ndarray | None) -> Any:
            model = make()
            return model.fit(X, labels, **({} if weight is None else _named_weight(model, weight)), **kept)

        if not self.q:
            return fit(weight)
        if not takes_weights(make()):
            raise ValueError(
                "loss 'lq' is minimised by weights of the rows, and its fit takes no sample_weight. Leave "
                "the loss out, or take a classifier that does"
            )
        num_classes = int(labels.max()) + 1
        return fit_lq(fit, lambda model: all_probs(model, X, num_classes), labels, weight, self.q)[0]


def named_member(name: str, q: float | None = None) -> Member:
    card = CLASSIFIERS[name]

    def make(dataset: NoisyDataset, seed: int) -> Any:
        model, places = card.make(dataset, seed), of_many_words(dataset, card.rows)
        return ByWord(model, places) if places else model

    return Member(name, make, card.rows, q, card.relabels)


def own_member(model: Any, q: float | None = None) -> Member:
    """A user's own classifier, copied for each fit."""
    title = type(model.steps[-1][1] if hasattr(model, "steps") else model).__name__
    return Member(OWN, lambda dataset, seed: _seeded(_copied(model), seed), whole, q, title=title)


def _copied(model: Any) -> Any:
    try:
        return extra("sklearn.base").clone(model)
    except RuntimeError:  # it keeps a copy of an argument, as CatBoost does of its `cat_features`
        return deepcopy(model)


def is_classifier(model: Any) -> bool:
    """Whether it is a classifier of scikit-learn's kind: an object that can be fitted to rows and labels."""
    return not isinstance(model, type) and hasattr(model, "fit") and hasattr(model, "get_params")


def check_classifier(model: Any) -> None:
    """A ValueError if rows cannot be judged by it."""
    if isinstance(model, extra("sklearn.base").RegressorMixin):  # it cannot be wrapped
        raise ValueError(
            f"model must be a classifier; {type(model).__name__} is a regressor, which predicts numbers. "
            "Take the classifier of its kind, such as LogisticRegression or RandomForestClassifier."
        )
    if not hasattr(model, "predict_proba"):
        raise ValueError(
            f"model must have predict_proba, by which labels are doubted; {type(model).__name__} has none. "
            "Wrap it: sklearn.calibration.CalibratedClassifierCV(model)."
        )


def all_probs(model: Any, X: Any, num_classes: int) -> np.ndarray:
    """float32 [N, C]; 0 for a class that no row of its fit had."""
    found = np.asarray(model.predict_proba(X), np.float32)
    probs = np.zeros((len(found), num_classes), np.float32)
    probs[:, np.asarray(model.classes_, np.int64)] = found
    return probs


def takes_weights(model: Any) -> bool:
    """Whether its `fit` takes sample weights; of a pipeline, that of its last step."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    return bool(extra("sklearn.utils.validation").has_fit_parameter(last, "sample_weight"))


def _named_weight(model: Any, weight: np.ndarray) -> dict[str, np.ndarray]:
    if not takes_weights(model):
        raise ValueError(
            f"sample weights were given, and {type(model).__name__} has no sample_weight in its fit. "
            "Leave them out, or take a classifier that has."
        )
    name = "sample_weight" if not hasattr(model, "steps") else f"{model.steps[-1][0]}__sample_weight"
    return {name: weight}


def _seeded(model: Any, seed: int) -> Any:
    """Its open seeds set, such that the same call gives the same model."""
    open_seeds = {
        name: seed
        for name, value in model.get_params().items()
        if value is None and name.rpartition("__")[2] == "random_state"
    }
    return model.set_params(**open_seeds)


@contextmanager
def quietly() -> Iterator[None]:
    """A fit that stops after its last iteration is good enough to doubt with."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=extra("sklearn.exceptions").ConvergenceWarning)
        yield
