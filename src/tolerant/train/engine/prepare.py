"""What a run has before its first epoch: rows on the device, a model to step with, the alternation."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.dataset import NoisyDataset
from tolerant.data.standardise import Preprocess
from tolerant.losses.module import RobustLoss
from tolerant.train.engine.capture import Stepper
from tolerant.train.engine.device_rows import Rows
from tolerant.train.engine.job import Job
from tolerant.train.rounds.alternation import Alternation
from tolerant.train.rounds.relabel import Teacher


@dataclass(frozen=True, eq=False)
class Splits:
    """The rows of a job on the device, scaled as the training rows ask for."""

    preprocess: Preprocess
    train: Rows
    validation: Rows | None
    test: Rows | None
    given_labels: np.ndarray
    """int64, by training row."""
    true_labels: np.ndarray | None
    """int64, by training row; None where they are not known."""

    @property
    def wrong(self) -> np.ndarray | None:
        """bool, by training row: the given label is not the true one; None where that is not known."""
        return None if self.true_labels is None else self.given_labels != self.true_labels


def load_splits(
    job: Job, train_index: np.ndarray, validation_index: np.ndarray, device: torch.device, *, bf16: bool
) -> Splits:
    train_set, held_out = job.dataset, job.validation
    if len(validation_index):
        train_set, held_out = job.dataset.subset(train_index), job.dataset.subset(validation_index)
    preprocess = Preprocess.fit(train_set.inputs, train_set.kind, job.recipe)

    def rows(dataset: NoisyDataset, labels: np.ndarray, index: np.ndarray | None = None) -> Rows:
        weighted = index is not None and job.sample_weight is not None
        sample_weight = np.asarray(job.sample_weight)[index] if weighted else None
        return Rows(dataset, labels, preprocess, device, bf16=bf16, sample_weight=sample_weight)

    train = rows(train_set, train_set.given_labels, train_index)
    validation = test = None
    if held_out is not None:
        own = None if job.validation is not None else validation_index
        validation = rows(held_out, held_out.given_labels, own)
    if job.test is not None:
        clean = job.test.true_labels
        test = rows(job.test, job.test.given_labels if clean is None else clean)
    return Splits(preprocess, train, validation, test, train_set.given_labels, train_set.true_labels)


def make_stepper(job: Job, rows: Rows, loss: nn.Module, *, bf16: bool, graph: bool | None) -> Stepper:
    """The job's model, ready to train on ``rows``."""
    decides = job.prune is not None or job.relabel is not None
    weighted = rows.sample_weight is not None or (decides and job.recipe.prune_by == "weight")
    layout: Any = {"memory_format": torch.channels_last}
    return Stepper(
        job.build_model().to(rows.device).to(**layout).train(),
        _per_row(loss, rows.labels) if weighted else loss,
        rows,
        job.recipe,
        num_classes=job.dataset.num_classes,
        bf16=bf16,
        weighted=weighted,
        foreign=isinstance(job.model, nn.Module) or isinstance(job.loss, nn.Module),
        graph=graph,
    )


def _per_row(loss: nn.Module, labels: Tensor) -> nn.Module:
    """The loss with one value per row, to be weighed."""
    loss = copy.deepcopy(loss)
    reducing = [module for module in loss.modules() if hasattr(module, "reduction")]
    if not reducing:
        raise ValueError(
            "sample_weight and prune_by='weight' need a loss with a reduction; "
            f"{type(loss).__name__} has none. Leave sample_weight out, and use prune_by='filter'."
        )
    for module in reducing:
        module.reduction = "none"  # type: ignore[assignment]
        # A mean divides by the class weights of its rows. Here they have mean 1, as the sample weights:
        # otherwise they would change the learning rate.
        if isinstance(module, RobustLoss | nn.CrossEntropyLoss | nn.NLLLoss):
            name = "class_weight" if isinstance(module, RobustLoss) else "weight"
            weight = getattr(module, name)
            setattr(module, name, None if weight is None else weight / weight[labels].mean())
    return loss


def make_alternation(job: Job, splits: Splits) -> Alternation:
    return Alternation(
        job.prune,
        len(splits.train),
        splits.given_labels,
        guards=job.guards,
        constant_accuracy=0.0 if splits.validation is None else _constant_accuracy(splits.validation),
        class_names=job.dataset.class_names,
        on_device=True,
    )


def make_teacher(job: Job, splits: Splits, train_index: np.ndarray) -> Teacher | None:
    """Who says what each row trains under; None where the given labels stay."""
    if job.relabel is None:
        return None
    trusted = None if job.trusted is None else np.asarray(job.trusted)[train_index]
    follows = job.before is not None
    labels, num_classes = splits.train.labels, job.dataset.num_classes
    return Teacher(job.relabel, labels, num_classes, follows=follows, trusted=trusted)


def _constant_accuracy(rows: Rows) -> float:
    """The accuracy of naming the class of most weight for all rows; a little more, for rounding."""
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().double()
    return float(torch.bincount(rows.labels.cpu(), weight).max()) / len(rows) + 1e-9
