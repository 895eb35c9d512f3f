"""How labels go wrong, told by the rows that a model is surest of.

If a row has class i with probability p_i, its given label is j with probability sum_i p_i T[i, j]. Many
pairs of p and T lead to the same labels: a model that says exactly how likely each GIVEN label is can be
explained by "no label is wrong, rows are hard" as well as by the real T. So the likelihood of the labels
(:mod:`tolerant.suspects.noise_model`) cannot choose, and of 40 % pair flips it saw none.
What can is an assumption: of every class there are rows that are surely of it, its anchors. Their labels are
drawn from row i of T (Scott et al. 2013, Liu & Tao 2016; Patrini et al. 2017 take one row a class).

So here labels are counted, among the rows taken for a class, by how sure the model is of it:

- The share of each given label is a straight line in the model's probability up to a knot, and level from
  there; its value at the knot is row i of T. The knot lies at one of six quantiles, where such lines explain
  the labels best: early for predictions of TRUE classes, which are soon as sure as they get, late for those
  of given labels. The counted labels are out of fold, so this holds however well the model is calibrated.
- With that T the predictions are unmixed: p is moved towards what T turns into the prediction. Rows of a
  class whose label is often another one are then taken for their own. Lines and T are fitted again, twice.

A line uses all rows of a class, so it errs less than the surest tenth of them would, and unlike the confident
joint it does not take the rows between two classes for mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolerant.noise.estimate import Probs, most_likely_true_share
from tolerant.suspects.blocks import blocks

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]
Index = NDArray[np.int64]

_KNOTS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.97)
_UNMIXINGS = 2  # a third moved the rate by less than a point
_STEPS = 5  # of EM: 30 made noise of the predictions' own noise
_LEAST_FOR_A_LINE = 10  # rows of a class; of fewer the labels are counted, however sure the model is
_SHARE_STEPS = 20
_LEAST = 1e-7  # of an entry of T: every label stays possible


@dataclass(frozen=True, eq=False)
class Anchors:
    """T by the surest rows, and the noise rate that follows from it and from how frequent each label is."""

    given_labels: Labels
    choice: Labels
    """[N] the class that each row is taken for."""
    sure: Matrix
    """[N] how sure that is."""
    transition: Matrix
    true_share: Matrix
    rate: float
    first_rate: float
    """The rate before the predictions were unmixed: a second opinion."""

    def refit(self, index: Index) -> float:
        """The rate of a resample of the rows; what they are taken for stays."""
        given = self.given_labels[index]
        transition = _by_surest(given, self.choice[index], self.sure[index], len(self.transition))
        share = np.bincount(given, minlength=len(transition)) / len(given)
        true_share = self.true_share
        for _ in range(_SHARE_STEPS):  # EM, from the solution for all rows, which is near
            true_share = true_share * (transition @ (share / (true_share @ transition)))
        return _rate(transition, true_share)


def fit_anchors(given_labels: Labels, probs: Probs) -> Anchors:
    """Fit T to given labels and to predictions of models that have not seen them.

    >>> true = np.arange(1000) % 2
    >>> transition = np.array([[0.7, 0.3], [0.0, 1.0]])
    >>> given = np.where((true == 0) & (np.arange(1000) % 20 < 6), 1, true)  # 30 % of class 0
    >>> found = fit_anchors(given, transition[true])  # as well calibrated as can be
    >>> round(found.rate, 3), found.transition.round(3).tolist()
    (0.15, [[0.7, 0.3], [0.0, 1.0]])
    """
    num_classes = probs.shape[1]
    share = np.bincount(given_labels, minlength=num_classes) / len(given_labels)
    choice, sure = probs.argmax(axis=1), probs.max(axis=1).astype(np.float64)
    first_rate = 0.0
    for unmixing in range(_UNMIXINGS + 1):
        transition = _by_surest(given_labels, choice, sure, num_classes)
        true_share = most_likely_true_share(transition, share)
        rate = _rate(transition, true_share)
        if unmixing == 0:
            first_rate = rate
        if unmixing < _UNMIXINGS:
            choice, sure = _unmix(probs, transition)
    return Anchors(given_labels, choice, sure, transition, true_share, rate, first_rate)


def _rate(transition: Matrix, true_share: Matrix) -> float:
    return float(np.clip(true_share @ (1.0 - transition.diagonal()), 0.0, 1.0))


def _by_surest(given: Labels, choice: Labels, sure: Matrix, num_classes: int) -> Matrix:
    """T: for each class the share of each given label where the model is as sure of the class as it gets."""
    num_rows = np.bincount(choice, minlength=num_classes)
    divisor = np.maximum(num_rows, 1)
    pair = choice * num_classes + given

    def by_pair(values: Matrix | None) -> Matrix:
        sums = np.bincount(pair, values, num_classes**2)
        return sums.reshape(num_classes, num_classes).astype(np.float64)

    mean = by_pair(None) / divisor[:, None]
    own = mean.diagonal()
    spread = np.maximum(own * (1.0 - own), 1e-12)
    in_order = sure[np.lexsort((sure, choice))]
    first = num_rows.cumsum() - num_rows
    best, rise = -1.0, np.zeros_like(mean)
    for knot in _KNOTS:
        place = first + np.minimum((knot * num_rows).astype(np.int64), divisor - 1)
        top = in_order[np.minimum(place, len(sure) - 1)]
        level = np.minimum(sure, top[choice])
        middle = np.bincount(choice, level, num_classes) / divisor
        away = level - middle[choice]
        square, product = np.bincount(choice, away**2, num_classes), by_pair(away)
        # Surer rows carry the label more often; where they do not, chance has it so and the line is level.
        rises = (num_rows >= _LEAST_FOR_A_LINE) & (square > 1e-9 * divisor) & (product.diagonal() > 0)
        slope = np.where(rises[:, None], product / np.where(rises, square, 1.0)[:, None], 0.0)
        explained = float((slope.diagonal() * product.diagonal() / spread).sum())
        if explained > best:
            best, rise = explained, slope * (top - middle)[:, None]
    found = np.maximum(mean + rise, _LEAST)
    found[num_rows == 0] = np.eye(num_classes)[num_rows == 0] + _LEAST  # keeps its label
    transition: Matrix = found / found.sum(axis=1, keepdims=True)
    return transition


def _unmix(probs: Probs, transition: Matrix) -> tuple[Labels, Matrix]:
    """The most probable class of each row, and its probability, if T made these predictions of true classes.

    By a few steps of expectation maximisation from the predictions themselves.
    """
    num_rows, num_classes = probs.shape
    choice, sure = np.empty(num_rows, np.int64), np.empty(num_rows)
    for part in blocks(num_rows, num_classes):
        some = np.maximum(probs[part].astype(np.float64), 1e-9)
        true = some
        for _ in range(_STEPS):
            true = true * ((some / (true @ transition)) @ transition.T)
        choice[part] = true.argmax(axis=1)
        sure[part] = true.max(axis=1) / true.sum(axis=1)
    return choice, sure
