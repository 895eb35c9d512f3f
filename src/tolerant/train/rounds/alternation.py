"""The paper's alternation (algorithm 1) for any loop: fit on the kept rows, score, decide, fit on.

What it needs between epochs is in one object: when to decide, the model that decides, the rows it keeps, and
the limits of what it may leave out. The trainer and the adapters drive it; so can a loop of one's own::

    for epoch in range(epochs):
        if alternation.due(epoch):
            with alternation.best_model(model), torch.no_grad():  # score: eval mode, plain inputs
                p_y = model(x).softmax(1)[rows, given_labels]
            alternation.decide(rows, p_y)
        ...  # fit on the rows of alternation.kept
        alternation.observe(epoch, noisy_validation_accuracy, model.state_dict())
    model.load_state_dict(alternation.best_weights)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from tolerant.train.model_state import clone, copy_into, evaluating_with, to_host
from tolerant.train.rounds.guards import MOSTLY_RIGHT, Guards
from tolerant.train.rounds.pruner import Pruner
from tolerant.train.rounds.schedule import PruneSchedule


class Alternation:
    """Which rows train, decided anew in rounds by the best model so far.

    "The model at the optimal epoch based on maximum validation accuracy" scores the training rows. Read here
    as: of all epochs so far, the one of the best value on the noisy validation rows (the first of equals),
    with its weights and batch-norm statistics as they were at its end. It only decides which rows are kept:
    training goes on from the current weights, since the paper trains 120 epochs in one go, its learning rate
    falling at 40 and 80, and starts none of them again. Until a value is observed the current model decides.

    Args:
        schedule: when to decide and at which k; None only finds the best epoch.
        ids_or_num_rows: of the training rows, as in :class:`Pruner`.
        given_labels: of the same rows.
        guards: how much a round may prune. The default suits labels that are mostly right; None is the paper.
        mode: whether a higher ("max") or a lower ("min") value is better.
        constant_accuracy: that of always naming the most frequent label of the validation rows. Of epochs
            that do not beat it the one of the lowest ``loss`` is best: if one label in twenty is of the rare
            class, all epochs that never name it are equally accurate, and the first of them, hardly trained,
            would prune that class.
        class_names: for warnings.
        on_device: whether the best weights are kept where the model is; else on the host.
    """

    def __init__(
        self,
        schedule: PruneSchedule | None = None,
        ids_or_num_rows: int | Sequence[Hashable] | np.ndarray | Tensor = 0,
        given_labels: Sequence[int] | np.ndarray | Tensor | None = None,
        *,
        guards: Guards | None = MOSTLY_RIGHT,
        mode: Literal["max", "min"] = "max",
        constant_accuracy: float = -math.inf,
        class_names: Sequence[str] | None = None,
        on_device: bool = False,
    ) -> None:
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min'; got {mode!r}.")
        self.schedule, self.guards = schedule, guards
        self.mode, self.constant_accuracy = mode, constant_accuracy
        self.pruner: Pruner | None = None
        if schedule is not None:
            self.pruner = Pruner(
                ids_or_num_rows, given_labels, k=schedule.k, guards=guards, class_names=class_names
            )
        self._on_device = on_device
        self.best_weights: dict[str, Tensor] | None = None
        """The best epoch's weights, by their names in the model."""
        self.best_epoch: int | None = None
        self.best_value: float | None = None
        self._best_loss: float | None = None

    @property
    def kept(self) -> Tensor:
        """bool [N], True trains."""
        return self._need_pruner().kept

    def observe(
        self, epoch: int, value: float, weights: Mapping[str, Tensor], *, loss: float | None = None
    ) -> bool:
        """After an epoch: its value on the noisy validation rows; returns whether it is the best so far."""
        if not self._is_better(value, loss):
            return False
        self.best_epoch, self.best_value, self._best_loss = epoch, value, loss
        if not self._on_device:
            self.best_weights = to_host(weights)
        elif self.best_weights is None:
            self.best_weights = clone(weights)
        else:
            copy_into(self.best_weights, weights)
        return True

    def _is_better(self, value: float, loss: float | None) -> bool:
        best, best_loss = self.best_value, self._best_loss
        if best is None:
            return True
        if loss is not None and best_loss is not None and max(value, best) <= self.constant_accuracy:
            return loss < best_loss
        return value > best if self.mode == "max" else value < best

    def due(self, epoch: int) -> bool:
        """Whether to score and decide before ``epoch``, counted from 0."""
        return self.schedule is not None and self.schedule.due(epoch)

    def best_model(self, model: nn.Module) -> AbstractContextManager[None]:
        """Inside, ``model`` is the one that decides, in eval mode; outside, all of it is as it was."""
        return evaluating_with(model, self.best_weights)

    def decide(
        self, ids: Iterable[Hashable] | np.ndarray | Tensor, p_y: Sequence[float] | np.ndarray | Tensor
    ) -> bool:
        """Keep the rows with p_y > k. Returns False where the guards left the round out.

        Over several ranks each calls it with the rows it has scored, possibly none.
        """
        return self._need_pruner().update(ids, p_y)

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and strings, from which the next epochs follow."""
        return {
            "best": self.best_weights,
            "best_epoch": self.best_epoch,
            "best_value": self.best_value,
            "best_loss": self._best_loss,
            "pruner": None if self.pruner is None else self.pruner.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict`` of the same rows and the same k."""
        if self.pruner is not None and state["pruner"] is not None:
            self.pruner.load_state_dict(state["pruner"])
        self.best_weights = state["best"]
        self.best_epoch, self.best_value = state["best_epoch"], state["best_value"]
        self._best_loss = state.get("best_loss")

    def _need_pruner(self) -> Pruner:
        if self.pruner is None:
            raise RuntimeError(
                "an Alternation without a schedule keeps all rows, and only finds the best epoch. Give it a "
                "PruneSchedule, and it prunes."
            )
        return self.pruner
