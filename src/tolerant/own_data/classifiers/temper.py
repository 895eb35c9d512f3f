"""Predictions moved towards rare classes, as far as the given labels ask for it."""

from __future__ import annotations

from typing import Literal

import numpy as np

ClassWeight = Literal["auto", "balanced", "none"]
_TAUS = np.arange(9) / 8


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

    Where classes are unequal the two trade against each other, and this counts both alike.

    >>> agreement(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]), 2)
    0.625
    """
    right = np.bincount(given_labels[given_labels == choice], minlength=num_classes)
    counts = np.bincount(given_labels, minlength=num_classes)
    there = counts > 0
    return float((right.sum() / counts.sum() + (right[there] / counts[there]).mean()) / 2)


def choose_tau(
    given_labels: np.ndarray, probs: np.ndarray, prior: np.ndarray, class_weight: ClassWeight
) -> tuple[float, float]:
    """(tau, the agreement with it), for predictions of rows that the models have not seen.

    "auto" takes the best of 0, 1/8 .. 1.
    """
    taus = {"auto": _TAUS, "none": _TAUS[:1], "balanced": _TAUS[-1:]}[class_weight]
    found = [
        agreement(given_labels, (probs / np.where(prior > 0, prior, 1.0) ** tau).argmax(1), probs.shape[1])
        for tau in taus
    ]
    best = int(np.argmax(found))  # the first: the least change
    return float(taus[best]), found[best]
