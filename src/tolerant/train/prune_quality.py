"""Pruning as a detector of wrong labels, where the true ones are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from tolerant.train.prune_input import read_integers


class PruneQuality(NamedTuple):
    """How well pruning tells wrong labels from right ones; None where nothing is to be counted."""

    precision: float | None  # wrongly labelled share of the pruned rows
    recall: float | None  # pruned share of the wrongly labelled rows
    kept_purity: float | None  # rightly labelled share of the kept rows


def prune_quality(
    kept: np.ndarray | Tensor,
    given_labels: Sequence[int] | np.ndarray | Tensor,
    true_labels: Sequence[int] | np.ndarray | Tensor,
) -> PruneQuality:
    """Precision and recall of "pruned" as a detector of wrong labels.

    >>> kept = np.array([True, True, False, False, False])
    >>> prune_quality(kept, given_labels=[0, 1, 2, 3, 4], true_labels=[0, 9, 9, 3, 4])
    PruneQuality(precision=0.3333333333333333, recall=0.5, kept_purity=0.5)
    """
    keeps = np.asarray(kept)
    given = read_integers("given_labels", given_labels)
    true = read_integers("true_labels", true_labels)
    if keeps.dtype != np.bool_ or not keeps.shape == given.shape == true.shape:
        raise ValueError(
            "kept must be bool and as long as given_labels and true_labels; "
            f"got {keeps.dtype} {keeps.shape}, {given.shape}, {true.shape}."
        )
    wrong = given != true
    num_wrong, num_kept = int(wrong.sum()), int(keeps.sum())
    num_pruned, found = keeps.size - num_kept, int((wrong & ~keeps).sum())
    return PruneQuality(
        precision=found / num_pruned if num_pruned else None,
        recall=found / num_wrong if num_wrong else None,
        kept_purity=(num_kept - num_wrong + found) / num_kept if num_kept else None,
    )
