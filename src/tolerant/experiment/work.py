"""From a spec to the content of its row: the job that trains it, and what is kept of the result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tolerant.experiment import row
from tolerant.experiment.problem import Problem, make_problem
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.store import Row
from tolerant.noise import anchor_points
from tolerant.train import Callback, Job, TrainResult
from tolerant.train.engine.checkpoint import twelve_a_run

OnEpoch = Callable[[RunSpec, int], None]
History = dict[str, Any]


class Work:
    """One spec, to be trained in this process; no store is read or written."""

    def __init__(
        self,
        spec: RunSpec,
        folder: str | os.PathLike[str],
        estimated: np.ndarray | None,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        """``folder`` is for its checkpoints; ``estimated`` the matrix that the run it needs estimated."""
        self.spec = spec
        self.problem = make_problem(spec)
        self.job = Job(
            dataset=self.problem.train,
            test=self.problem.test,
            model=spec.model,
            model_args=dict(spec.model_args),
            loss=spec.loss,
            loss_args=dict(spec.loss_args),
            recipe=spec.recipe,
            prune=spec.prune,
            transition=_transition(spec, self.problem, estimated),
            checkpoint=Path(folder),
            checkpoint_every=twelve_a_run(spec.recipe.epochs),
            callbacks=[] if on_epoch is None else [_Tick(spec, on_epoch)],
            name=spec.title(),
        )

    def row(
        self, result: TrainResult, device: torch.device, *, wall_s: float, share: float, side_by_side: int
    ) -> tuple[Row, History]:
        """The row to store, and its history; ``share`` of the device is what the run had."""
        spec = self.spec
        history: History = dict(row.columns(result.history))
        if spec.method == "cce":
            estimate = estimate_transition(result, self.problem, device)
            # Whole numbers of 1e-5: half the digits, and 100 classes are 10,000 of them.
            history["estimated_transition_e5"] = np.rint(estimate * 1e5).astype(int).tolist()
        time_s = max(result.time_s, wall_s)  # a resumed run's own clock goes on, while wall_s starts anew
        numbers: dict[str, Any] = {
            **row.choose(result.history),
            "realised_noise_rate": self.problem.realised_noise_rate,
            "kept_fraction": float(result.kept.mean()),
        }
        if spec.needs is not None:
            numbers["transition_from"] = spec.needs.key
        return {
            "key": spec.key,
            "spec": spec.to_dict(),
            "result": numbers,
            "time_s": round(time_s, 2),
            "device_s": round(time_s * share, 2),
            "side_by_side": side_by_side,
            "peak_mem_mib": row.peak_mem_mib(device),
            "hardware": row.hardware(device),
            "versions": row.versions(),
            "commit": row.commit(),
            "finished": row.now(),
        }, history


def estimate_transition(result: TrainResult, problem: Problem, device: torch.device) -> np.ndarray:
    """T by anchor points among the training rows, after Patrini et al. 2017.

    Their percentile of 97 skips the surest 3 % of rows as outliers. With more than 33 classes that
    would be whole classes, and they take the surest row itself, as here.
    """
    rows = problem.train.subset(result.train_index)
    probs = np.exp(result.predict_log_proba(rows, device=device).astype(np.float64))
    probs /= probs.sum(axis=1, keepdims=True)
    return anchor_points(probs, percentile=97.0 if problem.train.num_classes <= 33 else 100.0)


def _transition(spec: RunSpec, problem: Problem, estimated: np.ndarray | None) -> np.ndarray | None:
    if spec.transition == "none":
        return None
    if spec.needs is not None:
        return estimated
    return problem.transition


class _Tick(Callback):
    def __init__(self, spec: RunSpec, on_epoch: OnEpoch) -> None:
        self.spec, self.on_epoch = spec, on_epoch

    def on_epoch_end(self, job: Job, record: dict[str, Any]) -> None:
        self.on_epoch(self.spec, record["epoch"] + 1)
