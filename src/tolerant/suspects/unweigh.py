"""The predictions of a model that was trained with weights, for rows as they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tolerant.suspects.find import FIT_ROWS
from tolerant.suspects.noise_model import fit_noise_model

_EXPONENTS = (0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)


def unweigh(
    given_labels: NDArray[np.int64], probs: NDArray[np.float32], sample_weight: NDArray[np.floating]
) -> NDArray[np.float32]:
    """What the model would say if all rows had counted alike.

    To a model trained with weights, classes of large weight are more frequent than they are: at its best, L_q
    gives p_j proportional to (w_j a_j)^(1 / (1 - q)), with a_j the probability of label j and w_j the mean
    weight of the rows that carry it. Rows where classes overlap would then seem to have wrong labels. So the
    predictions are divided by a power of w: the one under which the given labels are most likely, since no
    network is quite at its best. With the power 0 they stay as they are.
    """
    counts = np.bincount(given_labels, minlength=probs.shape[1])
    weight = np.bincount(given_labels, sample_weight, probs.shape[1]) / np.maximum(counts, 1)
    weight = np.where(weight > 0, weight, weight.max())  # no row has trained such a class: nothing to undo
    if np.allclose(weight, weight[0]):
        return probs
    sample = np.random.default_rng(0).permutation(len(given_labels))[:FIT_ROWS]
    given = given_labels[sample]

    def divided(rows: NDArray[np.float32], exponent: float) -> NDArray[np.float32]:
        parts = rows * (weight.min() / weight) ** exponent
        return np.asarray(parts / parts.sum(axis=1, keepdims=True), np.float32)

    def likelihood(exponent: float) -> float:
        rows = divided(probs[sample], exponent)
        return fit_noise_model(given, rows).log_likelihood(given, rows)

    return divided(probs, max(_EXPONENTS, key=likelihood))
