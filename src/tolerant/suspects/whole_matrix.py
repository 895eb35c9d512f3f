"""The noise model of enough rows: a transition matrix T, with a noise rate for every pair of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolerant.noise.estimate import Probs
from tolerant.noise.transition import symmetric, uniform
from tolerant.suspects.blocks import blocks

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

_STILL = 3e-4  # EM has ended when no entry of T moves by more: after 5 to 40 iterations
_MOST_ITERATIONS = 100
_LEAST_P = 1e-12


@dataclass(frozen=True)
class WholeMatrix:
    """A sharpness and a T (:mod:`tolerant.suspects.noise_model`)."""

    transition: Matrix
    sharpness: float = 1.0

    @classmethod
    def guess(cls, num_classes: int, random: float) -> WholeMatrix:
        """To start a fit from: this share of the labels is drawn from all classes."""
        return cls(uniform(num_classes, random))

    @property
    def num_free(self) -> int:
        """How many numbers a fit finds: each row of T sums to 1."""
        return len(self.transition) * (len(self.transition) - 1)

    def refit(self, given_labels: Labels, probs: Probs, sharpness: float) -> tuple[WholeMatrix, float]:
        """The most likely T at this sharpness, starting from the present one; and its log likelihood."""
        by_label = _split_by_label(given_labels, sharpen(probs, sharpness))
        transition = _most_likely(by_label, self.transition)
        return WholeMatrix(transition, sharpness), _log_likelihood(by_label, transition)

    def expected_wrong(self, given_labels: Labels, probs: Probs) -> float:
        """The share of wrong labels among these."""
        return _expected_wrong(self._by_label(given_labels, probs), self.transition)

    def log_likelihood(self, given_labels: Labels, probs: Probs) -> float:
        """The log likelihood of these labels."""
        return _log_likelihood(self._by_label(given_labels, probs), self.transition)

    def log_odds_right(self, given_labels: Labels, probs: Probs) -> Matrix:
        """[N] log P(right) - log P(wrong) of each given label.

        T enters halfway to its symmetric average. On its own it also learns which classes the model
        confuses, and then suspects every row of a hard pair: under uniform noise the ranking suffers.
        """
        num_rows, num_classes = probs.shape
        average = symmetric(num_classes, 1.0 - self.transition.diagonal().mean())
        damped = (self.transition + average) / 2
        result = np.empty(num_rows)
        for part in blocks(num_rows, num_classes):
            given = given_labels[part]
            joint = sharpen(probs[part], self.sharpness) * damped[:, given].T
            right = joint[np.arange(len(given)), given]
            joint[np.arange(len(given)), given] = 0.0
            wrong = joint.sum(axis=1)
            result[part] = np.log(right + 1e-300) - np.log(wrong + 1e-300)
        return result

    def _by_label(self, given_labels: Labels, probs: Probs) -> list[Matrix]:
        return _split_by_label(given_labels, sharpen(probs, self.sharpness))


def _split_by_label(given_labels: Labels, sharp: Matrix) -> list[Matrix]:
    """The predictions that carry label 0, those that carry label 1, and so on."""
    counts = np.bincount(given_labels, minlength=sharp.shape[1])
    order = np.argsort(given_labels, kind="stable")
    return np.split(sharp[order], np.cumsum(counts)[:-1])


def _most_likely(by_label: list[Matrix], transition: Matrix) -> Matrix:
    """The most likely T for the sharpened predictions of each given label, from a first guess, by EM."""
    # Keeps every label possible, so no division by zero; a class without any row keeps its label.
    least = np.full_like(transition, 1e-9) + 1e-3 * np.eye(len(transition))
    for _ in range(_MOST_ITERATIONS):
        counts = np.empty_like(transition)  # expected number of rows [true, given]
        for label, sharp in enumerate(by_label):
            column = transition[:, label]
            counts[:, label] = column * ((1.0 / (sharp @ column)) @ sharp)
        counts += least
        updated = counts / counts.sum(axis=1, keepdims=True)
        moved = float(np.abs(updated - transition).max())
        transition = updated
        if moved < _STILL:
            break
    return transition


def _log_likelihood(by_label: list[Matrix], transition: Matrix) -> float:
    """The log likelihood of the given labels, from the sharpened predictions that carry each."""
    return sum(float(np.log(sharp @ transition[:, label]).sum()) for label, sharp in enumerate(by_label))


def _expected_wrong(by_label: list[Matrix], transition: Matrix) -> float:
    """The share of wrong labels that T and these predictions of each given label lead one to expect."""
    right = sum(
        float((sharp[:, label] * transition[label, label] / (sharp @ transition[:, label])).sum())
        for label, sharp in enumerate(by_label)
    )
    return min(max(1.0 - right / sum(map(len, by_label)), 0.0), 1.0)


def sharpen(probs: Probs, sharpness: float) -> NDArray[np.float64]:
    """Rows of p^s, each summing to one.

    >>> sharpen(np.array([[0.8, 0.2]]), 2.0).round(3)
    array([[0.941, 0.059]])
    """
    logs = sharpness * np.log(np.maximum(probs.astype(np.float64), _LEAST_P))
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
