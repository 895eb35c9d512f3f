"""What is to be learnt from: rows, settings, and what is known of the labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.doubts import find_doubts
from tolerant.own_data.settings import Settings
from tolerant.suspects import Suspects
from tolerant.train.engine.ranks import current_ranks


@dataclass(frozen=True, eq=False)
class Task:
    """The arguments of `learn` that every kind of model needs."""

    dataset: NoisyDataset
    settings: Settings
    folds: int
    sample_weight: np.ndarray | None = None
    reviewed: np.ndarray | None = None
    original_labels: np.ndarray | None = None

    @property
    def first_labels(self) -> np.ndarray:
        """The labels as they were before people corrected some."""
        return self.dataset.given_labels if self.original_labels is None else self.original_labels

    def believed(self, by_folds: np.ndarray) -> np.ndarray:
        """bool [N]: those, and what a person has decided.

        Ranks on unlike processors may differ in the last bit, and would train on different rows.
        """
        found = by_folds if self.reviewed is None else by_folds | self.reviewed
        return np.asarray(current_ranks().of_rank_0(found))

    def used(self, believed: np.ndarray) -> np.ndarray:
        """int64: the believed rows that have a weight."""
        return np.flatnonzero(believed if self.sample_weight is None else believed & (self.sample_weight > 0))

    def suspects(
        self,
        probs: np.ndarray,
        kept: np.ndarray | None,
        pruned_at: np.ndarray,
        prior: np.ndarray | None = None,
        tau: float = 0.0,
        *,
        of_true: bool = False,
    ) -> Suspects:
        """The list; ``kept`` is None where no row was pruned; the other arguments are of `find_doubts`."""
        return find_doubts(
            self.dataset.given_labels,
            probs,
            prior,
            tau,
            of_true=of_true,
            ids=self.dataset.ids,
            class_names=self.dataset.class_names,
            kept=kept,
            pruned_at=None if kept is None else pruned_at,
            reviewed=self.reviewed,
            original_labels=self.original_labels,
            groups=self.dataset.groups,
            seed=self.settings.seed,
        )
