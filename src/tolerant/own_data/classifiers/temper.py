"""Predictions moved towards rare classes, as far as the labels ask for it."""

from __future__ import annotations

from typing import Literal

import numpy as np

ClassWeight = Literal["auto", "balanced", "none"]
_TAUS = np.arange(9) / 8
_LEAST_TO_COUNT = 10  # labels of a class with which its recall counts whole: that of two labels is chance


def temper(probs: np.ndarray, prior: np.ndarray, tau: float) -> np.ndarray:
    """float32 [N, C]: p_c / prior_c^tau, scaled to sum to 1; tau = 1 is as if all classes were as frequent.

    >>> temper(np.array([[0.8, 0.2]]), np.array([0.9, 0.1]), 1.0).astype(float).round(3).tolist()
    [[0.308, 0.692]]
    """
    if not tau:
        return np.asarray(probs, np.float32)
    parts = probs / np.where(prior > 0, prior, 1.0) ** tau
    return np.asarray(parts / parts.sum(axis=1, keepdims=True), np.float32)


def agreement(given_labels: np.ndarray, choice: np.ndarray, num_classes: int) -> float:
    """How well predicted labels agree with the given ones: the mean of accuracy and balanced accuracy.

    Where classes are unequal the two trade against each other, and this counts both alike. Of a class with
    hardly any labels the recall hardly counts.

    >>> labels = np.repeat([0, 1], [30, 10])
    >>> round(agreement(labels, np.zeros(40, int), 2), 3)
    0.625
    """
    right = np.bincount(given_labels[given_labels == choice], minlength=num_classes)
    return _both_alike(right, np.bincount(given_labels, minlength=num_classes))


def agreement_with_true(given_labels: np.ndarray, choice: np.ndarray, to_true: np.ndarray) -> float:
    """The same with true labels, as far as they follow from how labels go wrong: ``to_true`` is T inverted.

    Of the rows that are predicted as one class T turns the counts of true labels into those of given ones.

    Here the model is always right, and three in ten labels of class 1 were lost:

    >>> true = np.repeat([0, 1], 20)
    >>> given = np.where(np.arange(40) % 10 < 3, 0, true)
    >>> T = np.array([[1.0, 0.0], [0.3, 0.7]])
    >>> round(agreement(given, true, 2), 3), round(agreement_with_true(given, true, np.linalg.inv(T)), 3)
    (0.867, 1.0)
    """
    num_classes = len(to_true)
    pairs = np.bincount(choice * num_classes + given_labels, minlength=num_classes**2)
    predicted_and_true = np.maximum(pairs.reshape(num_classes, num_classes) @ to_true, 0)
    return _both_alike(predicted_and_true.diagonal(), predicted_and_true.sum(axis=0))


def _both_alike(right: np.ndarray, counts: np.ndarray) -> float:
    return float((right * _weight_of_a_row(counts)).sum())


def _weight_of_a_row(counts: np.ndarray) -> np.ndarray:
    """float64 [C]: what a row of each class, if it is right, adds to the mean of the two accuracies."""
    weight = np.minimum(counts / _LEAST_TO_COUNT, 1)
    of_recall = np.divide(weight, counts * weight.sum(), out=np.zeros(len(counts)), where=counts > 0)
    return np.asarray(1 / counts.sum() + of_recall) / 2


def error_of_difference(given_labels: np.ndarray, differ: np.ndarray, num_classes: int) -> float:
    """The standard error of the difference between two agreements, of which one is right and one wrong where
    they ``differ``, bool [N].

    >>> labels = np.repeat([0, 1], 200)
    >>> error_of_difference(labels, np.arange(400) % 4 == 0, 2)
    0.025
    """
    weight = _weight_of_a_row(np.bincount(given_labels, minlength=num_classes))
    return float(np.sqrt((weight[given_labels[differ]] ** 2).sum()))


def choose_tau(
    given_labels: np.ndarray,
    probs: np.ndarray,
    prior: np.ndarray,
    class_weight: ClassWeight,
    transition: np.ndarray | None = None,
) -> tuple[float, float]:
    """(tau, the agreement with it), for predictions of rows that the models have not seen.

    "auto" takes the best of 0, 1/8 .. 1. With the ``transition`` matrix T of the labels it is the agreement
    with true labels.
    """
    taus = {"auto": _TAUS, "none": _TAUS[:1], "balanced": _TAUS[-1:]}[class_weight]
    to_true = None if transition is None else np.linalg.pinv(transition)
    found = []
    for tau in taus:
        choice = (probs / np.where(prior > 0, prior, 1.0) ** tau).argmax(1)
        if to_true is None:
            found.append(agreement(given_labels, choice, probs.shape[1]))
        else:
            found.append(agreement_with_true(given_labels, choice, to_true))
    best = int(np.argmax(found))  # the first: the least change
    return float(taus[best]), found[best]
