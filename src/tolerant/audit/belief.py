"""How likely each given label is right, from a model's predictions alone.

A small probability of the given label can mean three things: the label is wrong, the row is hard, or the
model is unsure in general. They are told apart by fitting, to the given labels themselves,

    P(given = j | row)  =  sum_i  p_i^s / sum(p^s)  *  T[i, j]

with a sharpness s (one number, which corrects a model that is too sure or, like one trained with cross
entropy on wrong labels, not sure enough) and a transition matrix T. Both maximise the likelihood: for a fixed
s the problem is concave in T and expectation maximisation solves it. Bayes' rule then gives the probability
that a label is right.

In first trials, not stored, the ranking was better than by p_y alone where one class is mistaken for another,
as good under heavy uniform noise, and slightly worse under light uniform noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolerant.audit.one_rate import OwnAndRest
from tolerant.audit.sharpen import sharpen

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

# The sharpnesses to try: L_q networks land at 0.5 to 1.1, cross entropy at 1 to 8. From the largest down,
# since each fit of T starts from the one before: EM is slow to raise an entry of T that is nearly 0, and a T
# fitted to sharper probabilities has no such entry.
_SHARPNESS = np.geomspace(12.0, 0.25, 14)
_STILL = 3e-4  # EM has ended when no entry of T moves by more: after 5 to 40 iterations
_MOST_ITERATIONS = 100
# If T would have more entries than this for each row, it is taken to be symmetric: one noise rate, and all
# mistakes equally likely. So few rows do not determine so many numbers: the fit would take minutes, find too
# much noise, and rank no better.
_ENTRIES_A_ROW = 10
_BLOCK = 1 << 22  # numbers in one temporary: 32 MiB


@dataclass(frozen=True)
class NoiseModel:
    """What relates a model's probabilities to the given labels."""

    transition: Matrix
    sharpness: float
    symmetric: bool = False
    """T has one noise rate for all classes, since there are too few rows for more."""

    @property
    def wrong(self) -> float:
        """The mean noise rate of the classes."""
        return float(1.0 - self.transition.diagonal().mean())

    def expected_wrong(self, given_labels: Labels, probs: NDArray[np.floating]) -> float:
        """The share of wrong labels among these."""
        if self.symmetric:
            return OwnAndRest.of(given_labels, probs, self.sharpness).expected_wrong(self.wrong)
        return expected_wrong(by_label(given_labels, sharpen(probs, self.sharpness)), self.transition)

    def log_likelihood(self, given_labels: Labels, probs: NDArray[np.floating]) -> float:
        """Of these labels."""
        if self.symmetric:
            return OwnAndRest.of(given_labels, probs, self.sharpness).log_likelihood(self.wrong)
        return log_likelihood(by_label(given_labels, sharpen(probs, self.sharpness)), self.transition)

    def log_odds_right(self, given_labels: Labels, probs: NDArray[np.floating]) -> Matrix:
        """[N] log P(right) - log P(wrong) of each given label.

        T enters halfway to its symmetric average. On its own it also learns which classes the model
        confuses, and then suspects every row of a hard pair: under uniform noise the ranking suffers.
        """
        if self.symmetric:
            return OwnAndRest.of(given_labels, probs, self.sharpness).log_odds_right(self.wrong)
        num_rows, num_classes = probs.shape
        damped = (self.transition + _same_mistakes(num_classes, self.wrong)) / 2
        result = np.empty(num_rows)
        step = max(1, _BLOCK // num_classes)
        for start in range(0, num_rows, step):
            given = given_labels[start : start + step]
            belief = sharpen(probs[start : start + step], self.sharpness) * damped[:, given].T
            right = belief[np.arange(len(given)), given]
            belief[np.arange(len(given)), given] = 0.0
            wrong = belief.sum(axis=1)
            result[start : start + step] = np.log(right + 1e-300) - np.log(wrong + 1e-300)
        return result


def fit_noise_model(given_labels: Labels, probs: NDArray[np.floating]) -> NoiseModel:
    """The sharpness and the transition matrix under which the given labels are most likely."""
    num_rows, num_classes = probs.shape
    if num_classes**2 > _ENTRIES_A_ROW * num_rows:
        return _fit_symmetric(given_labels, probs)
    transition = np.full((num_classes, num_classes), 0.2 / num_classes) + 0.8 * np.eye(num_classes)
    best_fit, best = -np.inf, NoiseModel(transition, 1.0)
    for sharpness in _SHARPNESS:
        rows = by_label(given_labels, sharpen(probs, float(sharpness)))
        transition = maximise(rows, transition)
        fit = log_likelihood(rows, transition)
        if fit > best_fit:
            best_fit, best = fit, NoiseModel(transition, float(sharpness))
    return best


def _fit_symmetric(given_labels: Labels, probs: NDArray[np.floating]) -> NoiseModel:
    num_classes = probs.shape[1]
    wrong = 0.2 - 0.2 / num_classes
    best_fit, best = -np.inf, (wrong, 1.0)
    for sharpness in map(float, _SHARPNESS):
        rows = OwnAndRest.of(given_labels, probs, sharpness)
        wrong = rows.fit(wrong)
        if (fit := rows.log_likelihood(wrong)) > best_fit:
            best_fit, best = fit, (wrong, sharpness)
    return NoiseModel(_same_mistakes(num_classes, best[0]), best[1], symmetric=True)


def log_likelihood(rows: list[Matrix], transition: Matrix) -> float:
    """Of the given labels, from the sharpened rows that carry each."""
    return sum(float(np.log(own @ transition[:, label]).sum()) for label, own in enumerate(rows))


def by_label(given_labels: Labels, sharp: Matrix) -> list[Matrix]:
    """The rows of `sharp` that carry label 0, those that carry label 1, and so on."""
    counts = np.bincount(given_labels, minlength=sharp.shape[1])
    order = np.argsort(given_labels, kind="stable")
    return np.split(sharp[order], np.cumsum(counts)[:-1])


def maximise(rows: list[Matrix], transition: Matrix) -> Matrix:
    """The most likely T for the rows of each given label, from a first guess, by EM."""
    # Keeps every label possible, so no division by zero; a class without any row keeps its label.
    least = np.full_like(transition, 1e-9) + 1e-3 * np.eye(len(transition))
    for _ in range(_MOST_ITERATIONS):
        counts = np.empty_like(transition)  # expected number of rows [true, given]
        for label, own in enumerate(rows):
            column = transition[:, label]
            counts[:, label] = column * ((1.0 / (own @ column)) @ own)
        counts += least
        updated = counts / counts.sum(axis=1, keepdims=True)
        moved = float(np.abs(updated - transition).max())
        transition = updated
        if moved < _STILL:
            break
    return transition


def expected_wrong(rows: list[Matrix], transition: Matrix) -> float:
    """The share of wrong labels that T and these rows of each given label lead one to expect."""
    right = sum(
        float((own[:, label] * transition[label, label] / (own @ transition[:, label])).sum())
        for label, own in enumerate(rows)
    )
    return min(max(1.0 - right / sum(len(own) for own in rows), 0.0), 1.0)


def _same_mistakes(num_classes: int, wrong: float) -> Matrix:
    same = np.full((num_classes, num_classes), wrong / (num_classes - 1))
    np.fill_diagonal(same, 1.0 - wrong)
    return same
