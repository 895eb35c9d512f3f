"""What is to be learnt from: rows, settings, and what is known of the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def of(self, rows: np.ndarray) -> Task:
        """The same for some of the rows, bool [N]."""
        each = (self.sample_weight, self.reviewed, self.original_labels)
        weight, reviewed, original = (None if one is None else one[rows] for one in each)
        return replace(
            self,
            dataset=self.dataset.subset(rows),
            sample_weight=weight,
            reviewed=reviewed,
            original_labels=original,
        )

    def prior(self, index: np.ndarray | None = None) -> np.ndarray:
        """float64 [C]: the share of each label, among these rows or all."""
        given = self.dataset.given_labels if index is None else self.dataset.given_labels[index]
        return np.bincount(given, minlength=self.dataset.num_classes) / len(given)

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
        rate_probs: np.ndarray | None = None,
    ) -> Suspects:
        """The list; ``kept`` is None where no row was pruned; the other arguments are of `find_doubts`."""
        return find_doubts(
            self.dataset.given_labels,
            probs,
            prior,
            tau,
            of_true=of_true,
            rate_probs=rate_probs,
            ids=self.dataset.ids,
            class_names=self.dataset.class_names,
            kept=kept,
            pruned_at=None if kept is None else pruned_at,
            reviewed=self.reviewed,
            original_labels=self.original_labels,
            groups=self.dataset.groups,
            seed=self.settings.seed,
        )
