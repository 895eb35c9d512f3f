"""What a run ends with: the chosen model, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from tolerant.data.dataset import NoisyDataset
from tolerant.data.standardise import Preprocess
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.job import Record
from tolerant.train.engine.recipe import Recipe
from tolerant.train.model_state import copy_into

if TYPE_CHECKING:
    from tolerant.train.engine.loop import Run


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model and the history of its training.

    The chosen epoch is the one of the highest noisy-validation accuracy (the first of equals; if none
    beats always naming the most frequent label, the one of the lowest loss), or the last with
    ``select="last"``. The test set chooses nothing: ``oracle_test_accuracy``, the best of all epochs, is
    what choosing by it would have shown, and is no fair result.
    """

    model: nn.Module
    """fp32, on the CPU, in eval mode, with the chosen epoch's weights."""
    preprocess: Preprocess
    recipe: Recipe
    history: list[Record]
    """One record for each epoch, counted from 0."""
    epoch: int
    """The chosen epoch."""
    validation_accuracy: float | None
    test_accuracy: float | None
    """At the chosen epoch."""
    last_test_accuracy: float | None
    oracle_test_accuracy: float | None
    kept: np.ndarray
    """bool, by training row: not pruned in the last round."""
    pruned_at: np.ndarray
    """int64, by training row: the epoch before which it was pruned for good; -1 where it is kept."""
    train_index: np.ndarray
    validation_index: np.ndarray
    time_s: float

    def __repr__(self) -> str:
        return (
            f"TrainResult(epoch={self.epoch} of {len(self.history)}, "
            f"validation_accuracy={self.validation_accuracy}, test_accuracy={self.test_accuracy})"
        )

    def predict_log_proba(self, dataset: NoisyDataset, *, device: str | torch.device = "cpu") -> np.ndarray:
        """Log-probabilities of all classes for new rows, float32 (N, C)."""
        return predict_log_proba(self.model, dataset, self.preprocess, device=device)


def make_result(run: Run) -> TrainResult:
    """Of a run that has come to its end."""
    chosen, weights, alternation = run.recipe.epochs - 1, run.weights.tensors(), run.alternation
    if run.recipe.select == "validation" and alternation.best_weights is not None:
        assert alternation.best_epoch is not None
        chosen, weights = alternation.best_epoch, alternation.best_weights
    model = run.job.build_model()
    copy_into({**dict(model.named_parameters()), **dict(model.named_buffers())}, weights)
    tests = [record.get("test_accuracy") for record in run.history]
    pruned = alternation.pruner is not None
    return TrainResult(
        model=model.eval(),
        preprocess=run.splits.preprocess,
        recipe=run.recipe,
        history=run.history,
        epoch=chosen,
        validation_accuracy=run.history[chosen].get("validation_accuracy"),
        test_accuracy=tests[chosen],
        last_test_accuracy=tests[-1],
        oracle_test_accuracy=max((t for t in tests if t is not None), default=None),
        kept=alternation.kept.numpy().copy() if pruned else np.ones(len(run.rows), bool),
        pruned_at=run.pruned_at.copy(),
        train_index=run.train_index,
        validation_index=run.validation_index,
        time_s=run.time_s,
    )
