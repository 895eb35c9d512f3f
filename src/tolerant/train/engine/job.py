"""What to train: the description of a run, and the model and loss that it builds."""

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

from tolerant.checks import check_transition
from tolerant.data.dataset import NoisyDataset, split_validation
from tolerant.losses import ForwardCorrected, make_loss
from tolerant.losses.module import PhiLoss
from tolerant.train.engine.recipe import Recipe
from tolerant.train.networks import build, input_size
from tolerant.train.networks.network_committee import NetworkCommittee
from tolerant.train.rounds.guards import Guards
from tolerant.train.rounds.relabel import Relabel
from tolerant.train.rounds.round import Round
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
    """The number of the round that begins; the first is 0."""
    probs: Tensor
    """float32 (N, C): what the model before says of the training rows."""
    weights: Mapping[str, Tensor] | None = None
    """The weights of that model, for a network that goes on from it."""


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


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
