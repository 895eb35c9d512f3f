"""The noise model of many classes and few rows: T is symmetric, one noise rate and all mistakes alike.

Then a row counts by two numbers only, the sharpened probability of its given label and of all others, and
no matrix is formed: with thousands of classes those of every fit and resample would be the whole cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolerant.noise.transition import symmetric
from tolerant.suspects.whole_matrix import Index, Labels, sharpen

_STILL = 3e-6  # a single number, which all rows determine, can be had more exactly than a matrix
_MOST_ITERATIONS = 100
_BLOCK = 1 << 20  # numbers in one temporary: 8 MiB


@dataclass(frozen=True)
class OneRate:
    """A sharpness and one noise rate; its methods are those of `whole_matrix.WholeMatrix`."""

    num_classes: int
    wrong: float
    """The noise rate of every class."""
    sharpness: float = 1.0
    num_free = 1

    @classmethod
    def guess(cls, num_classes: int, random: float) -> OneRate:
        return cls(num_classes, random - random / num_classes)

    @property
    def transition(self) -> NDArray[np.float64]:
        return symmetric(self.num_classes, self.wrong)

    def refit(
        self, given_labels: Labels, probs: NDArray[np.floating], sharpness: float
    ) -> tuple[OneRate, float]:
        sharp = GivenAndOthers.of(given_labels, probs, sharpness)
        wrong = sharp.fit(self.wrong)
        return OneRate(self.num_classes, wrong, sharpness), sharp.log_likelihood(wrong)

    def refitter(self, given_labels: Labels, probs: NDArray[np.floating]) -> Callable[[Index, Index], float]:
        sharp = self._sharpened(given_labels, probs)
        return lambda fitted, among: sharp.take(among).expected_wrong(sharp.take(fitted).fit(self.wrong))

    def expected_wrong(self, given_labels: Labels, probs: NDArray[np.floating]) -> float:
        return self._sharpened(given_labels, probs).expected_wrong(self.wrong)

    def log_likelihood(self, given_labels: Labels, probs: NDArray[np.floating]) -> float:
        return self._sharpened(given_labels, probs).log_likelihood(self.wrong)

    def log_odds_right(self, given_labels: Labels, probs: NDArray[np.floating]) -> NDArray[np.float64]:
        return self._sharpened(given_labels, probs).log_odds_right(self.wrong)

    def _sharpened(self, given_labels: Labels, probs: NDArray[np.floating]) -> GivenAndOthers:
        return GivenAndOthers.of(given_labels, probs, self.sharpness)


@dataclass(frozen=True)
class GivenAndOthers:
    """Of every row, the probability of the given label and of all others together."""

    p_given: NDArray[np.float64]
    p_others: NDArray[np.float64]
    """Added up, and not 1 - p_given: of a sure row that would be 0."""
    num_classes: int

    @classmethod
    def of(cls, given_labels: Labels, probs: NDArray[np.floating], sharpness: float) -> GivenAndOthers:
        """Of p^s, each row summing to one.

        >>> found = GivenAndOthers.of(np.array([0]), np.array([[0.8, 0.2]]), 2.0)
        >>> found.p_given.round(3), found.p_others.round(3)
        (array([0.941]), array([0.059]))
        """
        num_rows, num_classes = probs.shape
        p_given, p_others = np.empty(num_rows), np.empty(num_rows)
        step = max(1, _BLOCK // num_classes)
        for start in range(0, num_rows, step):
            part = slice(start, start + step)
            sharp = sharpen(probs[part], sharpness)
            place = (np.arange(len(sharp)), given_labels[part])
            p_given[part] = sharp[place]
            sharp[place] = 0.0
            p_others[part] = sharp.sum(axis=1)
        return cls(p_given, p_others, num_classes)

    def take(self, index: Index) -> GivenAndOthers:
        return GivenAndOthers(self.p_given[index], self.p_others[index], self.num_classes)

    def fit(self, wrong: float) -> float:
        """The most likely noise rate, from a first guess, by EM."""
        for _ in range(_MOST_ITERATIONS):
            # Not quite 0 and not quite 1, so that every label stays possible however sure the model is.
            updated = min(max(self.expected_wrong(wrong), 1e-9), 1.0 - 1e-3)
            moved, wrong = abs(updated - wrong), updated
            if moved < _STILL:
                break
        return wrong

    def expected_wrong(self, wrong: float) -> float:
        """The share of wrong labels that this noise rate and these rows lead one to expect."""
        right, by_mistake = self._right_and_mistaken(wrong)
        return float((by_mistake / (by_mistake + right)).mean())

    def log_likelihood(self, wrong: float) -> float:
        right, by_mistake = self._right_and_mistaken(wrong)
        return float(np.log(right + by_mistake).sum())

    def log_odds_right(self, wrong: float) -> NDArray[np.float64]:
        """[N] log P(right) - log P(wrong)."""
        right, by_mistake = self._right_and_mistaken(wrong)
        return np.log(right + 1e-300) - np.log(by_mistake + 1e-300)

    def _right_and_mistaken(self, wrong: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return (1.0 - wrong) * self.p_given, wrong / (self.num_classes - 1) * self.p_others
