"""Rounds for people's own rows: the folds teach, or a first round where there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tolerant.train.engine.job import Before, Job
from tolerant.train.rounds.relabel import Relabel
from tolerant.train.rounds.round import Round

_LONGER = 2  # times the epochs: blended rows are never seen twice alike
_AVERAGED = 3  # epochs over which the weights are averaged
# A blend of two pictures shows both. A blend of two customers, half of each town, is a row that cannot exist,
# so rows of tables are blended little. (A made-up table, 30 % wrong, one seed that is not among the reported
# ones: 83.3 % right with 1, 86.8 with 0.2, 86.5 without; pruning 85.1. Digits: 98.1 with 1, 97.5 with 0.2;
# pruning 95.8.)
_MIXUP_OF_PICTURES, _MIXUP = 1.0, 0.2
# Of a table the rows that a network is not sure of are those between two classes, and tell most of where
# these meet. (The made-up table of bench_audit, three seeds: 88.3 % right without, 90.1 with them; digits
# 98.0 and 97.2; 10,000 photographs by their features 84.6 and 84.2.)
_SURE_OF_TABLES = 0.0


def in_rounds(
    job: Job, taught_by: np.ndarray | None, trusted: np.ndarray | None, *, pretrained: bool = False
) -> Job:
    """The job as a method of rounds: rows train under the label that seems to be theirs.

    ``taught_by`` are out-of-fold probabilities (N, C) of its rows, by models that have not learnt a row's own
    label. Without them a first round teaches, with the job's loss. ``trusted`` rows keep their label;
    ``pretrained`` ones are features of pictures or texts.
    """
    epochs, rows = job.recipe.epochs, len(job.dataset)
    steps = max(1, rows // job.recipe.batch_size)
    recipe = replace(
        job.recipe,
        validation_fraction=0.0,  # nothing is chosen, so that every row can train
        select="last",
        milestones=(),
        schedule="cosine",
        average=1 - 1 / (_AVERAGED * steps + 1),
    )
    relabel = Relabel(start_epoch=epochs, every=max(1, epochs // 25))  # in its second half
    is_image = job.dataset.kind == "image"
    if not (is_image or pretrained):
        relabel = replace(relabel, sure=_SURE_OF_TABLES)
    mixup = _MIXUP_OF_PICTURES if is_image else _MIXUP
    second = Round(epochs=_LONGER * epochs, mixup=mixup, relabel=relabel)
    job = replace(job, recipe=recipe, prune=None, trusted=trusted)
    if taught_by is None:
        first = Round(epochs=epochs, loss="lq", loss_args=dict(job.loss_args))
        return replace(job, loss="cce", loss_args={}, rounds=(first, second))
    return replace(
        job,
        loss=second.loss,
        loss_args={},
        recipe=second.recipe(recipe),
        relabel=relabel,
        before=Before(1, torch.from_numpy(taught_by)),
    )
