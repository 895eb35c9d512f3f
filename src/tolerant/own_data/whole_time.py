"""How long all trainings of a network will take, said as soon as the first of them shows it."""

from __future__ import annotations

import time

from tolerant.own_data.choose_features import Say
from tolerant.train import Callback, Job
from tolerant.train.engine.job import Record

_LEAST_S, _LEAST_EPOCHS = 5.0, 2  # before that the first epoch, with what it sets up, would tell too much
_LATEST_S = 30.0
_WORTH_SAYING_S = 60.0


class WholeTime(Callback):
    """A callback for the first of several ``trainings`` that take about as long each."""

    def __init__(self, say: Say, trainings: float) -> None:
        self._say, self._trainings = say, trainings
        self._start, self._epochs, self._done = 0.0, 0, False

    def on_start(self, job: Job, record: Record | None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, job: Job, record: Record) -> None:
        self._epochs += 1
        spent = time.perf_counter() - self._start
        enough = spent >= _LEAST_S and self._epochs >= _LEAST_EPOCHS
        if self._done or not (enough or spent >= _LATEST_S):
            return
        self._done = True
        whole = spent / self._epochs * job.recipe.epochs * self._trainings
        if whole >= _WORTH_SAYING_S:
            self._say(f"About {round(whole / 60) or 1} min for all trainings together.")
