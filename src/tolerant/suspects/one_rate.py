"""The noise model of many classes and few rows: T is symmetric, one noise rate and all mistakes alike.

Then a row counts by two numbers only, the sharpened probability of its given label and of all others, and
no matrix is formed: with thousands of classes those of every fit and resample would be the whole cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tolerant.noise.estimate import Probs
from tolerant.noise.transition import symmetric
from tolerant.suspects.blocks import blocks
from tolerant.suspects.whole_matrix import Labels, Matrix, sharpen

Index = NDArray[np.int64]

_STILL = 3e-6  # a single number, which all rows determine, can be had more exactly than a matrix
_MOST_ITERATIONS = 100


@dataclass(frozen=True)
class OneRate:
    """A sharpness and one noise rate; its methods are those of `whole_matrix.WholeMatrix`, and `refitter`."""

    num_classes: int
    wrong: float
    """The noise rate of every class."""
    sharpness: float = 1.0
    num_free = 1

    @classmethod
    def guess(cls, num_classes: int, random: float) -> OneRate:
        return cls(num_classes, random - random / num_classes)

    @property
    def transition(self) -> Matrix:
        return symmetric(self.num_classes, self.wrong)

    def refit(self, given_labels: Labels, probs: Probs, sharpness: float) -> tuple[OneRate, float]:
        model = replace(self, sharpness=sharpness)
        sharp = model._sharpened(given_labels, probs)
        model = model._most_likely(sharp)
        return model, model._log_likelihood(sharp)

    def refitter(self, given_labels: Labels, probs: Probs) -> Callable[[Index], float]:
        """A function of row numbers: the share of wrong labels among them, fitted to them."""
        sharp = self._sharpened(given_labels, probs)
        return lambda index: self._most_likely(sharp[:, index])._expected_wrong(sharp[:, index])

    def expected_wrong(self, given_labels: Labels, probs: Probs) -> float:
        return self._expected_wrong(self._sharpened(given_labels, probs))

    def log_likelihood(self, given_labels: Labels, probs: Probs) -> float:
        return self._log_likelihood(self._sharpened(given_labels, probs))

    def log_odds_right(self, given_labels: Labels, probs: Probs) -> Matrix:
        right, by_mistake = self._right_and_mistaken(self._sharpened(given_labels, probs))
        return np.log(right + 1e-300) - np.log(by_mistake + 1e-300)

    def _sharpened(self, given_labels: Labels, probs: Probs) -> Matrix:
        """[2, N] of p^s, each row summing to one: that of the given label, and of all others together.

        >>> OneRate(2, 0.1, sharpness=2.0)._sharpened(np.array([0]), np.array([[0.8, 0.2]])).round(3)
        array([[0.941], [0.059]])
        """
        num_rows, num_classes = probs.shape
        p_given, p_others = result = np.empty((2, num_rows))
        for part in blocks(num_rows, num_classes):
            sharp = sharpen(probs[part], self.sharpness)
            place = (np.arange(len(sharp)), given_labels[part])
            p_given[part] = sharp[place]
            sharp[place] = 0.0
            p_others[part] = sharp.sum(axis=1)  # and not 1 - p_given: of a sure row that would be 0
        return result

    def _most_likely(self, sharp: Matrix) -> OneRate:
        """The model under whose noise rate these labels are most likely, by EM from the present rate."""
        model = self
        for _ in range(_MOST_ITERATIONS):
            # Not quite 0 and not quite 1, so that every label stays possible however sure the model is.
            wrong = min(max(model._expected_wrong(sharp), 1e-9), 1.0 - 1e-3)
            moved, model = abs(wrong - model.wrong), replace(model, wrong=wrong)
            if moved < _STILL:
                break
        return model

    def _expected_wrong(self, sharp: Matrix) -> float:
        right, by_mistake = self._right_and_mistaken(sharp)
        return float((by_mistake / (by_mistake + right)).mean())

    def _log_likelihood(self, sharp: Matrix) -> float:
        right, by_mistake = self._right_and_mistaken(sharp)
        return float(np.log(right + by_mistake).sum())

    def _right_and_mistaken(self, sharp: Matrix) -> tuple[Matrix, Matrix]:
        return (1.0 - self.wrong) * sharp[0], self.wrong / (self.num_classes - 1) * sharp[1]
