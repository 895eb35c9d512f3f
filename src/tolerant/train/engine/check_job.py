"""What cannot be trained is refused before anything is spent on it, saying why and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tolerant.checks import check_whole
from tolerant.data.dataset import NoisyDataset
from tolerant.train.engine.job import Job
from tolerant.train.rounds.round import check_rounds

_WITHOUT_SOFT = {"mixup": "mixup=0", "relabel": "Relabel(soft=False)"}


def check_job(job: Job, train_index: np.ndarray) -> None:
    """A ValueError if these rows of its data cannot be trained on as it says."""
    if job.rounds:
        check_rounds(job.rounds, job.recipe)
        for number in range(len(job.rounds)):
            check_job(job.of_round(number, None), train_index)
        return
    if job.networks > 1 and isinstance(job.model, nn.Module):
        raise ValueError(
            f"networks must be 1 for a module of one's own, of which all copies are alike; got "
            f"{job.networks}. Use the name of a network."
        )
    if job.recipe.mirror and job.dataset.kind != "image":
        raise ValueError(f"mirror is for pictures; got {job.dataset.kind} rows. Use mirror=False.")
    is_soft = job.relabel is not None and job.relabel.soft
    for what, soft in (("mixup", job.recipe.mixup > 0), ("relabel", is_soft)):
        if soft:
            _check_soft(what, job.build_loss(), job.dataset.num_classes)
    if job.dataset.kind == "text":
        raise ValueError(
            "dataset holds text, which these models cannot read. Turn it into features (a "
            "table), or train your own model with a tolerant loss."
        )
    present = np.unique(job.dataset.given_labels[train_index])
    if len(present) < 2:
        name = job.dataset.class_names[present[0]] if len(present) else "none"
        raise ValueError(
            f"given_labels must name at least two classes; the {len(train_index)} training "
            f"rows name one ({name!r}). There is nothing to tell apart: check the labels."
        )
    if len(train_index) < job.recipe.batch_size:
        held_out = len(job.dataset) - len(train_index)
        raise ValueError(
            f"batch_size must be at most the number of training rows; got "
            f"{job.recipe.batch_size} with {len(train_index)} rows ({held_out} more are held "
            f"out for validation). Use batch_size={max(2, len(train_index) // 4)} or more rows."
        )
    for name, other in (("validation", job.validation), ("test", job.test)):
        if other is not None:
            _check_alike(name, other, job.dataset)
    if job.sample_weight is not None:
        _check_weight(job.sample_weight, len(job.dataset), train_index)
    check_whole(job.checkpoint_every, "checkpoint_every", least=1)


def _check_alike(name: str, other: NoisyDataset, dataset: NoisyDataset) -> None:
    if not len(other):
        raise ValueError(f"{name} must have at least one row; got none. Use {name}=None.")
    if other.class_names != dataset.class_names:
        raise ValueError(
            f"{name} must have the classes of dataset, {dataset.class_names!r}; got {other.class_names!r}."
        )
    own, theirs = ((d.kind, tuple(d.inputs.shape[1:])) for d in (dataset, other))
    if own != theirs:
        raise ValueError(
            f"{name} must have inputs like dataset's, {own[0]} rows of shape {own[1]}; "
            f"got {theirs[0]} rows of shape {theirs[1]}."
        )


def _check_weight(sample_weight: Any, num_rows: int, train_index: np.ndarray) -> None:
    weight = np.asarray(sample_weight)
    if weight.shape != (num_rows,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            f"sample_weight must be {num_rows} finite numbers of 0 or more, one per row; "
            f"got shape {weight.shape}."
        )
    if not weight[train_index].any():
        raise ValueError("sample_weight is 0 for every training row: nothing would be learnt.")
    held_out = np.delete(weight, train_index)
    if held_out.size and not held_out.any():
        raise ValueError(
            "sample_weight is 0 for every validation row: no epoch could be chosen by them. Pass validation "
            "rows of your own, or leave rows of weight 0 out of dataset."
        )


def _check_soft(what: str, loss: nn.Module, num_classes: int) -> None:
    """Rows that are blended, or have soft labels, have a share of each label."""
    logits = torch.zeros(2, num_classes)
    try:
        loss(logits, torch.full_like(logits, 1 / num_classes))
    except Exception as error:
        raise ValueError(
            f"{what} needs a loss that takes probabilities of classes as labels; {type(loss).__name__} does "
            f"not: {error}. Use one of tolerant's, or {_WITHOUT_SOFT[what]}."
        ) from error
