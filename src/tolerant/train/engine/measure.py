"""The numbers of an epoch: measured on the device, brought to the host together."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.train.engine.capture import Stepper
from tolerant.train.engine.device import Arriving
from tolerant.train.engine.device_rows import Rows
from tolerant.train.engine.evaluate import score
from tolerant.train.engine.job import Record
from tolerant.train.rounds.pruner import Pruner


class DivergedError(ArithmeticError):
    """The loss or the weights are no longer finite."""


def measure(
    stepper: Stepper,
    loss: nn.Module,
    num_trained: int,
    *,
    validation: Rows | None,
    test: Rows | None,
    wrong: np.ndarray | None,
) -> Generator[bool, None, Record]:
    """Train loss, validation loss and accuracy, test accuracy; with ``wrong`` also mean p_y."""
    model, bf16 = stepper.model, stepper.bf16
    values: dict[str, Tensor] = {"train_loss": stepper.loss_sum / num_trained}
    if validation is not None:
        scores = score(model, validation, bf16=bf16, loss=loss)
        values["validation_loss"] = scores.loss_sum / len(validation)
        correct, weight = scores.correct.double(), validation.weight
        values["validation_accuracy"] = correct.mean() if weight is None else (correct * weight).mean()
        yield True
    if test is not None:
        values["test_accuracy"] = score(model, test, bf16=bf16).correct.double().mean()
        yield True
    if wrong is not None:
        values.update(_mean_p_y(stepper, wrong))
        yield True
    norms = torch._foreach_norm(list(stepper.weights.trained.values()))
    values["weight_norm"] = torch.stack(norms).norm()
    arrived = yield from Arriving(torch.stack([v.double() for v in values.values()])).wait()
    return dict(zip(values, arrived.tolist(), strict=True))


def _mean_p_y(stepper: Stepper, wrong: np.ndarray) -> dict[str, Tensor]:
    """Figure 1 (c): mean p_y of the rightly and of the wrongly labelled training rows."""
    p_y = score(stepper.model, stepper.rows, bf16=stepper.bf16).log_p_y.double().exp()
    is_wrong = torch.from_numpy(wrong).to(p_y.device)
    means = {}
    if not wrong.all():
        means["p_y_right"] = torch.where(is_wrong, 0.0, p_y).sum() / int((~wrong).sum())
    if wrong.any():
        means["p_y_wrong"] = torch.where(is_wrong, p_y, 0.0).sum() / int(wrong.sum())
    return means


def pruning_record(pruner: Pruner, wrong: np.ndarray | None) -> Record:
    """Share of rows kept; where the true labels are known, precision and recall of pruning."""
    pruned = ~pruner.kept.numpy()
    record: Record = {"kept_fraction": 1.0 - float(pruned.mean())}
    if wrong is not None:
        caught = int((pruned & wrong).sum())
        record["prune_precision"] = caught / int(pruned.sum()) if pruned.any() else None
        record["prune_recall"] = caught / int(wrong.sum()) if wrong.any() else None
    return record


def refuse_divergence(record: Record, epoch: int, lr: float, saved: str) -> None:
    """Stop a run whose numbers are no longer finite."""
    for name in ("train_loss", "validation_loss", "weight_norm"):
        value = record.get(name, 0.0)
        if not math.isfinite(value):
            raise DivergedError(
                f"training diverged: {name} is {value} at the end of epoch {epoch} (the first is "
                f"0), learning rate {lr:g}. Use a lower lr, e.g. {lr / 10:g}, or check the inputs "
                f"for extreme values. {saved}"
            )
