"""Words or meaning: whether TF-IDF or a pretrained extractor tells the given labels of texts better."""

from __future__ import annotations

import warnings

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.text import TextEncoder
from tolerant.data.features import Extractor, extract
from tolerant.extras import extra

LEAST_TO_CHOOSE = 300  # with fewer texts the better one is better by chance
_ROWS, _FOLDS = 2000, 3


def agreements(dataset: NoisyDataset, extractor: Extractor) -> tuple[np.ndarray, np.ndarray]:
    """bool [n], of at most 2,000 texts: whether a model that has not seen it predicts its given label.

    By logistic regression on TF-IDF, and on the features. No true label is needed: of two models that did not
    train on a row, the one that more often says what a person said of it has learnt more.
    """
    index = np.sort(np.random.default_rng(0).permutation(len(dataset))[:_ROWS])
    texts, given = np.asarray(dataset.inputs)[index], dataset.given_labels[index]
    words = TextEncoder.fit(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of texts without a known word, which is said once, in training
        by_words = words.transform(texts).matrix
    features = extract(texts, extractor)
    return _agrees(by_words, given), _agrees(features[np.arange(len(features))], given)


def is_clearly_better(second: np.ndarray, first: np.ndarray) -> bool:
    """Whether the second is right in more rows, by more than the deviation of chance.

    >>> right = np.arange(100) < 60
    >>> is_clearly_better(right, np.roll(right, 1)), is_clearly_better(right, np.arange(100) < 50)
    (False, True)
    """
    differ = int((second != first).sum())
    return bool(int(second.sum()) - int(first.sum()) > np.sqrt(differ))


def _agrees(x: np.ndarray, given: np.ndarray) -> np.ndarray:
    selection, linear = extra("sklearn.model_selection"), extra("sklearn.linear_model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with fewer rows than folds, and of few iterations
        folds = selection.StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
        predicted = selection.cross_val_predict(linear.LogisticRegression(max_iter=200), x, given, cv=folds)
    return np.asarray(predicted == given)
