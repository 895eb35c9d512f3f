"""What a run ends with: the chosen model, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

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
    """bool, by training row: not pruned, or left out, in the last round."""
    pruned_at: np.ndarray
    """int64, by training row: the epoch before which it was pruned for good; -1 where it is kept."""
    labels: np.ndarray
    """int64, by training row: the label it was trained under in the end; the given one if not relabelled."""
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


def chosen_weights(run: Run) -> tuple[int, dict[str, Tensor]]:
    """The epoch that a run ends with, and its weights."""
    best = run.alternation
    if run.recipe.select == "validation" and best.best_weights is not None and best.best_epoch is not None:
        return best.best_epoch, best.best_weights
    return run.recipe.epochs - 1, run.weights.judging()


def make_result(run: Run) -> TrainResult:
    """The result of a run that has come to its end."""
    chosen, weights = chosen_weights(run)
    model = run.job.build_model()
    copy_into({**dict(model.named_parameters()), **dict(model.named_buffers())}, weights)
    tests = [record.get("test_accuracy") for record in run.history]
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
        kept=run.kept.numpy().copy(),
        pruned_at=run.pruned_at.copy(),
        labels=run.splits.given_labels if run.teacher is None else run.teacher.labels_on_host.numpy(),
        train_index=run.train_index,
        validation_index=run.validation_index,
        time_s=run.time_s,
    )
