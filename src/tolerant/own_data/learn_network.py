"""A network: scored out of fold, then trained on the labels that the folds believe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.findings import MAX_CATEGORIES
from tolerant.hints import warn_caller
from tolerant.own_data.believed import believed_by_folds
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.choose_features import Say
from tolerant.own_data.in_rounds import in_rounds
from tolerant.own_data.learned import Learned
from tolerant.own_data.out_of_fold import OutOfFold, out_of_fold
from tolerant.own_data.task import Task
from tolerant.own_data.warn_of_classes import warn_of_lost_classes
from tolerant.suspects.unweighted import as_if_unweighted
from tolerant.train import Callback, Job, TrainResult
from tolerant.train.engine.ranks import current_ranks


def learn_network(
    candidate: NetworkCandidate,
    task: Task,
    *,
    start: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    say: Say = lambda line: None,
) -> Learned:
    """As `learn` says."""
    dataset, settings, given = task.dataset, task.settings, task.dataset.given_labels
    _warn_of_many_words(dataset)
    if settings.class_weight == "balanced":
        weight = balanced_weight(given, dataset.num_classes, task.sample_weight)
        task = replace(task, sample_weight=weight)
    scored = out_of_fold(
        dataset, candidate, folds=task.folds, seed=settings.seed, sample_weight=task.sample_weight, say=say
    )
    believed, k = _believed_and_k(candidate, task, scored)
    used = task.used(believed)
    job = replace(_final_job(candidate, task, scored, used, k), callbacks=callbacks)
    if start is not None:
        job = replace(job, model=start)
    result = candidate.fit(job)

    probs = _probs_of_all(candidate, task, scored, result)
    p_y = probs[np.arange(len(dataset)), given]
    kept, pruned_at = _kept_and_pruned_at(believed, used, result, p_y > k)
    if task.sample_weight is None:  # who weighs the classes has seen to it
        warn_of_lost_classes(dataset, probs)
    pruned = job.prune is not None or not believed.all() or not kept.all()
    trained_as = None
    if settings.method == "rounds":
        trained_as = given.copy()
        trained_as[used[result.train_index]] = result.labels
    suspects = task.suspects(probs, kept if pruned else None, pruned_at)
    suspects = replace(suspects, trained_as=None if trained_as is None else trained_as[suspects.index])
    return Learned(
        result,
        job,
        probs,
        p_y,
        suspects,
        kept,
        pruned_at,
        k=k if job.prune else None,
        seed=settings.seed,
        num_trained=len(used),
        trained_as=trained_as,
    )


def _warn_of_many_words(dataset: NoisyDataset) -> None:
    columns = () if dataset.encoder is None else dataset.encoder.columns
    named = [f"{column.name!r} ({len(column.categories):,})" for column in columns if column.has_place]
    if named:
        warn_caller(
            f"a network tells the {MAX_CATEGORIES} most frequent words of a column apart, of the others it "
            f"knows how frequent they are: {', '.join(named[:5])}{', ...' if len(named) > 5 else ''}. "
            "Classifiers are told what the labels say of each: model='trees' (--model trees)"
        )


def _believed_and_k(candidate: NetworkCandidate, task: Task, scored: OutOfFold) -> tuple[np.ndarray, float]:
    """bool [N], which labels the final model trains on, and the k that it prunes by; alike on all ranks."""
    dataset, settings = task.dataset, task.settings
    by_folds, k = believed_by_folds(dataset, scored, settings, task.first_labels, candidate.first_k)
    if settings.method == "rounds":  # which decide for themselves
        by_folds = np.ones(len(dataset), bool)
    return task.believed(by_folds), float(current_ranks().of_rank_0(np.array([k]))[0])


def _final_job(candidate: NetworkCandidate, task: Task, scored: OutOfFold, used: np.ndarray, k: float) -> Job:
    """What trains on the rows ``used``."""
    rows = task.dataset if len(used) == len(task.dataset) else task.dataset.subset(used)
    weight = None if task.sample_weight is None else task.sample_weight[used]
    job = candidate.plan(rows, weight, "all rows", k)
    if task.settings.method != "rounds":
        return job
    taught_by = scored.probs[used] if scored.held_out[used].all() else None
    trusted = None if task.reviewed is None else task.reviewed[used]
    return in_rounds(job, taught_by, trusted, pretrained=task.settings.pretrained)


def _probs_of_all(
    candidate: NetworkCandidate, task: Task, scored: OutOfFold, result: TrainResult
) -> np.ndarray:
    """float32 [N, C]: out of fold, or the final model's of rows that no fold held out."""
    if scored.held_out.all():
        return scored.probs
    own = candidate.probs(result, task.dataset)
    if task.sample_weight is not None:
        own = as_if_unweighted(task.dataset.given_labels, own, task.sample_weight)
    return np.where(scored.held_out[:, None], scored.probs, own)


def balanced_weight(given_labels: np.ndarray, num_classes: int, weight: np.ndarray | None) -> np.ndarray:
    """float64 [N]: rows weighed such that all classes count alike.

    >>> balanced_weight(np.array([0, 0, 0, 1]), 2, None).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    """
    counts = np.bincount(given_labels, minlength=num_classes)
    there = counts > 0
    each = len(given_labels) / (there.sum() * np.where(there, counts, 1))
    return each[given_labels] if weight is None else each[given_labels] * weight


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
