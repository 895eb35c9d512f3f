"""Words or meaning: which of TF-IDF and a pretrained extractor tells the given labels of texts better."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.text import TextEncoder
from tolerant.data.features import Extractor, extract
from tolerant.extras import extra
from tolerant.own_data.classifiers.choose import takes_classifiers
from tolerant.own_data.settings import Settings
from tolerant.threads import one_thread_in_libraries

MOST_UNASKED = 20_000  # texts of which a processor computes features without being asked: some ten minutes
LEAST_TO_CHOOSE = 300  # with fewer texts the better one is better by chance
# Of all texts together: a run of characters for each takes 8 bytes, and each fold a copy of its own.
MOST_CHARACTERS = 20_000_000
MOST_ASKED, _FOLDS = 2000, 3


@dataclass(frozen=True, eq=False)
class Agreements:
    """bool [n] each: whether a model that has not seen a text predicts its given label, by what it sees."""

    words: np.ndarray
    features: np.ndarray
    both: np.ndarray


def agreements(dataset: NoisyDataset, extractor: Extractor) -> Agreements:
    """Ask at most 2,000 texts: logistic regression on TF-IDF, on the features, and the mean of the two.

    No true label is needed: of two models that did not train on a row, the one that gives its label more
    often has learnt more.
    """
    index = np.sort(np.random.default_rng(0).permutation(len(dataset))[:MOST_ASKED])
    texts, given = np.asarray(dataset.free_texts)[index], dataset.given_labels[index]
    words = TextEncoder.fit(texts)
    with warnings.catch_warnings(action="ignore"):  # of texts without a known word: said in training
        by_words = words.transform(texts).matrix
    features = extract(texts, extractor)
    _, labels = np.unique(given, return_inverse=True)
    first, second = _probs(by_words, labels), _probs(features[np.arange(len(features))], labels)
    return Agreements(*(probs.argmax(1) == labels for probs in (first, second, first + second)))


def is_clearly_better(second: np.ndarray, first: np.ndarray) -> bool:
    """Whether the second is right in more rows, by more than the deviation of chance.

    >>> right = np.arange(100) < 60
    >>> is_clearly_better(right, np.roll(right, 1)), is_clearly_better(right, np.arange(100) < 50)
    (False, True)
    """
    differ = int((second != first).sum())
    return bool(int(second.sum()) - int(first.sum()) > np.sqrt(differ))


def takes_characters(settings: Settings) -> bool | Literal["auto"]:
    """Whether the model is to see runs of characters beside the words; "auto": unless there are many."""
    if not takes_classifiers(settings):
        return False
    return "auto" if settings.model == "auto" else settings.model not in ("words", "bayes")


def reads_characters(
    dataset: NoisyDataset, wanted: bool | Literal["auto"], say: Callable[[str], None] = lambda line: None
) -> bool:
    """Whether its texts, if it has some, are read as runs of characters beside the words.

    ``wanted``: `takes_characters`; ``say`` is told if "auto" leaves them out.
    """
    if dataset.free_texts is None:
        return False
    if wanted != "auto":
        return wanted
    many = sum(map(len, np.asarray(dataset.free_texts))) > MOST_CHARACTERS
    if many:
        say(
            f"Trained on words: with more than {MOST_CHARACTERS // 10**6} million characters, runs of them "
            "take gigabytes. With: --model characters"
        )
    return not many


def _probs(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    selection, linear = extra("sklearn.model_selection"), extra("sklearn.linear_model")
    with (
        one_thread_in_libraries(),
        warnings.catch_warnings(action="ignore"),  # of classes smaller than the folds, of few iterations
    ):
        folds = selection.StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
        model = linear.LogisticRegression(max_iter=200)
        return np.asarray(selection.cross_val_predict(model, x, labels, cv=folds, method="predict_proba"))
