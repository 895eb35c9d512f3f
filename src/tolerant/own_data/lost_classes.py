"""Classes that a model has lost: it hardly ever names them, so that all of their rows look wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from tolerant.data.dataset import NoisyDataset

_LEAST_TO_MISS = 10  # rows of a class: fewer may go unrecognised by chance


def warn_of_missing_classes(class_names: Sequence[str], trained: np.ndarray, predicted: np.ndarray) -> None:
    """Of rare classes that no new row was given, though ten or more would be as many as in training.

    ``trained`` and ``predicted`` count the rows of each class.
    """
    shares = trained / trained.sum()
    rare = 2 * len(trained) * shares < 1  # a frequent one is missed by a model that has not learnt
    missing = np.flatnonzero(rare & (shares * predicted.sum() >= _LEAST_TO_MISS) & (predicted == 0))
    if len(missing):
        named = [f"{class_names[c]!r} ({shares[c]:.0%} of the training rows)" for c in missing.tolist()]
        warnings.warn(
            f"no row is labelled {', '.join(named[:5])}. If there should be some, train with "
            "class_weight='balanced' (--class-weight balanced)",
            stacklevel=3,
        )


def warn_of_lost_classes(dataset: NoisyDataset, probs: np.ndarray) -> None:
    """Of a class with less than half of its share of the rows, and hardly ever predicted, all are listed."""
    given = np.bincount(dataset.given_labels, minlength=dataset.num_classes)
    predicted = np.bincount(probs.argmax(axis=1), minlength=dataset.num_classes)
    rare = 2 * dataset.num_classes * given < len(dataset)
    lost = np.flatnonzero(rare & (given >= _LEAST_TO_MISS) & (4 * predicted < given))
    if len(lost):
        named = [
            f"{dataset.class_names[c]!r} ({given[c]:,} rows, predicted for {predicted[c]:,})" for c in lost
        ]
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        warnings.warn(
            f"the model hardly recognises {', '.join(named[:5])}{more}, so rows of that class are listed "
            "whether right or wrong, and the noise rate means little. A rare class looks like noise. To have "
            "it predicted: class_weight='balanced' (--class-weight balanced)",
            stacklevel=3,
        )
