"""From doubtful labels to a model and a list of suspects: shared by the estimator and the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from tolerant.checks import check_class_names
from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.candidate import NetworkCandidate, are_small
from tolerant.own_data.choose_features import Say
from tolerant.own_data.classifiers.choose import members_for
from tolerant.own_data.classifiers.kept_scores import KeptScores
from tolerant.own_data.classifiers.learn_committee import learn_committee
from tolerant.own_data.classifiers.trial import try_members
from tolerant.own_data.learn_network import learn_network
from tolerant.own_data.learned import Learned, with_evidence
from tolerant.own_data.network import PRETRAINED
from tolerant.own_data.settings import TRUNCATED, Settings
from tolerant.own_data.task import Task
from tolerant.own_data.tuned import learn_tuned
from tolerant.train import Callback
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.display import ProgressMode


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
    say: Say = lambda line: None,
) -> Learned:
    """Score every row out of fold, then train on those whose label is more likely right than wrong.

    That is the paper's pruning with a first round before the first epoch, by models that have not seen the
    row; by default the rounds at p_y <= k follow. If the first round would leave fewer than 50 rows, all are
    trained on. It may leave fewer than half: where many labels are wrong, the folds find most of them.

    The model is a network, or classifiers (`tolerant.own_data.classifiers`), which have no epochs and so no
    further rounds.

    Over several ranks (`tolerant.train.engine.ranks`) each training is shared by all of them. Every rank
    scores the rows; all train on what rank 0 believes.

    Args:
        settings: what the user has set. With ``k="auto"``, a noise model is fitted to the out-of-fold
            predictions and estimates the share of wrong labels; no true label is needed. k is then the
            out-of-fold p_y below which that share of the rows lies, between 0.05 and 0.9. The paper's 0.5
            suits ten classes; many classes or hard rows leave right labels below it.
        folds: with 0, or where no two classes would be left to train a fold on, the final model
            scores its own training rows: cheaper, but rows it has memorised are missed.
        reviewed: bool [N], the labels that a person has decided: not left out before the first epoch, and
            not among the suspects.
        original_labels: int64 [N], the labels before that, to which the noise is fitted (`find_suspects`).
        start: a model that the final training goes on from. Folds start anew, since it has seen their rows.
        checkpoints: a folder, from which the same call goes on where it was cut off.
        callbacks: told of the final training of a network.
        say: told what is about to be tried, and how long it takes.
    """
    num_rows = len(dataset)
    num_groups = num_rows if dataset.groups is None else len(np.unique(dataset.groups))
    _check_folds(folds, num_groups, settings)
    check_class_names(dataset.class_names, dataset.num_classes)  # now, and not after the trainings
    place = pick_device(device)
    small = are_small(dataset, settings, place)
    candidate = NetworkCandidate(settings, place, progress, checkpoints, small_rows=small)
    folds = min(folds, num_groups)
    task = Task(dataset, settings, folds, sample_weight, reviewed, original_labels)
    kept = KeptScores(checkpoints, num_rows)
    if settings.model == PRETRAINED:
        return learn_tuned(candidate, task, kept=kept, start=start, callbacks=callbacks, say=say)
    members = [] if start is not None else members_for(dataset, settings)
    if not members:
        learned = learn_network(candidate, task, start=start, callbacks=callbacks, say=say)
    else:
        learned = learn_committee(members, try_members(members, task, say, kept), task, kept)
    return with_evidence(learned, dataset) if settings.pretrained else learned


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
