"""Classes that a model has lost: it hardly ever names them, so that all of their rows look wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.hints import warn_caller
from tolerant.suspects.lost_classes import LEAST_TO_MISS, lost_classes


def warn_of_missing_classes(class_names: Sequence[str], trained: np.ndarray, predicted: np.ndarray) -> None:
    """Warn of rare classes that no new row was given, where training's share would make ten rows or more.

    ``trained`` and ``predicted`` count the rows of each class.
    """
    shares = trained / trained.sum()
    rare = 2 * len(trained) * shares < 1  # a frequent one is missed by a model that has not learnt
    missing = np.flatnonzero(rare & (shares * predicted.sum() >= LEAST_TO_MISS) & (predicted == 0))
    if len(missing):
        named = [f"{class_names[c]!r} ({shares[c]:.0%} of the training rows)" for c in missing.tolist()]
        warn_caller(
            f"no row is labelled {', '.join(named[:5])}. If there should be some, train with "
            "class_weight='balanced' (--class-weight balanced)"
        )


def warn_of_lost_classes(dataset: NoisyDataset, probs: np.ndarray) -> None:
    """Warn of rare classes that are hardly ever predicted: all of their rows are listed as suspects."""
    lost = lost_classes(dataset.given_labels, probs.argmax(axis=1), dataset.class_names)
    if lost:
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        warn_caller(
            f"the model hardly recognises {', '.join(lost[:5])}{more}. Unless most of these labels are "
            "wrong, rows of that class are listed whether right or wrong, and the noise rate means little: a "
            "rare class looks like noise. To have it predicted: class_weight='balanced' (--class-weight "
            "balanced)"
        )
