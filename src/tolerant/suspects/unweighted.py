"""The predictions of a model that was trained with sample weights, as if all rows had counted alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tolerant.suspects.noise_model import fit_noise_model, sample_to_fit

_EXPONENTS = (0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)


def as_if_unweighted(
    given_labels: NDArray[np.int64], probs: NDArray[np.float32], sample_weight: NDArray[np.floating]
) -> NDArray[np.float32]:
    """What the model would say if all rows had counted alike.

    To a model trained with weights, classes of large weight are more frequent than they are: at its best, L_q
    gives p_j proportional to (w_j a_j)^(1 / (1 - q)), with a_j the probability of label j and w_j the mean
    weight of the rows that carry it. Rows where classes overlap would then seem to have wrong labels. So the
    predictions are divided by a power of w: the one under which the given labels are most likely, since no
    network is quite at its best. With the power 0 they stay as they are.
    """
    num_classes = probs.shape[1]
    counts = np.bincount(given_labels, minlength=num_classes)
    class_weight = np.bincount(given_labels, sample_weight, num_classes) / np.maximum(counts, 1)
    # No row has trained a class of weight 0: nothing to undo.
    class_weight = np.where(class_weight > 0, class_weight, class_weight.max())
    if np.allclose(class_weight, class_weight[0]):
        return probs
    sample = sample_to_fit(len(given_labels))
    given = given_labels[sample]

    def divided(probs: NDArray[np.float32], exponent: float) -> NDArray[np.float32]:
        parts = probs * (class_weight.min() / class_weight) ** exponent
        return np.asarray(parts / parts.sum(axis=1, keepdims=True), np.float32)

    def likelihood(exponent: float) -> float:
        some = divided(probs[sample], exponent)
        return fit_noise_model(given, some).log_likelihood(given, some)

    return divided(probs, max(_EXPONENTS, key=likelihood))
