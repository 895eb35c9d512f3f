"""Out-of-fold predictions: every row scored by a model that did not train on it.

In the end a network fits even the wrong labels it trains on: scored on its own training rows, it believes
them and they are missed. So the rows are dealt into folds, and each fold is scored by a model trained, with
the robust loss, on the others. That takes as long as (folds - 1) trainings on all rows; on few rows,
where fewer of them train for more epochs, as long as one for each fold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.folds import choose_folds
from tolerant.train.engine.display import ProgressMode
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Job, TrainResult

MakeJob = Callable[[NoisyDataset, "np.ndarray | None", str], Job]


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """What models say about rows that they did not train on."""

    probs: np.ndarray
    """float32 [N, C]."""
    held_out: np.ndarray
    """bool [N]; False for a row that no fold could hold out, since only one class would have been left."""

    @classmethod
    def none_of(cls, dataset: NoisyDataset) -> OutOfFold:
        """No row was held out: every one is still to be scored."""
        probs = np.full((len(dataset), dataset.num_classes), 1.0 / dataset.num_classes, np.float32)
        return cls(probs, np.zeros(len(dataset), bool))


def out_of_fold(
    dataset: NoisyDataset,
    make_job: MakeJob,
    *,
    folds: int,
    seed: int,
    device: torch.device,
    sample_weight: np.ndarray | None = None,
    progress: ProgressMode = "quiet",
) -> OutOfFold:
    """Score every row with a model trained on the other folds; with fewer than 2 folds no row is scored.

    ``make_job(rows, sample_weight, name)`` says how to train; rows of weight 0 are scored and train nothing.
    """
    scored = OutOfFold.none_of(dataset)
    if folds < 2:
        return scored
    fold = choose_folds(dataset, folds, seed)
    used = np.ones(len(dataset), bool) if sample_weight is None else sample_weight > 0
    parts = []
    for number in range(folds):
        train = np.flatnonzero((fold != number) & used)
        if len(np.unique(dataset.given_labels[train])) >= 2 and (fold == number).any():
            parts.append((np.flatnonzero(fold == number), train))

    def job(number: int, train: np.ndarray) -> Job:
        weight = None if sample_weight is None else sample_weight[train]
        return make_job(dataset.subset(train), weight, f"fold {number + 1} of {len(parts)}")

    def score(number: int, result: TrainResult | Exception) -> None:
        if isinstance(result, Exception):
            raise result
        index = parts[number][0]
        log_probs = predict_log_proba(result.model, dataset.subset(index), result.preprocess, device=device)
        scored.probs[index] = np.exp(log_probs)
        scored.held_out[index] = True

    # Side by side they fill a GPU; on a CPU one at a time is as fast and takes less memory.
    fleet = Fleet(side_by_side=folds if device.type == "cuda" else 1, device=device, progress=progress)
    fleet.run((job(number, train) for number, (_, train) in enumerate(parts)), score)
    return scored
