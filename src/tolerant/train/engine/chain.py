"""A method of several rounds as one run: each begins with what the one before says of every row."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import torch

from tolerant.train.engine.capture import Stepper
from tolerant.train.engine.check_job import check_job
from tolerant.train.engine.job import Before, Callback, Job, Record
from tolerant.train.engine.loop import Run
from tolerant.train.engine.ranks import current_ranks
from tolerant.train.engine.recipe import Recipe
from tolerant.train.engine.result import TrainResult, chosen_weights


class Chain:
    """A job with rounds on a device; to be used as a `Run`, which each of its rounds is.

    A finished round is read back from its checkpoint, and what it says of the rows is computed anew.
    """

    def __init__(self, job: Job, device: torch.device, *, graph: bool | None = None) -> None:
        check_job(job, job.split()[0])
        self.job, self._device, self._graph = job, device, graph
        self._number = 0
        self._before: list[Record] = []  # of the rounds that are over
        self._run = self._start(None)
        self.result: TrainResult | None = None
        self.recipe: Recipe = replace(job.recipe, epochs=sum(each.epochs for each in job.rounds))

    def _start(self, before: Before | None, rows_of: Run | None = None) -> Run:
        job = self.job.of_round(self._number, before)
        callback = _InRound(self, len(self._before))
        splits = None if rows_of is None else rows_of.splits
        return Run(replace(job, callbacks=(callback,)), self._device, graph=self._graph, splits=splits)

    @property
    def stepper(self) -> Stepper:
        return self._run.stepper

    @property
    def epoch(self) -> int:
        """The number of the epoch, counted over all rounds, as in the records."""
        return len(self._before) + self._run.epoch

    @property
    def history(self) -> list[Record]:
        return self._before + [self.of_all(record, len(self._before)) for record in self._run.history]

    def of_all(self, record: Record, epochs_before: int) -> Record:
        """A round's record as one of the whole method."""
        return {**record, "epoch": epochs_before + record["epoch"], "round": self._number}

    @property
    def stop_requested(self) -> bool:
        return self._run.stop_requested

    @stop_requested.setter
    def stop_requested(self, value: bool) -> None:
        self._run.stop_requested = value

    def close(self) -> None:
        """Leave the checkpoint folders to others."""
        self._run.close()

    def go(self) -> Iterator[bool]:
        """Train all rounds to their end; yields like `Run.go`."""
        callbacks = () if current_ranks().rank else self.job.callbacks
        history, time_s = self.history, 0.0
        for callback in callbacks:
            callback.on_start(self.job, history[-1] if history else None)
        while True:
            yield from self._run.go()
            assert self._run.result is not None
            time_s += self._run.result.time_s
            if self._number + 1 == len(self.job.rounds):
                break
            yield from self._next_round()
        self.result = self._make_result(self._run.result, time_s)
        for callback in callbacks:
            callback.on_end(self.job, self.result)

    def _next_round(self) -> Generator[bool, None, None]:
        over = self._run
        weights = chosen_weights(over)[1]
        with over.weights.replaced_by(weights):
            probs = over.probabilities()
        self._before, self._number = self.history, self._number + 1
        self._run = self._start(Before(self._number, probs, weights), over)
        yield True  # the next run has a stream of its own, which the fleet sees to between two steps

    def _make_result(self, last: TrainResult, time_s: float) -> TrainResult:
        history = self.history
        tests = [record["test_accuracy"] for record in history if record.get("test_accuracy") is not None]
        return replace(
            last,
            recipe=self.recipe,
            history=history,
            epoch=len(self._before) + last.epoch,
            oracle_test_accuracy=max(tests, default=None),
            time_s=time_s,
        )


class _InRound(Callback):
    """Tells the callbacks of the whole job of an epoch of one round."""

    def __init__(self, chain: Chain, epochs_before: int) -> None:
        self._chain, self._epochs_before = chain, epochs_before

    def on_epoch_end(self, job: Job, record: Record) -> None:
        chain = self._chain
        for callback in chain.job.callbacks:
            callback.on_epoch_end(chain.job, chain.of_all(record, self._epochs_before))
