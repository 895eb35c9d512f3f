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
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch

from tolerant.train.device import pick_device
from tolerant.train.distributed import current
from tolerant.train.job import Job, TrainResult
from tolerant.train.progress import Display, ProgressMode
from tolerant.train.run import Run

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
        if side_by_side < 1:
            raise ValueError(f"side_by_side must be 1 or more; got {side_by_side!r}.")
        self.side_by_side = side_by_side
        self.device = pick_device(device)
        self.progress: ProgressMode = progress
        self.graph = graph

    def run(self, jobs: Iterable[Job], on_result: OnResult | None = None) -> list[TrainResult | Exception]:
        """Results in the order of the jobs; a job that failed gives its exception, others go on.

        ``on_result(index, result)`` is called as each one ends. Ctrl-C saves every run that has a
        checkpoint folder and then raises KeyboardInterrupt; a second one does not wait.

        Over several ranks (`tolerant.train.distributed`) jobs train one after the other, rank 0 alone shows
        progress, and a job that fails ends all: what fails on one rank may go on on the others, which
        would then exchange the gradients of two jobs.
        """
        ranks = current()
        # Side by side they would exchange gradients in the order in which each rank's device is ready.
        side_by_side = self.side_by_side if ranks.size == 1 else 1
        progress: ProgressMode = "quiet" if ranks.rank else self.progress
        waiting = enumerate(jobs)
        active: dict[int, tuple[Run, Iterator[bool]]] = {}
        ended: dict[int, TrainResult | Exception] = {}

        def end(index: int, result: TrainResult | Exception) -> None:
            active.pop(index, None)
            ended[index] = result
            if on_result is not None:
                on_result(index, result)

        def fail(index: int, error: Exception) -> None:
            if ranks.size > 1:
                raise error
            end(index, error)
            failed.append(error)

        failed: list[Exception] = []  # whose runs' memory is still to be given to the others
        stopping = _Stop()
        with stopping.on_interrupt(), Display(progress) as show:
            while True:
                while len(active) < side_by_side:
                    index, job = next(waiting, (-1, None))
                    if job is None:
                        break
                    if stopping.requested:
                        stopping.cut_short = True
                        break
                    _let_go(failed, self.device)
                    try:
                        run = Run(job, self.device, graph=self.graph)
                    except Exception as error:
                        fail(index, error)
                        continue
                    active[index] = (run, run.go())
                    show.start(index, run)
                if not active:
                    break
                _let_go(failed, self.device)
                busy = False
                for index, (run, steps) in list(active.items()):
                    run.stop_requested = stopping.requested
                    try:
                        with _stream(run):
                            busy = next(steps) or busy
                        show.tick(index, run)
                    except StopIteration:
                        assert run.result is not None
                        show.end(index, run)
                        end(index, run.result)
                    except KeyboardInterrupt:
                        stopping.requested = stopping.cut_short = True
                        active.pop(index)
                    except Exception as error:
                        fail(index, error)
                del run, steps  # or the one that ended would lie beside the next one on the device
                if not busy:
                    time.sleep(1e-4)  # every run waits for the device
        if stopping.cut_short:
            raise KeyboardInterrupt("stopped; the same call goes on from the checkpoints.")
        return [ended[index] for index in sorted(ended)]


def _let_go(failed: list[Exception], device: torch.device) -> None:
    """Free what failed runs hold: a traceback keeps its frames, and they the run with all its memory.

    Only once others go on: the last one's frames are left to a debugger.
    """
    if failed and device.type == "cuda":
        with suppress(RuntimeError):  # the device itself may have failed
            torch.cuda.synchronize(device)  # the run's last steps may still write into its memory
    while failed:
        error = failed.pop()
        for each in (error, error.__cause__, error.__context__):
            traceback.clear_frames(None if each is None else each.__traceback__)


def _stream(run: Run) -> Any:
    stream = run.stepper.stream
    return nullcontext() if stream is None else torch.cuda.stream(stream)


class _Stop:
    """Turns the first Ctrl-C into a request that runs answer between two steps."""

    def __init__(self) -> None:
        self.requested = False
        self.cut_short = False  # a run was stopped, or not begun

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return
        before = signal.getsignal(signal.SIGINT)

        def handle(number: int, frame: Any) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
