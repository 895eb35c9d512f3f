"""Classifiers that answer together: the mean of their probabilities, moved towards rare classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.classifiers.member import all_probs
from tolerant.own_data.classifiers.rows import has_part
from tolerant.own_data.classifiers.temper import temper
from tolerant.threads import one_thread_in_libraries


@dataclass(frozen=True, eq=False)
class Committee:
    """Fitted classifiers, by name, and what each is given of the rows."""

    fitted: Mapping[str, Any]
    rows: Mapping[str, Callable[[NoisyDataset], Any]]
    prior: np.ndarray
    """float64 [C]: how frequent each label was in the rows that they were fitted to; where classes are to
    count alike, how frequent each is by what they say."""
    tau: float

    @property
    def name(self) -> str:
        return " + ".join(self.fitted)

    def probs(self, dataset: NoisyDataset) -> np.ndarray:
        """float32 [N, C]."""
        return temper(self.plain_probs(dataset), self.prior, self.tau)

    def plain_probs(self, dataset: NoisyDataset) -> np.ndarray:
        """The same without the move. Texts without features are asked of those that see words alone."""
        words_alone = has_part("words", dataset) and not has_part("meaning", dataset)
        asked = [name for name in self.fitted if not (words_alone and name == "meaning")]
        if not asked:
            return np.full((len(dataset), len(self.prior)), 1 / len(self.prior), np.float32)
        total = np.zeros((len(dataset), len(self.prior)), np.float32)
        with one_thread_in_libraries():
            for name in asked:
                total += all_probs(self.fitted[name], self.rows[name](dataset), len(self.prior))
        return total / len(asked)
