"""Where runs happen: side by side on one device in this process, or in several processes."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tolerant.experiment.attempt import Runner
from tolerant.experiment.claim import Outcome, Tell
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.work import OnEpoch

RETRY_S = 0.5  # between looks at runs that other processes are doing
MAX_DEATHS = 3  # a run that takes its worker down this often has failed


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


def in_this_process(specs: Sequence[RunSpec], runner: Runner, tell: Tell, on_epoch: OnEpoch | None) -> None:
    """In this process, as many at a time as the runner says."""
    queue = Queue(specs, tell)
    while queue.waiting:
        now = list(queue.waiting)
        queue.waiting.clear()
        runner.attempt(now, queue.settle, on_epoch)
        if len(queue.later) == len(now):
            time.sleep(RETRY_S)
        queue.look_again()


def in_processes(specs: Sequence[RunSpec], runner: Runner, tell: Tell, workers: int) -> None:
    """In `workers` processes. A dead worker is replaced and its run tried again.

    `concurrent.futures` gives up the whole pool when a worker dies, hence this small one of our own.
    """
    queue, deaths = Queue(specs, tell), Counter[str]()
    with closing(_Team(runner, workers)) as team:
        while queue.waiting or queue.later or team.at_work:
            if not queue.waiting:
                if not team.at_work:
                    time.sleep(RETRY_S)
                queue.look_again()
            while queue.waiting and len(team.at_work) < workers:
                if team.give(queue.waiting[0]):
                    queue.waiting.popleft()
            for spec, outcome in team.answers(timeout_s=RETRY_S if queue.later else None):
                if outcome is None:
                    deaths[spec.key] += 1
                    outcome = Outcome(spec, "busy")
                    if deaths[spec.key] == MAX_DEATHS:
                        outcome = Outcome(spec, "failed", f"its worker died {MAX_DEATHS} times")
                queue.settle(outcome)


class _Team:
    """Worker processes, started as they are needed; a run is done by calling the runner in one of them."""

    def __init__(self, runner: Runner, size: int) -> None:
        self._runner, self._size = runner, size
        self._workers: dict[Connection, BaseProcess] = {}
        self.at_work: dict[Connection, RunSpec] = {}
        self._begun = False  # a worker has answered: workers can be started from here

    def give(self, spec: RunSpec) -> bool:
        """Hand a spec to a worker that is idle, or new; False where it turns out to be dead."""
        idle = next((pipe for pipe in self._workers if pipe not in self.at_work), None) or self._hire()
        try:
            idle.send(spec)
        except OSError:
            self._bury(idle)
            return False
        self.at_work[idle] = spec
        return True

    def answers(self, timeout_s: float | None) -> Iterator[tuple[RunSpec, Outcome | None]]:
        """Wait for the first answers; None for an outcome is a worker that died."""
        if not self.at_work:
            return  # `wait` would wait for ever
        for pipe in wait(list(self.at_work), timeout_s):
            assert isinstance(pipe, Connection)
            spec, outcome = self.at_work.pop(pipe), None
            try:
                outcome = pipe.recv()
                self._begun = True
            except (EOFError, OSError):
                self._bury(pipe)
            yield spec, outcome

    def close(self) -> None:
        for pipe, worker in self._workers.items():
            pipe.close()  # ends an idle worker
            if pipe in self.at_work:
                worker.terminate()
        for worker in self._workers.values():
            worker.join()

    def _hire(self) -> Connection:
        # A server that has imported torch forks the workers: one import for all of them and for those
        # that replace dead ones. It never touches CUDA, whose contexts do not survive a fork.
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        mine, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(theirs, self._runner, self._size), daemon=True)
        worker.start()
        theirs.close()
        self._workers[mine] = worker
        return mine

    def _bury(self, pipe: Connection) -> None:
        worker = self._workers.pop(pipe)
        worker.join()
        if not self._begun and worker.exitcode == 1:  # by an error of its own, not by a signal
            raise RuntimeError(
                "a worker process ended before its first run; its own message is above. In a "
                "script, whatever starts runs must stand below `if __name__ == '__main__':`."
            ) from None


def _work(pipe: Connection, runner: Runner, workers: int) -> None:
    import torch

    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(runner(pipe.recv()))


def _end_with_parent() -> None:
    """A killed driver cannot stop its workers, so they watch it; their runs resume from checkpoints."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
