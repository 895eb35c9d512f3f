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

import numpy as np
from numpy.typing import NDArray

from tolerant.suspects.blocks import blocks
from tolerant.suspects.one_rate import OneRate
from tolerant.suspects.whole_matrix import WholeMatrix, sharpen

NoiseModel = WholeMatrix | OneRate

# The sharpnesses to try: L_q networks land at 0.5 to 1.1, cross entropy at 1 to 8. From the largest down,
# since each fit of T starts from the one before: EM is slow to raise an entry of T that is nearly 0, and a T
# fitted to sharper probabilities has no such entry.
_SHARPNESS = np.geomspace(12.0, 0.25, 14)
FIT_ROWS = 20_000  # rows that it is fitted to: a sampling error of 0.4 points at most
_FIRST_GUESS = 0.2  # the share of labels drawn at random
_ENTRIES_A_ROW = 10.0


def sample_to_fit(num_rows: int) -> NDArray[np.int64]:
    """The numbers of the rows to fit a noise model to: at most `FIT_ROWS`, the same ones every time."""
    return np.random.default_rng(0).permutation(num_rows)[:FIT_ROWS]


def has_whole_matrix(num_rows: int, num_classes: int, entries_a_row: float = _ENTRIES_A_ROW) -> bool:
    """Whether so many rows tell how often each class gets the label of each other one."""
    return num_classes**2 <= entries_a_row * num_rows


def fit_noise_model(
    given_labels: NDArray[np.int64], probs: NDArray[np.floating], *, entries_a_row: float = _ENTRIES_A_ROW
) -> NoiseModel:
    """The sharpness and the transition matrix under which the given labels are most likely.

    If T would have more than ``entries_a_row`` for each row, it is taken to be symmetric: one noise rate, and
    all mistakes equally likely. With ten the fit would take minutes, find too much noise, rank no better.
    """
    num_rows, num_classes = probs.shape
    kind = WholeMatrix if has_whole_matrix(num_rows, num_classes, entries_a_row) else OneRate
    model: NoiseModel = kind.guess(num_classes, _FIRST_GUESS)
    best_fit, best = -np.inf, model
    for sharpness in map(float, _SHARPNESS):
        model, fit = model.refit(given_labels, probs, sharpness)
        if fit > best_fit:
            best_fit, best = fit, model
    return best


def posterior(
    model: NoiseModel, given_labels: NDArray[np.int64], probs: NDArray[np.floating]
) -> NDArray[np.float32]:
    """[N, C]: how probable each class is, given the row and its label."""
    num_rows, num_classes = probs.shape
    transition, found = model.transition, np.empty((num_rows, num_classes), np.float32)
    for part in blocks(num_rows, num_classes):
        joint = sharpen(probs[part], model.sharpness) * transition[:, given_labels[part]].T + 1e-300
        found[part] = joint / joint.sum(axis=1, keepdims=True)
    return found
