"""What predictions tell about the noise: the transition matrix and the noise rate.

The predictions should come from rows the model was not trained on (cross-validation) or from a
model that has not yet memorised its labels: one that repeats every given label shows no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import Transition, check_labels, check_transition

Probs = NDArray[np.floating]

_ROW_SUM_TOLERANCE = 1e-3  # rows of a softmax in half precision


def softmax(logits: ArrayLike) -> NDArray[np.float64]:
    """Probabilities in float64: float32 turns all below 1e-38 into 0 and all above 1 - 6e-8 into 1,
    which makes anchor points of a confident model a matter of chance.

    >>> softmax([[0.0, 60.0]])
    array([[8.75651076e-27, 1.00000000e+00]])
    """
    array = np.asarray(logits, dtype=np.float64)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise ValueError(f"logits must be a finite [N, C] matrix; got shape {array.shape}.")
    exponentials = np.exp(array - array.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def anchor_points(probs: ArrayLike, percentile: float = 97.0) -> Transition:
    """T from anchor points (Patrini et al. 2017): row i is the prediction for the row surest of class i.

    "Surest" means the largest probability below the `percentile` of class i's column; 100 takes the
    largest of all. Patrini et al. use 97 against outliers, and 100 for CIFAR-100: a percentile of 97
    passes over all rows of a class that has less than 3 % of them. A class to which no row gives any
    probability keeps its label.

    >>> anchor_points([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], percentile=100)
    array([[0.8, 0.2], [0.3, 0.7]])
    """
    probs = check_probs(probs)
    if not 0.0 < percentile <= 100.0:
        raise ValueError(f"percentile must be in (0, 100]; got {percentile!r}.")
    anchors = np.empty(probs.shape[1], dtype=np.int64)
    for i, column in enumerate(probs.T):
        if percentile < 100.0:
            outlier = column >= np.percentile(column, percentile, method="higher")
            column = np.where(outlier, -1.0, column)
        anchors[i] = column.argmax()
    counts = probs[anchors].astype(np.float64)
    counts[counts.diagonal() == 0.0] = 0.0
    return _normalise(counts)


def confident_joint(given_labels: ArrayLike, probs: ArrayLike) -> NDArray[np.int64]:
    """Counts [given, true] of confident rows (Northcutt et al. 2021), the same as cleanlab's.

    A row counts for class j when its probability of j reaches the mean over the rows labelled j;
    of several such classes the most probable one. Row i is scaled to sum to the number of labels i.

    >>> confident_joint([0, 0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.3, 0.7]])
    array([[1, 1], [0, 2]])
    """
    probs = check_probs(probs)
    num_classes = probs.shape[1]
    given = _check_given(given_labels, probs)
    label_counts = np.bincount(given, minlength=num_classes)
    thresholds = np.array(  # 2: no row is ever confident of a class that no label names
        [probs[given == j, j].mean() if label_counts[j] else 2.0 for j in range(num_classes)]
    )
    confident = probs >= np.maximum(thresholds, 2e-6) - 1e-6  # both as in cleanlab: rounding
    how_many = confident.sum(axis=1)
    guess = np.where(how_many > 1, probs.argmax(axis=1), confident.argmax(axis=1))
    # Column by column, as in cleanlab: numpy adds up in the order of memory, and the last digit of the sum
    # decides how a count of 4.5 is rounded.
    counts = np.zeros((num_classes, num_classes), dtype=np.int64, order="F")
    np.add.at(counts, (given[how_many > 0], guess[how_many > 0]), 1)
    np.fill_diagonal(counts, counts.diagonal().clip(min=1))
    calibrated = (counts.T / counts.sum(axis=1) * label_counts).T
    calibrated = calibrated / calibrated.sum() * label_counts.sum()
    return np.array([_round_to_total(row) for row in calibrated])


def transition_from_joint(joint: ArrayLike) -> Transition:
    """T from counts [given, true]; a true class without a count keeps its label.

    >>> transition_from_joint([[1, 1], [0, 2]])
    array([[1.        , 0.        ], [0.33333333, 0.66666667]])
    """
    counts = np.asarray(joint, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not (counts >= 0.0).all():
        raise ValueError(f"joint must be a square matrix of counts; got shape {counts.shape}.")
    return _normalise(counts.T)


def dual_t(given_labels: ArrayLike, probs: ArrayLike, percentile: float = 97.0) -> Transition:
    """T as a product (Yao et al. 2020): true class to predicted class by anchor points, predicted
    class to given label by counting.

    For models surer than they should be, whose anchor points hide the noise: in simulated symmetric
    noise its error is then less than a third of theirs. Where probabilities are honest it counts
    the noise twice; take `anchor_points` there (benchmarks/bench_estimate.py).

    >>> probs = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> dual_t([0, 0, 1, 1], probs, percentile=100)
    array([[0.66666667, 0.33333333], [0.        , 1.        ]])
    """
    probs = check_probs(probs)
    counts = np.zeros((probs.shape[1], probs.shape[1]))
    np.add.at(counts, (probs.argmax(axis=1), _check_given(given_labels, probs)), 1.0)
    return anchor_points(probs, percentile) @ _normalise(counts)


@dataclass(frozen=True)
class NoiseRate:
    """The share of wrong labels: overall, among the rows truly i, among the rows labelled j.

    `per_given_class` is NaN for a label that never occurs.
    """

    overall: float
    per_true_class: NDArray[np.float64]
    per_given_class: NDArray[np.float64]


def noise_rate(transition: ArrayLike, given_labels: ArrayLike) -> NoiseRate:
    """Noise rates that follow from a transition matrix and the labels it led to.

    The shares of the true classes are those that make the given labels most likely: never negative,
    unlike those from the inverse of T.

    >>> rate = noise_rate([[0.8, 0.2], [0.0, 1.0]], [0, 0, 1, 1, 1])
    >>> round(rate.overall, 6), rate.per_given_class.round(6)
    (0.1, array([0.      , 0.166667]))
    """
    transition = check_transition(transition)
    given = check_labels(given_labels, len(transition), "given_labels")
    given_share = np.bincount(given, minlength=len(transition)) / len(given)
    impossible = np.flatnonzero((given_share > 0.0) & ~transition.any(axis=0))
    if impossible.size:
        raise ValueError(
            f"transition must give each label that occurs a chance; column {impossible[0]} is zero."
        )
    true_share = most_likely_true_share(transition, given_share)
    # What is wrong is summed: 1 less what is right has few digits of a small rate, and may be -1e-16.
    flips = np.where(np.eye(len(transition), dtype=bool), 0.0, transition)
    wrong, all_rows = true_share @ flips, true_share @ transition
    with np.errstate(invalid="ignore"):
        per_given = np.where(given_share > 0.0, wrong / all_rows, np.nan)
    per_true = flips.sum(axis=1) / transition.sum(axis=1)
    return NoiseRate(float(wrong.sum() / all_rows.sum()), per_true, per_given)


def most_likely_true_share(transition: Transition, given_share: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x >= 0 that sums to 1 and maximises sum_j given_share_j log (x T)_j.

    By Newton's method on x and the slacks of x >= 0 (primal-dual interior point). Expectation
    maximisation is simpler, but slow where two rows of T are nearly alike. The sum needs no constraint:
    as the rows of T sum to 1, sum(x) - sum_j given_share_j log (x T)_j is least where x does, too.
    """
    occurs = given_share > 0.0
    columns, share = transition[:, occurs], given_share[occurs]
    x = np.full(len(transition), 1.0 / len(transition))
    slack = np.ones_like(x)
    for _ in range(100):
        expected = x @ columns
        gradient = 1.0 - columns @ (share / expected)
        gap = float(x @ slack) / len(x)
        if gap < 1e-12 and np.abs(gradient - slack).max() < 1e-9:
            break
        centre = 0.1 * gap / x
        curvature = (columns * (share / expected**2)) @ columns.T
        step = np.linalg.solve(curvature + np.diag(slack / x), centre - gradient)
        slack_step = centre - slack - slack / x * step
        shrink = max(1.0, *(-step / x / 0.995), *(-slack_step / slack / 0.995))
        x, slack = x + step / shrink, slack + slack_step / shrink
    total: NDArray[np.float64] = x / x.sum()
    return total


