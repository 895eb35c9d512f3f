"""Out-of-fold predictions: every row scored by a model that did not train on it.

In the end a network fits even the wrong labels it trains on: scored on its own training rows, it believes
them and they are missed. So the rows are dealt into folds, and each fold is scored by a model trained, with
the robust loss, on the others. That takes as long as (folds - 1) trainings on all rows; on few rows,
where fewer of them train for more epochs, as long as one for each fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.choose_features import Say
from tolerant.own_data.folds import choose_folds
from tolerant.own_data.whole_time import WholeTime
from tolerant.suspects.unweighted import as_if_unweighted
from tolerant.train import Job, TrainResult


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """What models say about rows that they did not train on."""

    probs: np.ndarray
    """float32 [N, C], as if all rows counted alike."""
    held_out: np.ndarray
    """bool [N]; False for a row that no fold could hold out, since only one class would have been left."""

    @classmethod
    def none_of(cls, dataset: NoisyDataset) -> OutOfFold:
        """No row was held out: every one is still to be scored."""
        probs = np.full((len(dataset), dataset.num_classes), 1.0 / dataset.num_classes, np.float32)
        return cls(probs, np.zeros(len(dataset), bool))

    def unweighted(self, given_labels: np.ndarray, sample_weight: np.ndarray | None) -> OutOfFold:
        """The same, as if the models had been fitted without these weights."""
        if sample_weight is not None and self.held_out.any():
            index = np.flatnonzero(self.held_out)
            given, weight = given_labels[index], sample_weight[index]
            self.probs[index] = as_if_unweighted(given, self.probs[index], weight)
        return self


def out_of_fold(
    dataset: NoisyDataset,
    candidate: NetworkCandidate,
    *,
    folds: int,
    seed: int,
    sample_weight: np.ndarray | None = None,
    say: Say = lambda line: None,
) -> OutOfFold:
    """Score every row with a model fitted to the other folds; with fewer than 2 folds no row is scored.

    Rows of sample weight 0 are scored and train nothing. ``say`` is told how long it takes, with one training
    more on all rows.
    """
    scored = OutOfFold.none_of(dataset)
    if folds < 2:
        return scored
    parts = fold_parts(dataset, folds, seed, sample_weight)

    def plan(number: int, train: np.ndarray) -> Job:
        weight = None if sample_weight is None else sample_weight[train]
        job = candidate.plan(dataset.subset(train), weight, f"fold {number + 1} of {len(parts)}")
        return job if number else replace(job, callbacks=[WholeTime(say, _trainings(len(parts), candidate))])

    def score(number: int, fitted: TrainResult) -> None:
        _, held_out = parts[number]
        scored.probs[held_out] = candidate.probs(fitted, dataset.subset(held_out))
        scored.held_out[held_out] = True

    plans = (plan(number, train) for number, (train, _) in enumerate(parts))
    candidate.fit_each(plans, folds, score)
    return scored.unweighted(dataset.given_labels, sample_weight)


def _trainings(folds: int, candidate: NetworkCandidate) -> float:
    """All trainings, counted in those on one fold's rows: the folds, and the final one on more rows."""
    at_once = folds if candidate.device.type == "cuda" else 1  # a GPU has them side by side
    return folds / at_once + folds / max(folds - 1, 1)


def fold_parts(
    dataset: NoisyDataset, folds: int, seed: int, sample_weight: np.ndarray | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows to fit to, rows to score) of each fold that has two classes to be fitted to."""
    fold = choose_folds(dataset, folds, seed)
    trains = np.ones(len(dataset), bool) if sample_weight is None else sample_weight > 0
    parts = []
    for number in range(folds):
        train, held_out = np.flatnonzero((fold != number) & trains), np.flatnonzero(fold == number)
        if len(np.unique(dataset.given_labels[train])) >= 2 and len(held_out):
            parts.append((train, held_out))
    return parts
