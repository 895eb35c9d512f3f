"""Runs in several processes, one at a time in each."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tolerant.experiment.engines.local import MAX_DEATHS, RETRY_S, Queue, Runner
from tolerant.experiment.one_run import Outcome, Tell
from tolerant.experiment.spec import RunSpec


def run_in_processes(specs: Sequence[RunSpec], runner: Runner, tell: Tell, workers: int) -> None:
    """In `workers` processes. A dead worker is replaced and its run tried again.

    `concurrent.futures` gives up the whole pool when a worker dies, hence this small one of our own.
    """
    queue, deaths = Queue(specs, tell), Counter[str]()
    with closing(_Pool(runner)) as pool:
        while queue.waiting or queue.later or pool.at_work:
            if not queue.waiting:
                if not pool.at_work:
                    time.sleep(RETRY_S)
                queue.look_again()
            while queue.waiting and len(pool.at_work) < workers:
                if pool.assign(queue.waiting[0]):
                    queue.waiting.popleft()
            for spec, outcome in pool.answers(timeout_s=RETRY_S if queue.later else None):
                if outcome is None:
                    deaths[spec.key] += 1
                    outcome = Outcome(spec, "busy")
                    if deaths[spec.key] == MAX_DEATHS:
                        outcome = Outcome(spec, "failed", f"its worker died {MAX_DEATHS} times")
                queue.settle(outcome)


class _Pool:
    """Worker processes, started as they are needed; a run is done by calling the runner in one of them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._workers: dict[Connection, BaseProcess] = {}
        self.at_work: dict[Connection, RunSpec] = {}
        self._begun = False  # a worker has answered: workers can be started from here

    def assign(self, spec: RunSpec) -> bool:
        """Hand a spec to a worker that is idle, or new; False where it turns out to be dead."""
        idle = next((pipe for pipe in self._workers if pipe not in self.at_work), None) or self._start()
        try:
            idle.send(spec)
        except OSError:
            self._remove_dead(idle)
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
                self._remove_dead(pipe)
            yield spec, outcome

    def close(self) -> None:
        for pipe, worker in self._workers.items():
            pipe.close()  # ends an idle worker
            if pipe in self.at_work:
                worker.terminate()
        for worker in self._workers.values():
            worker.join()

    def _start(self) -> Connection:
        # A server that has imported torch forks the workers: one import for all of them and for those
        # that replace dead ones. It never touches CUDA, whose contexts do not survive a fork.
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        mine, theirs = context.Pipe()
        worker = context.Process(target=_serve, args=(theirs, self._runner), daemon=True)
        worker.start()
        theirs.close()
        self._workers[mine] = worker
        return mine

    def _remove_dead(self, pipe: Connection) -> None:
        worker = self._workers.pop(pipe)
        worker.join()
        if not self._begun and worker.exitcode == 1:  # by an error of its own, not by a signal
            raise RuntimeError(
                "a worker process ended before its first run; its own message is above. In a "
                "script, whatever starts runs must stand below `if __name__ == '__main__':`."
            ) from None


def _serve(pipe: Connection, runner: Runner) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(runner(pipe.recv()))


def _end_with_parent() -> None:
    """A killed driver cannot stop its workers, so they watch it; their runs resume from checkpoints."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
