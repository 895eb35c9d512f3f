"""Several runs side by side on one device, served in turn by one thread.

A step of ResNet-34 at batch 128 has too few rows to fill a large GPU: alone it reaches a third of an H200's
speed. Steps of other runs fill some of the rest. Each run has its own CUDA graph, stream and memory pool, so
that their kernels overlap; the host only launches a graph a step and never waits for one run while another
has work.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from typing import Any

import torch

from tolerant.checks import check_whole
from tolerant.train.engine.chain import Chain
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.display import Display, ProgressMode
from tolerant.train.engine.job import Job
from tolerant.train.engine.loop import Run
from tolerant.train.engine.ranks import current_ranks
from tolerant.train.engine.result import TrainResult

OnResult = Callable[[int, "TrainResult | Exception"], None]


class Fleet:
    """Trains jobs, ``side_by_side`` of them at a time; the next starts when one ends.

    >>> from tolerant.data import load
    >>> from tolerant.train import Recipe
    >>> recipe = Recipe(epochs=1, milestones=(), augment="none")
    >>> jobs = [Job(dataset=load("digits"), model="mlp", loss=loss, recipe=recipe) for loss in ("cce", "lq")]
    >>> [result.epoch for result in Fleet(side_by_side=2, progress="quiet").run(jobs)]
    [0, 0]
    """

    def __init__(
        self,
        *,
        side_by_side: int = 4,
        device: str | torch.device = "auto",
        progress: ProgressMode = "auto",
        graph: bool | None = None,
    ) -> None:
        self.side_by_side = check_whole(side_by_side, "side_by_side", least=1)
        self.device = pick_device(device)
        self.progress: ProgressMode = progress
        self.graph = graph

    def run(self, jobs: Iterable[Job], on_result: OnResult | None = None) -> list[TrainResult | Exception]:
        """Results in the order of the jobs; a job that failed gives its exception, others go on.

        ``on_result(index, result)`` is called as each one ends. Ctrl-C saves every run that has a
        checkpoint folder and then raises KeyboardInterrupt; a second one does not wait. SIGTERM and SIGHUP
        (Slurm, Kubernetes, a closed terminal) save likewise, and then do what they would have done.

        Over several ranks (`tolerant.train.engine.ranks`) jobs train one after the other, rank 0 alone shows
        progress, and a job that fails ends them all: what fails on one rank may succeed on the others,
        and ranks would then exchange the gradients of two jobs.
        """
        stop = _Stop()
        progress: ProgressMode = "quiet" if current_ranks().rank else self.progress
        with stop.on_signal(), Display(progress) as show:
            runs = _Runs(self, jobs, on_result, stop, show)
            try:
                runs.start_more()
                while runs.active:
                    _let_go(runs.failed, self.device)
                    if not runs.step_each():
                        time.sleep(1e-4)  # every run waits for the device
                    runs.start_more()
            finally:  # cut short, the error's traceback would hold the runs, and they their folders
                for run, _ in runs.active.values():
                    run.close()
        stop.pass_on()
        return [runs.ended[index] for index in sorted(runs.ended)]

    def run_one(self, job: Job) -> TrainResult:
        """The result of a single job; raises what it failed with."""
        (result,) = self.run([job])
        if isinstance(result, Exception):
            raise result
        return result


class _Runs:
    """The jobs of one `Fleet.run`: those to come, those under way, and what became of the others."""

    def __init__(
        self, fleet: Fleet, jobs: Iterable[Job], on_result: OnResult | None, stop: _Stop, show: Display
    ) -> None:
        self._fleet, self._on_result, self._stop, self._show = fleet, on_result, stop, show
        self._one_process = current_ranks().size == 1
        # Side by side, ranks would exchange gradients in the order in which each one's device is ready.
        self._most = fleet.side_by_side if self._one_process else 1
        self._waiting, self._index = iter(jobs), count()  # enumerate would keep the last job and its data
        self.active: dict[int, tuple[Run | Chain, Iterator[bool]]] = {}
        self.ended: dict[int, TrainResult | Exception] = {}
        self.failed: list[Exception] = []
        """Errors whose tracebacks still hold memory that the other runs could use."""

    def start_more(self) -> None:
        """Start waiting jobs while there is room beside those under way."""
        while len(self.active) < self._most:
            job = next(self._waiting, None)
            if job is None:
                return
            index = next(self._index)
            if self._stop.requested:
                self._stop.cut_short = True
                return
            _let_go(self.failed, self._fleet.device)
            try:
                make = Chain if job.rounds else Run
                run = make(job, self._fleet.device, graph=self._fleet.graph)
            except Exception as error:
                self._fail(index, error)
                continue
            self.active[index] = (run, run.go())
            self._show.start(index, run)

    def step_each(self) -> bool:
        """Let every run go on to its next step; whether any of them gave the device work."""
        busy = False
        for index, (run, steps) in list(self.active.items()):
            run.stop_requested = self._stop.requested
            try:
                with _stream(run):
                    busy = next(steps) or busy
                self._show.tick(index, run)
            except StopIteration:
                assert run.result is not None
                self._show.end(index, run)
                self._end(index, run.result)
            except KeyboardInterrupt:
                self._stop.requested = self._stop.cut_short = True
                self.active.pop(index)
            except Exception as error:
                self._fail(index, error)
        return busy

    def _end(self, index: int, result: TrainResult | Exception) -> None:
        self.active.pop(index, None)
        self.ended[index] = result
        if self._on_result is not None:
            self._on_result(index, result)

    def _fail(self, index: int, error: Exception) -> None:
        if not self._one_process:
            raise error
        self._end(index, error)
        self.failed.append(error)


def _let_go(failed: list[Exception], device: torch.device) -> None:
    """Free the memory of failed runs: an error's traceback keeps its frames alive, and they the run.

    Called only while other runs go on: the frames of the last one to fail are left to a debugger.
    """
    if failed and device.type == "cuda":
        with suppress(RuntimeError):  # the device itself may have failed
            torch.cuda.synchronize(device)  # the run's last steps may still write into its memory
    while failed:
        error = failed.pop()
        for each in (error, error.__cause__, error.__context__):
            traceback.clear_frames(None if each is None else each.__traceback__)


def _stream(run: Run | Chain) -> AbstractContextManager[Any]:
    stream = run.stepper.stream
    return nullcontext() if stream is None else torch.cuda.stream(stream)


# SIGHUP is not on Windows.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Stop:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a request that runs answer between two steps."""

    def __init__(self) -> None:
        self.requested = False
        self.cut_short = False  # a run was stopped, or not begun
        self._signal: int = signal.SIGINT

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return

        def handle(number: int, frame: Any) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested, self._signal = True, number

        before = {number: signal.getsignal(number) for number in _SIGNALS}
        # What is ignored stays so: nohup wants to survive a closed terminal. None is a handler not of Python.
        ours = [n for n, old in before.items() if n == signal.SIGINT or old not in (signal.SIG_IGN, None)]
        for number in ours:
            signal.signal(number, handle)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, before[number])

    def pass_on(self) -> None:
        """What was asked for, now that the runs are saved; `on_signal` is over."""
        if self.requested and self._signal != signal.SIGINT:
            signal.raise_signal(self._signal)  # ends the process, unless it has a handler of its own
        if self.cut_short:
            raise KeyboardInterrupt("stopped; the same call goes on from the checkpoints.")
