"""From doubtful labels to a model and a list of suspects: shared by the estimator and the command line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.out_of_fold import OutOfFold, out_of_fold
from tolerant.own_data.plan import LEAST_TO_PRUNE, TRUNCATED, Settings, make_job
from tolerant.suspects.arguments import check_names
from tolerant.suspects.find import FIT_ROWS, Suspects, find_suspects
from tolerant.suspects.noise_model import NoiseModel, fit_noise_model
from tolerant.suspects.unweigh import unweigh
from tolerant.train.engine.checkpoint import twelve_a_run
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.display import ProgressMode
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Callback, Job, TrainResult
from tolerant.train.engine.ranks import current

_USUAL_K = 0.5  # the paper's
_K_RANGE = (0.05, 0.9)
_LEAST_TO_MISS = 10  # rows of a class: fewer may go unrecognised by chance


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
    num_groups = len(dataset) if dataset.groups is None else len(np.unique(dataset.groups))
    _check_folds(folds, num_groups, settings)
    check_names(dataset.class_names, dataset.num_classes)  # now, and not after the trainings
    device = pick_device(device)
    num_rows = len(dataset)
    first_k = _USUAL_K if settings.k == "auto" else float(settings.k)

    def job_of(rows: NoisyDataset, weight: np.ndarray | None, name: str, k: float = first_k) -> Job:
        job = make_job(rows, settings, device, k=k, sample_weight=weight, name=name)
        if checkpoints is None:
            return job
        folder = Path(checkpoints) / name.replace(" ", "-")
        return replace(job, checkpoint=folder, checkpoint_every=twelve_a_run(job.recipe.epochs))

    scored = out_of_fold(
        dataset,
        job_of,
        folds=min(folds, num_groups),
        seed=settings.seed,
        device=device,
        sample_weight=sample_weight,
        progress=progress,
    )
    if sample_weight is not None and scored.held_out.any():
        held = scored.held_out
        scored.probs[held] = unweigh(dataset.given_labels[held], scored.probs[held], sample_weight[held])
    first = dataset.given_labels if original_labels is None else original_labels
    believed, k = _judge(dataset, scored, settings, first_k, first)
    if reviewed is not None:
        believed |= reviewed
    # Ranks on unlike processors may differ in the last bit, and would train on different rows.
    believed, k = current().of_rank_0(believed), float(current().of_rank_0(np.array([k]))[0])

    used = np.flatnonzero(believed if sample_weight is None else believed & (sample_weight > 0))
    rows = dataset if len(used) == num_rows else dataset.subset(used)
    weight = None if sample_weight is None else sample_weight[used]
    job = replace(job_of(rows, weight, "all rows", k), callbacks=callbacks)
    if start is not None:
        job = replace(job, model=start)
    result = Fleet(side_by_side=1, device=device, progress=progress).run_one(job)

    probs = scored.probs
    if not scored.held_out.all():
        own = np.exp(predict_log_proba(result.model, dataset, result.preprocess, device=device))
        if sample_weight is not None:
            own = unweigh(dataset.given_labels, own, sample_weight)
        probs = np.where(scored.held_out[:, None], probs, own)
    p_y = probs[np.arange(num_rows), dataset.given_labels]
    kept, pruned_at = _pruned(believed, used, result, p_y > k)
    if sample_weight is None:  # who weighs the classes has seen to it
        _warn_of_lost_classes(dataset, probs)
    pruned = job.prune is not None or not believed.all()
    suspects = find_suspects(
        dataset.given_labels,
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


def _pruned(
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


def _warn_of_lost_classes(dataset: NoisyDataset, probs: np.ndarray) -> None:
    """Of a class with less than half of its share of the rows, and hardly ever predicted, all are listed."""
    given = np.bincount(dataset.given_labels, minlength=dataset.num_classes)
    predicted = np.bincount(probs.argmax(axis=1), minlength=dataset.num_classes)
    rare = 2 * dataset.num_classes * given < len(dataset)
    lost = np.flatnonzero(rare & (given >= _LEAST_TO_MISS) & (4 * predicted < given))
    if len(lost):
        named = [
            f"{dataset.class_names[c]!r} ({given[c]:,} rows, predicted for {predicted[c]:,})" for c in lost
        ]
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        warnings.warn(
            f"the model hardly recognises {', '.join(named[:5])}{more}, so rows of that class are listed "
            "whether right or wrong, and the noise rate means little. A rare class looks like noise: repeat "
            "its rows, use cross entropy, loss='cce' (--loss cce), or in Python class_weight='balanced'",
            stacklevel=3,
        )


def _judge(
    dataset: NoisyDataset, scored: OutOfFold, settings: Settings, k: float, first_labels: np.ndarray
) -> tuple[np.ndarray, float]:
    """Which labels the folds believe, bool [N], and the k of the rounds that follow."""
    believed, held_out = np.ones(len(dataset), bool), scored.held_out
    if settings.loss != TRUNCATED or len(dataset) < LEAST_TO_PRUNE or not held_out.any():
        return believed, k
    given, probs = dataset.given_labels[held_out], scored.probs[held_out]
    sample = np.random.default_rng(0).permutation(len(given))[:FIT_ROWS]
    noise = fit_noise_model(first_labels[held_out][sample], probs[sample])
    believed[held_out] = believe(given, noise.log_odds_right(given, probs))
    if believed.sum() < LEAST_TO_PRUNE:  # too few to learn from: the folds have not learnt either
        believed[:] = True
    return believed, choose_k(given, probs, noise) if settings.k == "auto" else k


def believe(given_labels: np.ndarray, log_odds_right: np.ndarray) -> np.ndarray:
    """bool [N]: labels more likely right than wrong, and at least the least doubtful tenth of every class.

    >>> believe(np.array([0, 0, 1, 1]), np.array([2.0, -1.0, -3.0, -2.0])).tolist()
    [True, False, False, True]
    """
    believed = log_odds_right > 0
    # Sorted once, by class and in it by doubt: to look for the rows of each class costs rows times classes.
    order = np.lexsort((-log_odds_right, given_labels))
    _, starts, counts = np.unique(given_labels[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    believed[order[place < np.repeat(-(-counts // 10), counts)]] = True
    return believed


def choose_k(given_labels: np.ndarray, probs: np.ndarray, noise: NoiseModel) -> float:
    """The p_y below which as many rows lie as labels are estimated to be wrong.

    >>> probs = np.array([[0.9, 0.1]] * 8 + [[0.2, 0.8]] * 8)
    >>> given_labels = np.array([0] * 6 + [1] * 2 + [1] * 6 + [0] * 2)
    >>> choose_k(given_labels, probs, fit_noise_model(given_labels, probs))
    0.2
    """
    p_y = probs[np.arange(len(given_labels)), given_labels]
    k = np.quantile(p_y, noise.expected_wrong(given_labels, probs), method="lower")
    return float(np.clip(k, *_K_RANGE))
