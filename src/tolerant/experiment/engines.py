"""Where runs happen: side by side on one device in this process, or in several processes."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
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
    """Specs to do; those that are busy come back, those whose needed run failed do not."""

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


def in_this_process(
    specs: Sequence[RunSpec], runner: Runner, tell: Tell, on_epoch: OnEpoch | None = None
) -> None:
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

    `concurrent.futures` gives up the whole pool when a worker dies, hence this small one.
    """
    queue, deaths = Queue(specs, tell), Counter[str]()
    team: dict[Connection, BaseProcess] = {}
    at_work: dict[Connection, RunSpec] = {}
    begun = False  # a worker has answered: workers can be started from here
    try:
        while queue.waiting or queue.later or at_work:
            if not queue.waiting:
                if not at_work:
                    time.sleep(RETRY_S)
                queue.look_again()
            while queue.waiting and len(at_work) < workers:
                idle = next((pipe for pipe in team if pipe not in at_work), None)
                if idle is None:
                    idle, process = _hire(runner, workers)
                    team[idle] = process
                spec = queue.waiting.popleft()
                try:
                    idle.send(spec)
                except OSError:  # died while idle
                    _bury(team.pop(idle), begun)
                    queue.waiting.appendleft(spec)
                else:
                    at_work[idle] = spec
            for pipe in wait(list(at_work), timeout=RETRY_S if queue.later else None):
                assert isinstance(pipe, Connection)
                spec = at_work.pop(pipe)
                try:
                    queue.settle(pipe.recv())
                    begun = True
                except (EOFError, OSError):
                    _bury(team.pop(pipe), begun)
                    deaths[spec.key] += 1
                    died = Outcome(spec, "failed", f"its worker died {MAX_DEATHS} times")
                    queue.settle(died if deaths[spec.key] == MAX_DEATHS else Outcome(spec, "busy"))
    finally:
        for pipe, process in team.items():
            pipe.close()  # ends an idle worker
            if pipe in at_work:
                process.terminate()
        for process in team.values():
            process.join()


def _bury(worker: BaseProcess, begun: bool) -> None:
    """Take leave of a dead worker; a RuntimeError where none could ever be started."""
    worker.join()
    if not begun and worker.exitcode == 1:  # by an error of its own, not by a signal
        raise RuntimeError(
            "a worker process ended before its first run; its own message is above. In a "
            "script, whatever starts runs must stand below `if __name__ == '__main__':`."
        ) from None


def _hire(runner: Runner, workers: int) -> tuple[Connection, BaseProcess]:
    """A new worker, and the pipe to it."""
    # A server that has imported torch forks the workers: one import for all of them and for those
    # that replace dead ones. It never touches CUDA, whose contexts do not survive a fork.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, runner, workers), daemon=True)
    process.start()
    theirs.close()
    return mine, process


def _work(pipe: Connection, runner: Runner, workers: int) -> None:
    import torch

    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(runner(pipe.recv()))


def _end_with_parent() -> None:
    """A driver killed by force cannot stop its workers, so they watch it; checkpoints resume."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
