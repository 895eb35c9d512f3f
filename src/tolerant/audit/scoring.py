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
from tolerant.data.digest import row_digests
from tolerant.train.evaluate import predict_log_proba
from tolerant.train.fleet import Fleet
from tolerant.train.job import Job, TrainResult
from tolerant.train.progress import ProgressMode

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


def deal_folds(
    given_labels: np.ndarray, folds: int, seed: int, sizes: np.ndarray | None = None
) -> np.ndarray:
    """int64 [N]: the fold of each row, every class dealt out evenly; ``sizes``: from the largest down.

    >>> deal_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0).tolist()
    [1, 0, 0, 1, 1, 0]
    """
    order = np.random.Generator(np.random.PCG64([seed, folds])).permutation(len(given_labels))
    if sizes is not None:
        order = order[np.argsort(-sizes[order], kind="stable")]
    order = order[np.argsort(given_labels[order], kind="stable")]
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds  # goes on from class to class: folds of equal size
    return fold


def first_copies(dataset: NoisyDataset) -> np.ndarray:
    """int64 [N]: the first row of which each is a copy, label included; its own number if it is none.

    Oversampling makes such copies. In different folds, one would be scored by a model that trained on the
    other and believes its label. But rows may also be equal by nature, such as those of a few yes-no columns.
    Then their labels, given one by one, differ here and there, or no class has many different rows: such rows
    do not count as copies.

    >>> rows = NoisyDataset(np.float32([[1], [2], [1], [3], [4]]), [0, 1, 0, 1, 0], None, ("a", "b"))
    >>> first_copies(rows).tolist()
    [0, 1, 0, 3, 4]
    """
    numbers, labels = np.arange(len(dataset)), dataset.given_labels
    _, first, which = np.unique(row_digests(dataset.inputs), return_index=True, return_inverse=True)
    alike = first[which]
    by_class, different = np.bincount(labels), np.bincount(labels[alike == numbers])
    richest = different.argmax()  # of classes made equally large, the one that was the largest
    differ = (labels != labels[alike]).sum()
    if different[richest] < by_class[richest] / 2 or differ > (alike != numbers).sum() / 100:
        return numbers
    return np.where(labels == labels[alike], alike, numbers)


def choose_folds(dataset: NoisyDataset, folds: int, seed: int) -> np.ndarray:
    """int64 [N]: the fold of each row; copies are in one fold, and so are the rows of a group.

    Groups are dealt out by their most frequent label.

    >>> x = np.arange(6, dtype=np.float32)[:, None]
    >>> rows = NoisyDataset(x, [0, 1, 0, 0, 1, 1], None, ("a", "b"), groups=list("pqprqs"))
    >>> choose_folds(rows, 2, seed=0).tolist()
    [0, 0, 0, 1, 0, 1]
    """
    numbers, labels = np.arange(len(dataset)), dataset.given_labels
    together = first_copies(dataset)
    sizes = None
    if dataset.groups is not None:
        together = _together(together, dataset.groups)
        sizes = np.bincount(together, minlength=len(numbers))
        labels = _most_frequent(labels, together)
    own = together == numbers
    fold = np.empty(len(numbers), np.int64)
    fold[own] = deal_folds(labels[own], folds, seed, None if sizes is None else sizes[own])
    return fold[together]


def _together(first: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """int64 [N]: the first of the rows that each must stay with.

    Those are its copies (``first``: the first of each) and its group, but also the groups of its copies.
    """
    _, group = np.unique(groups, return_inverse=True)
    together = first
    while True:
        least = np.full(group.max() + 1, len(first))
        np.minimum.at(least, group, together)
        merged = least[group]
        least = np.full(len(first), len(first))
        np.minimum.at(least, first, merged)
        merged = least[first]
        if np.array_equal(merged, together):
            return together
        together = merged


def _most_frequent(labels: np.ndarray, together: np.ndarray) -> np.ndarray:
    """int64 [N]: at the first row of each group its most frequent label."""
    num_classes = labels.max() + 1
    pairs, counts = np.unique(together * num_classes + labels, return_counts=True)
    first, label = pairs // num_classes, pairs % num_classes
    found = labels.copy()
    order = np.argsort(counts, kind="stable")
    found[first[order]] = label[order]  # the last one written is that of the largest count
    return found


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
