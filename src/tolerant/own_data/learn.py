"""From doubtful labels to a model and a list of suspects: shared by the estimator and the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from tolerant.checks import check_class_names
from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.believed import believed_by_folds
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.lost_classes import warn_of_lost_classes
from tolerant.own_data.out_of_fold import out_of_fold
from tolerant.own_data.settings import TRUNCATED, Settings
from tolerant.suspects import Suspects, find_suspects
from tolerant.suspects.unweighted import as_if_unweighted
from tolerant.train import Callback, Job, TrainResult
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.display import ProgressMode
from tolerant.train.engine.ranks import current_ranks


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained model and what it says about the labels it learnt from."""

    result: TrainResult
    job: Job
    probs: np.ndarray
    """float32 [N, C] of every row; out of fold where there were folds, and as if all rows counted alike."""
    p_y: np.ndarray
    """float32 [N]: of the given label, from `probs`."""
    suspects: Suspects
    kept: np.ndarray
    """bool [N]: trained on to the end; for a row that was held out, whether it would have been."""
    pruned_at: np.ndarray
    """int64 [N]: the epoch before which a row was pruned, -1 for never, 0 if the folds left it out."""
    k: float | None
    """The threshold of the rounds of pruning in training; None without them."""


def learn(
    dataset: NoisyDataset,
    settings: Settings,
    *,
    folds: int,
    sample_weight: np.ndarray | None = None,
    reviewed: np.ndarray | None = None,
    original_labels: np.ndarray | None = None,
    start: nn.Module | None = None,
    device: str | torch.device = "auto",
    progress: ProgressMode,
    checkpoints: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Learned:
    """Score every row out of fold, then train on those whose label is more likely right than wrong.

    That is the paper's pruning with a first round before the first epoch, by models that have not seen the
    row; by default the rounds at p_y <= k follow. If the first round would leave fewer than 50 rows, all are
    trained on. It may leave fewer than half: where many labels are wrong, the folds find most of them.

    Over several ranks (`tolerant.train.engine.ranks`) each of the trainings is shared by all of them; every
    rank scores the rows, and what rank 0 believes is trained on by all.

    Args:
        settings: with ``k="auto"``, the noise model fitted to the out-of-fold predictions estimates the
            share of wrong labels, and k is the out-of-fold p_y below which that share of the rows lies
            (between 0.05 and 0.9); no true label is needed. The paper's 0.5 suits ten classes; many classes
            or hard rows leave right labels below it.
        folds: with 0, or where no two classes would be left to train a fold on, the final model
            scores its own training rows: cheaper, but rows it has memorised are missed.
        reviewed: bool [N], the labels that a person has decided: not left out before the first epoch, and
            not among the suspects.
        original_labels: int64 [N], the labels before that, to which the noise is fitted (`find_suspects`).
        start: a model that the final training goes on from. Folds start anew, since it has seen their rows.
        checkpoints: a folder, from which the same call goes on where it was cut off.
        callbacks: told of the final training.
    """
    num_rows, given = len(dataset), dataset.given_labels
    num_groups = num_rows if dataset.groups is None else len(np.unique(dataset.groups))
    _check_folds(folds, num_groups, settings)
    check_class_names(dataset.class_names, dataset.num_classes)  # now, and not after the trainings
    candidate = NetworkCandidate(settings, pick_device(device), progress, checkpoints)
    folds = min(folds, num_groups)
    scored = out_of_fold(dataset, candidate, folds=folds, seed=settings.seed, sample_weight=sample_weight)

    first = given if original_labels is None else original_labels
    believed, k = believed_by_folds(dataset, scored, settings, first, candidate.first_k)
    if reviewed is not None:
        believed |= reviewed
    # Ranks on unlike processors may differ in the last bit, and would train on different rows.
    believed, k = current_ranks().of_rank_0(believed), float(current_ranks().of_rank_0(np.array([k]))[0])
    used = np.flatnonzero(believed if sample_weight is None else believed & (sample_weight > 0))
    to_train = dataset if len(used) == num_rows else dataset.subset(used)
    used_weight = None if sample_weight is None else sample_weight[used]
    job = replace(candidate.plan(to_train, used_weight, "all rows", k), callbacks=callbacks)
    if start is not None:
        job = replace(job, model=start)
    result = candidate.fit(job)

    probs = scored.probs
    if not scored.held_out.all():
        own = candidate.probs(result, dataset)
        if sample_weight is not None:
            own = as_if_unweighted(given, own, sample_weight)
        probs = np.where(scored.held_out[:, None], probs, own)
    p_y = probs[np.arange(num_rows), given]
    kept, pruned_at = _kept_and_pruned_at(believed, used, result, p_y > k)
    if sample_weight is None:  # who weighs the classes has seen to it
        warn_of_lost_classes(dataset, probs)
    pruned = job.prune is not None or not believed.all()
    suspects = find_suspects(
        given,
        probs,
        ids=dataset.ids,
        class_names=dataset.class_names,
        kept=kept if pruned else None,
        pruned_at=pruned_at if pruned else None,
        reviewed=reviewed,
        original_labels=original_labels,
        groups=dataset.groups,
        seed=settings.seed,
    )
    return Learned(result, job, probs, p_y, suspects, kept, pruned_at, k if job.prune else None)


def _check_folds(folds: int, num_groups: int, settings: Settings) -> None:
    if folds < 0 or folds == 1:  # a single fold leaves no other rows for the model that scores it
        raise ValueError(f"folds must be 0 (score with the final model) or at least 2; got {folds!r}.")
    if settings.k == "auto" and settings.loss == TRUNCATED and folds < 2:
        raise ValueError(
            f"k='auto' is estimated from the folds, of which it needs 2 or more; got folds={folds!r}. "
            "Give k a number, such as 0.5."
        )
    if folds >= 2 and num_groups == 1:
        raise ValueError(
            "groups must name at least two groups; got one, and no model could judge a row without having "
            "seen its group. Leave groups (--group) out, or use folds=0."
        )


def _kept_and_pruned_at(
    believed: np.ndarray, used: np.ndarray, result: TrainResult, above_k: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Learned.kept` and `Learned.pruned_at`, of all rows: the trained ones are rows ``used[train_index]``.

    Rows that were held out for validation, or had no weight, are judged as they would have been.
    """
    kept = believed.copy() if result.kept.all() else believed & above_k
    pruned_at = np.where(believed, -1, 0)
    trained = used[result.train_index]
    kept[trained], pruned_at[trained] = result.kept, result.pruned_at
    return kept, pruned_at