def check_probs(probs: ArrayLike) -> Probs:
    """Predicted probabilities [N, C] as they are (float32 stays), or a ValueError."""
    array = np.asarray(probs)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if array.ndim != 2 or len(array) < 1 or array.shape[1] < 2:
        one = array.ndim == 1
        hint = " Of p, that of the second of two classes: numpy.stack([1 - p, p], axis=1)." if one else ""
        raise ValueError(f"probs must be [N, C] with N >= 1 and C >= 2; got shape {array.shape}.{hint}")
    wrong = ~np.isfinite(array).all(axis=1) | (array < 0.0).any(axis=1)
    wrong |= np.abs(array.sum(axis=1) - 1.0) > _ROW_SUM_TOLERANCE
    if wrong.any():
        row = int(wrong.argmax())
        shown = np.array2string(array[row, :4], precision=3)
        raise ValueError(
            "probs must be probabilities, at least 0 and summing to 1 in each row; "
            f"row {row} begins {shown}. For logits use softmax(logits)."
        )
    return array


def _check_given(given_labels: ArrayLike, probs: Probs) -> NDArray[np.int64]:
    given = check_labels(given_labels, probs.shape[1], "given_labels")
    if len(given) != len(probs):
        raise ValueError(
            "given_labels must have a label for each row of probs; "
            f"got {len(given)} labels and {len(probs)} rows."
        )
    return given


def _normalise(counts: NDArray[np.float64]) -> Transition:
    """Rows divided by their sums. A row of zeros (no evidence) becomes that of the identity, so that no
    label that occurs ends with a column of zeros, whose log is -inf."""
    sums = counts.sum(axis=1, keepdims=True)
    return np.where(sums > 0.0, counts / np.where(sums > 0.0, sums, 1.0), np.eye(len(counts)))


def _round_to_total(row: NDArray[np.float64]) -> NDArray[np.int64]:
    """`row` in whole numbers of the same sum: those rounded farthest give way, ties as in cleanlab."""
    whole = row.round()
    missing = int(np.round(row.sum()) - whole.sum())
    order = np.argsort(row - whole)
    nearest = order[::-1][:missing] if missing > 0 else order[:-missing]
    whole[nearest] += np.sign(missing)
    return whole.astype(np.int64)
