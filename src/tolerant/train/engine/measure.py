"""The numbers of an epoch: measured on the device, brought to the host together."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tolerant.train.engine.capture import Stepper
from tolerant.train.engine.device import Arriving, Clock
from tolerant.train.engine.evaluate import score
from tolerant.train.engine.job import Record

if TYPE_CHECKING:
    from tolerant.train.engine.loop import Run


class DivergedError(ArithmeticError):
    """The loss or the weights are no longer finite."""


def measure(run: Run, clock: Clock, *, num_trained: int) -> Generator[bool, None, Record]:
    """The record of the epoch that has just been trained, on ``num_trained`` rows."""
    lr, every = run.lr_at(0), run.recipe.score_every
    with run.weights.judged():
        numbers = yield from _numbers(run, num_trained, with_p_y=bool(every and (run.epoch + 1) % every == 0))
    _refuse_divergence(run, numbers, lr)
    del numbers["weight_norm"]
    if run.alternation.pruner is not None or run.teacher is not None:
        numbers.update(pruning_record(run.kept.numpy(), run.splits.wrong))
    if run.teacher is not None:
        numbers["relabelled_fraction"] = run.teacher.relabelled_fraction
        if run.splits.true_labels is not None:
            right = run.teacher.labels_on_host.numpy() == run.splits.true_labels
            numbers["label_accuracy"] = float(right[run.kept.numpy()].mean())
    trained_now = num_trained - run.step * run.recipe.batch_size  # the others before it was resumed
    run.time_s += clock.total_s()
    return {
        "epoch": run.epoch,
        "lr": lr,
        "steps": run.stepper.num_steps,
        **numbers,
        "images_per_s": round(trained_now / max(clock.marked_s(), 1e-9), 1),
        "time_s": round(run.time_s, 3),
    }


def _numbers(run: Run, num_trained: int, *, with_p_y: bool) -> Generator[bool, None, Record]:
    """Train loss, validation loss and accuracy, test accuracy; ``with_p_y`` also its mean over rows."""
    stepper, splits = run.stepper, run.splits
    model, bf16 = stepper.model, stepper.bf16
    values: dict[str, Tensor] = {"train_loss": stepper.loss_sum / num_trained}
    if splits.validation is not None:
        scores = score(model, splits.validation, bf16=bf16, loss=run.loss)
        values["validation_loss"] = scores.loss_sum / len(splits.validation)
        correct, weight = scores.correct.double(), splits.validation.sample_weight
        values["validation_accuracy"] = correct.mean() if weight is None else (correct * weight).mean()
        yield True
    over = run.epoch + 1 == run.recipe.epochs
    if splits.test is not None and (over or (run.epoch + 1) % run.recipe.test_every == 0):
        values["test_accuracy"] = score(model, splits.test, bf16=bf16).correct.double().mean()
        yield True
    if with_p_y and splits.wrong is not None:
        values.update(_mean_p_y(stepper, splits.wrong))
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


def pruning_record(kept: np.ndarray, wrong: np.ndarray | None) -> Record:
    """Share of rows kept; where the true labels are known, precision and recall of pruning."""
    pruned = ~kept
    record: Record = {"kept_fraction": 1.0 - float(pruned.mean())}
    if wrong is not None:
        caught = int((pruned & wrong).sum())
        record["prune_precision"] = caught / int(pruned.sum()) if pruned.any() else None
        record["prune_recall"] = caught / int(wrong.sum()) if wrong.any() else None
    return record


def _refuse_divergence(run: Run, numbers: Record, lr: float) -> None:
    """Stop a run whose numbers are no longer finite."""
    saved = ""
    if run.checkpoints is not None and run.checkpoints.exists:
        saved = f"The last good checkpoint is in {run.checkpoints.folder}."
    for name in ("train_loss", "validation_loss", "weight_norm"):
        value = numbers.get(name, 0.0)
        if not math.isfinite(value):
            raise DivergedError(
                f"training diverged: {name} is {value} at the end of epoch {run.epoch} (the first is "
                f"0), learning rate {lr:g}. Use a lower lr, e.g. {lr / 10:g}, or check the inputs "
                f"for extreme values. {saved}"
            )
