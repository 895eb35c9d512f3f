"""Runs in this process, side by side on one device; and the queue that every engine keeps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from tolerant.experiment.one_run import OnEpoch, Outcome, Reservation, Tell, describe_error, make_job
from tolerant.experiment.row import make_row
from tolerant.experiment.shared_epochs import heirs_among
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.training_data import TrainingData, training_data
from tolerant.threads import one_thread
from tolerant.train import Fleet, Job, TrainResult

RETRY_S = 0.5  # between looks at runs that other processes are doing
MAX_DEATHS = 3  # a run that takes its worker down this often has failed


def fixed_threads(device: torch.device) -> AbstractContextManager[None]:
    """On a processor every engine trains with one thread; its rows say so in ``hardware``.

    The last digits of sums depend on how many threads share them, so that a worker of Ray, which has one,
    got other numbers than this process with two. To use all cores, run several at once (``--workers``).
    """
    return one_thread(device.type == "cpu")


@dataclass(frozen=True)
class Runner:
    """Turns specs into rows of one store, `side_by_side` of them at a time on one device."""

    results: str
    checkpoints: str
    device: str = "auto"
    side_by_side: int = 1
    data: Callable[[RunSpec], TrainingData] = training_data
    """The rows of a spec; a benchmark takes fewer."""

    def __call__(self, spec: RunSpec) -> Outcome:
        """One spec, here and now."""
        outcomes: list[Outcome] = []
        self.run_once([spec], outcomes.append)
        return outcomes[0]

    def run_once(
        self,
        specs: Sequence[RunSpec],
        tell: Tell,
        on_epoch: OnEpoch | None = None,
        heirs: Mapping[str, Sequence[RunSpec]] | None = None,
    ) -> None:
        """Every spec once: done now, found stored, busy elsewhere or failed; none stops the others.

        ``heirs``: by the key of a run, those that go on from its checkpoint.
        """
        fleet = Fleet(side_by_side=self.side_by_side, device=self.device, progress="quiet")
        shares, numbers = _Shares(), count()
        # By the number of their job, until it ends: with open-set noise each has its own pictures, 150 MB.
        started: dict[int, tuple[Reservation, TrainingData]] = {}

        def start(spec: RunSpec) -> Job | None:
            reservation = Reservation(spec, self.results, self.checkpoints)
            outcome = reservation.take()
            if outcome is None:
                try:
                    data = self.data(spec)
                    heirs_of = (heirs or {}).get(spec.key, ())
                    job = make_job(spec, data, reservation.folder, reservation.estimated, on_epoch, heirs_of)
                except Exception as error:
                    outcome = reservation.fail(*describe_error(error))
            if outcome is not None:
                tell(outcome)
                return None
            started[next(numbers)] = reservation, data
            shares.start(spec.key)
            return job

        def on_result(index: int, result: TrainResult | Exception) -> None:
            reservation, data = started.pop(index)
            took = shares.end(reservation.spec.key)
            try:
                if isinstance(result, Exception):
                    raise result
                took |= {"side_by_side": self.side_by_side}
                made = make_row(reservation.spec, data, result, fleet.device, **took)
                # The fleet keeps all results until it ends, and a ResNet-34 is 85 MB.
                result.model.to("meta")
                outcome = reservation.store(*made)
            except Exception as error:
                outcome = reservation.fail(*describe_error(error))
            tell(outcome)

        try:
            with fixed_threads(fleet.device):
                # Not a generator, whose frame would keep the last job's data.
                fleet.run(filter(None, map(start, specs)), on_result)
        finally:
            for reservation, _ in started.values():
                reservation.release()


class Queue:
    """Specs to do; busy ones come back, but not those that need a run which has failed."""

    def __init__(self, specs: Sequence[RunSpec], tell: Tell) -> None:
        self.waiting, self.later = deque(specs), deque[RunSpec]()
        self._tell = tell
        self._failed: set[str] = set()

    def settle(self, outcome: Outcome) -> None:
        if outcome.status == "busy":
            self.later.append(outcome.spec)
            return
        if outcome.status == "failed":
            self._failed.add(outcome.spec.key)
        self._tell(outcome)

    def look_again(self) -> None:
        """Busy specs wait for their turn once more."""
        while self.later:
            spec = self.later.popleft()
            if spec.needs is not None and spec.needs.key in self._failed:
                self.settle(Outcome(spec, "failed", f"it needs {spec.needs.title()}, which failed"))
            else:
                self.waiting.append(spec)


def run_here(specs: Sequence[RunSpec], runner: Runner, tell: Tell, on_epoch: OnEpoch | None) -> None:
    """In this process, as many at a time as the runner says; runs that share epochs one after the other."""
    heirs = heirs_among(specs)
    second = [heir for those in heirs.values() for heir in those]
    queue = Queue([spec for spec in specs if spec not in second], tell)
    queue.later.extend(second)
    while queue.waiting:
        now = list(queue.waiting)
        queue.waiting.clear()
        runner.run_once(now, queue.settle, on_epoch, heirs)
        if len(queue.later) == len(now):
            time.sleep(RETRY_S)
        queue.look_again()


class _Shares:
    """How much of the device each run had: the time between two events, divided among those runs."""

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.begun: dict[str, float] = {}
        self.share_s: dict[str, float] = {}

    def start(self, key: str) -> None:
        self._pass()
        self.begun[key] = self.since
        self.share_s[key] = 0.0

    def end(self, key: str) -> dict[str, Any]:
        """Seconds since the start, and the share of the device in them, as `make_row` takes them."""
        self._pass()
        wall_s = self.since - self.begun.pop(key)
        return {"wall_s": wall_s, "share": self.share_s.pop(key) / max(wall_s, 1e-9)}

    def _pass(self) -> None:
        now = time.perf_counter()
        for key in self.share_s:
            self.share_s[key] += (now - self.since) / len(self.share_s)
        self.since = now
