"""What `learn` fits to rows: a network, trained by `tolerant.train`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.network import is_dense
from tolerant.own_data.plan import make_job
from tolerant.own_data.settings import Settings
from tolerant.threads import one_thread
from tolerant.train import Job, TrainResult
from tolerant.train.engine.checkpoint import twelve_a_run
from tolerant.train.engine.display import ProgressMode
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.fleet import Fleet

_USUAL_K = 0.5  # the paper's
_SMALL_ROW = 2048  # cells


@dataclass(frozen=True)
class NetworkCandidate:
    """A network to be fitted to rows with sample weights, and then asked for probabilities of any rows."""

    settings: Settings
    device: torch.device
    progress: ProgressMode = "quiet"
    checkpoints: str | os.PathLike[str] | None = None
    """A folder: the same fit goes on from it where it was cut off."""
    small_rows: bool = False
    """See `are_small`."""

    @property
    def first_k(self) -> float:
        """The threshold of pruning while nothing is known of the noise."""
        return _USUAL_K if self.settings.k == "auto" else float(self.settings.k)

    def plan(
        self, dataset: NoisyDataset, sample_weight: np.ndarray | None, name: str, k: float | None = None
    ) -> Job:
        """How ``dataset`` is to be fitted; ``name`` is shown meanwhile."""
        k = self.first_k if k is None else k
        job = make_job(dataset, self.settings, self.device, k=k, sample_weight=sample_weight, name=name)
        if self.checkpoints is None:
            return job
        folder = Path(self.checkpoints) / name.replace(" ", "-")
        return replace(job, checkpoint=folder, checkpoint_every=twelve_a_run(job.recipe.epochs))

    def fit(self, job: Job) -> TrainResult:
        with self._threads():
            return self._fleet(side_by_side=1).run_one(job)

    def fit_each(
        self, jobs: Iterable[Job], side_by_side: int, then: Callable[[int, TrainResult], None]
    ) -> None:
        """Fit each of several, and call ``then`` with its number and what became of it."""

        def on_result(number: int, result: TrainResult | Exception) -> None:
            if isinstance(result, Exception):
                raise result
            then(number, result)

        # Side by side they fill a GPU; on a CPU one at a time is as fast and takes less memory.
        with self._threads():
            self._fleet(side_by_side if self.device.type == "cuda" else 1).run(jobs, on_result)

    def _threads(self) -> AbstractContextManager[None]:
        return one_thread(self.small_rows and self.device.type == "cpu")

    def probs(self, fitted: TrainResult, dataset: NoisyDataset) -> np.ndarray:
        """float32 [N, C]."""
        return np.exp(predict_log_proba(fitted.model, dataset, fitted.preprocess, device=self.device))

    def _fleet(self, side_by_side: int) -> Fleet:
        return Fleet(side_by_side=side_by_side, device=self.device, progress=self.progress)


def are_small(dataset: NoisyDataset, settings: Settings, device: torch.device) -> bool:
    """Whether rows are so small that a step of a network on them is a matter of a millisecond."""
    few = int(np.prod(dataset.inputs.shape[1:])) <= _SMALL_ROW
    return few and (dataset.kind != "image" or is_dense(dataset, settings, device))
