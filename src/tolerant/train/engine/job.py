"""What to train, checked before anything is spent on it."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.checks import check_transition, check_whole
from tolerant.data.dataset import NoisyDataset, split_validation
from tolerant.losses import ForwardCorrected, make_loss
from tolerant.losses.module import PhiLoss
from tolerant.train.engine.recipe import Recipe
from tolerant.train.networks import build, input_size
from tolerant.train.networks.network_committee import NetworkCommittee
from tolerant.train.rounds.guards import Guards
from tolerant.train.rounds.relabel import Relabel
from tolerant.train.rounds.round import Round, check_rounds
from tolerant.train.rounds.schedule import PruneSchedule

if TYPE_CHECKING:
    from tolerant.train.engine.result import TrainResult

Record = dict[str, Any]


class Callback:
    """What a run tells others. Override what you need; an exception ends the run."""

    def on_start(self, job: Job, record: Record | None) -> None:
        """Training begins, or goes on after the epoch of ``record``."""

    def on_epoch_end(self, job: Job, record: Record) -> None:
        """An epoch is over; its record is the last of the history."""

    def on_end(self, job: Job, result: TrainResult) -> None:
        """Training is over."""


@dataclass(frozen=True, eq=False)
class Before:
    """What a round is left by the one before it."""

    number: int
    """Of the round, the first being 0."""
    probs: Tensor
    """float32 (N, C): what the model before says of the training rows."""
    weights: Mapping[str, Tensor] | None = None
    """Of that model, for a network that goes on from it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One run: data, model, loss, recipe. ``train`` documents the fields.

    With ``rounds`` it is several trainings, one after the other; `of_round` is the job of each.
    """

    dataset: NoisyDataset
    model: str | nn.Module
    loss: str | nn.Module
    recipe: Recipe = field(default_factory=Recipe)
    prune: PruneSchedule | None = None
    guards: Guards | None = None
    """How much a round may prune; None is the paper's."""
    rounds: tuple[Round, ...] = ()
    """They have epochs, loss, prune and more of their own, in the place of this job's."""
    relabel: Relabel | None = None
    networks: int = 1
    before: Before | None = None
    """The round before; None in the first one."""
    fresh: bool = True
    trusted: np.ndarray | None = None
    """bool, by row: the label was checked by somebody, and is never changed or left out by `relabel`."""
    transition: np.ndarray | Tensor | None = None
    validation: NoisyDataset | None = None
    test: NoisyDataset | None = None
    sample_weight: np.ndarray | None = None
    loss_args: Mapping[str, Any] = field(default_factory=dict)
    model_args: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 1
    callbacks: Sequence[Callback] = ()
    name: str = ""

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers for training and for validation (none where `validation` is given)."""
        if self.validation is not None or self.recipe.validation_fraction == 0:
            return np.arange(len(self.dataset)), np.empty(0, np.int64)
        fraction, seed = self.recipe.validation_fraction, self.recipe.seed
        return split_validation(len(self.dataset), fraction, seed, self.dataset.groups)

    def of_round(self, number: int, before: Before | None) -> Job:
        """The job of one of the rounds."""
        this = self.rounds[number]
        name = f"{self.name}, round {number + 1}" if self.name else f"round {number + 1}"
        return replace(
            self,
            rounds=(),
            loss=this.loss,
            loss_args=dict(this.loss_args),
            recipe=this.recipe(self.recipe),
            prune=this.prune,
            relabel=this.relabel,
            networks=this.networks,
            before=before,
            fresh=this.fresh,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint) / f"round-{number + 1}",
            callbacks=(),
            name=name,
        )

    def check(self, train_index: np.ndarray) -> None:
        """Refuse what cannot be trained, saying why and what to do."""
        if self.rounds:
            check_rounds(self.rounds, self.recipe)
            for number in range(len(self.rounds)):
                self.of_round(number, None).check(train_index)
            return
        if self.networks > 1 and isinstance(self.model, nn.Module):
            raise ValueError(
                f"networks must be 1 for a module of one's own, of which all copies are alike; got "
                f"{self.networks}. Use the name of a network."
            )
        if self.recipe.mirror and self.dataset.kind != "image":
            raise ValueError(f"mirror is for pictures; got {self.dataset.kind} rows. Use mirror=False.")
        for what, soft in (("mixup", self.recipe.mixup > 0), ("relabel", _is_soft(self.relabel))):
            if soft:
                _check_soft(what, self.build_loss(), self.dataset.num_classes)
        if self.dataset.kind == "text":
            raise ValueError(
                "dataset holds text, which these models cannot read. Turn it into features (a "
                "table), or train your own model with a tolerant loss."
            )
        present = np.unique(self.dataset.given_labels[train_index])
        if len(present) < 2:
            name = self.dataset.class_names[present[0]] if len(present) else "none"
            raise ValueError(
                f"given_labels must name at least two classes; the {len(train_index)} training "
                f"rows name one ({name!r}). There is nothing to tell apart: check the labels."
            )
        if len(train_index) < self.recipe.batch_size:
            held_out = len(self.dataset) - len(train_index)
            raise ValueError(
                f"batch_size must be at most the number of training rows; got "
                f"{self.recipe.batch_size} with {len(train_index)} rows ({held_out} more are held "
                f"out for validation). Use batch_size={max(2, len(train_index) // 4)} or more rows."
            )
        for name, other in (("validation", self.validation), ("test", self.test)):
            if other is not None:
                self._check_alike(name, other)
        if self.sample_weight is not None:
            _check_weight(self.sample_weight, len(self.dataset), train_index)
        check_whole(self.checkpoint_every, "checkpoint_every", least=1)

    def _check_alike(self, name: str, other: NoisyDataset) -> None:
        if not len(other):
            raise ValueError(f"{name} must have at least one row; got none. Use {name}=None.")
        if other.class_names != self.dataset.class_names:
            raise ValueError(
                f"{name} must have the classes of dataset, {self.dataset.class_names!r}; "
                f"got {other.class_names!r}."
            )
        own, theirs = ((d.kind, tuple(d.inputs.shape[1:])) for d in (self.dataset, other))
        if own != theirs:
            raise ValueError(
                f"{name} must have inputs like dataset's, {own[0]} rows of shape {own[1]}; "
                f"got {theirs[0]} rows of shape {theirs[1]}."
            )

    def seed_of(self, *numbers: int) -> list[int]:
        """What to draw from: the recipe's seed, the numbers, and the round where it is not the first."""
        return [self.recipe.seed, *numbers, *([] if self.before is None else [self.before.number])]

    def build_model(self) -> nn.Module:
        """The named network, or a copy of the one given, with the recipe's batch-norm momentum.

        Several are a committee, each with weights of its own seed, and so is one that looks at mirror images.
        """
        if isinstance(self.model, nn.Module):
            networks = [_copy(self.model)]
        else:
            seeds = map(self._seed_of_network, range(self.networks))
            networks = [self._named_model(self.model, seed) for seed in seeds]
        model, mirror = networks[0], self.recipe.mirror
        if len(networks) > 1 or (mirror and not isinstance(model, NetworkCommittee)):
            model = NetworkCommittee(networks, mirror=mirror)
        if self.recipe.batch_norm_momentum is not None:
            for module in model.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.momentum = self.recipe.batch_norm_momentum
        return model

    def _seed_of_network(self, number: int) -> int:
        if self.before is None and number == 0:
            return self.recipe.seed
        return int(np.random.SeedSequence(self.seed_of(number)).generate_state(1)[0])

    def _named_model(self, name: str, seed: int) -> nn.Module:
        by_recipe: dict[str, Any] = {"dropout": self.recipe.dropout, "seed": seed}
        size = input_size(self.dataset.kind, tuple(self.dataset.inputs.shape[1:]))
        by_data = ("num_classes", "in_channels", "image_size", "num_features")
        for option in (option for option in (*by_recipe, *by_data) if option in self.model_args):
            where = "set it in the recipe" if option in by_recipe else "it follows from the data"
            raise ValueError(f"model_args must be options of the network alone; got {option!r}: {where}.")
        return build(name, self.dataset.num_classes, **by_recipe, **size, **self.model_args)

    def build_loss(self) -> nn.Module:
        """The named loss, or a copy of the one given; corrected by ``transition`` if there is one."""
        loss: nn.Module
        if isinstance(self.loss, nn.Module):
            loss = copy.deepcopy(self.loss)
        elif self.loss in ("forward", "forward-corrected"):
            if self.transition is None:
                raise ValueError(
                    f"loss {self.loss!r} needs transition, T[i, j] = P(given = j | true = i); got "
                    "none. Pass transition=..., or estimate it with tolerant.noise.estimate."
                )
            loss = make_loss("cce", **self.loss_args)
        else:
            loss = make_loss(self.loss, **self.loss_args)
        if self.transition is None:
            return loss
        transition = check_transition(np.asarray(self.transition), self.dataset.num_classes)
        if not isinstance(loss, PhiLoss):
            raise ValueError(
                "transition corrects losses of p_y alone (cce, lq, mae, ...); got "
                f"{type(loss).__name__}. Leave transition out, or choose one of those."
            )
        return ForwardCorrected(loss, torch.as_tensor(transition, dtype=torch.float32))

    def identity(self, loss: nn.Module) -> dict[str, Any]:
        """What must be the same for a run to go on from a checkpoint."""
        weight = self.sample_weight
        limits = {} if self.guards is None else {n: v for n, v in asdict(self.guards).items() if v < 1}
        # What few runs have is named only where it is set, so that older checkpoints without it stay valid.
        rare: dict[str, Any] = {}
        if self.validation is not None:
            rare["validation"] = _digest(self.validation.given_labels)
        if self.relabel is not None:
            rare["relabel"] = asdict(self.relabel)
        if self.networks > 1:
            rare["networks"] = self.networks
        if self.before is not None:
            rare["round"] = self.before.number
        if self.trusted is not None:
            rare["trusted"] = _digest(np.asarray(self.trusted))
        if self.dataset.groups is not None:
            rare["groups"] = _digest(self.dataset.groups)
        held = {n: t for n, t in loss.state_dict().items() if n != "transition" or self.transition is None}
        if held:  # class weights, which the loss does not print; older checkpoints have them as "weight"
            digests = {n: _digest(t.double().cpu().numpy()) for n, t in held.items()}
            rare["loss_tensors"] = {n.replace("class_weight", "weight"): one for n, one in digests.items()}
        return {
            "recipe": self.recipe.to_dict(),
            "prune": None if self.prune is None else asdict(self.prune) | limits,
            "model": self.model if isinstance(self.model, str) else type(self.model).__name__,
            "model_args": {k: _plain(v) for k, v in self.model_args.items()},
            "loss": str(loss),
            "inputs": [*map(int, self.dataset.inputs.shape)],
            "given_labels": _digest(self.dataset.given_labels),
            "sample_weight": None if weight is None else _digest(np.asarray(weight, np.float64)),
            "transition": None if self.transition is None else np.asarray(self.transition).tolist(),
            **rare,
        }


def _copy(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            # An expanded buffer holds one number for many entries, so it cannot be written to.
            if buffer is not None and 0 in buffer.stride():
                module._buffers[name] = buffer.clone()
    return model


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


_WITHOUT_SOFT = {"mixup": "mixup=0", "relabel": "Relabel(soft=False)"}


def _is_soft(relabel: Relabel | None) -> bool:
    return relabel is not None and relabel.soft


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


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
