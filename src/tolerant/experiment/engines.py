"""Where runs happen: in this process, in several, or side by side on one GPU."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from tolerant.experiment.spec import RunSpec

Status = Literal["done", "stored", "busy", "failed"]
RETRY_S = 0.5  # between looks at a run that another process is doing
MAX_DEATHS = 3  # a run that takes its worker down this often has failed


@dataclass(frozen=True)
class Outcome:
    """What became of one spec. `busy`: another process is at it."""

    spec: RunSpec
    status: Status
    text: str = ""


Do = Callable[[RunSpec], Outcome]


def one_by_one(specs: Sequence[RunSpec], do: Do) -> Iterator[Outcome]:
    """In this process, in order; what another process is doing is looked at again at the end."""
    waiting = deque(specs)
    while waiting:
        spec = waiting.popleft()
        outcome = do(spec)
        if outcome.status == "busy":
            waiting.append(spec)
            time.sleep(RETRY_S)
        else:
            yield outcome


def processes(specs: Sequence[RunSpec], do: Do, workers: int) -> Iterator[Outcome]:
    """In `workers` processes. A dead worker is replaced and its run tried again.

    `concurrent.futures` gives up the whole pool when a worker dies, hence this small one.
    """
    waiting, deaths = deque(specs), Counter[str]()
    team: dict[Connection, RunSpec] = {}
    idle: list[Connection] = []
    everyone: list[Any] = []
    try:
        while waiting or team:
            while waiting and len(team) < workers:
                if not idle:
                    pipe, process = _hire(do, workers)
                    idle.append(pipe)
                    everyone.append((pipe, process))
                pipe, spec = idle.pop(), waiting.popleft()
                try:
                    pipe.send(spec)
                except OSError:  # died while idle
                    waiting.appendleft(spec)
                else:
                    team[pipe] = spec
            for pipe in wait(list(team)):
                assert isinstance(pipe, Connection)
                spec = team.pop(pipe)
                try:
                    outcome: Outcome = pipe.recv()
                except (EOFError, OSError):
                    deaths[spec.key] += 1
                    if deaths[spec.key] < MAX_DEATHS:
                        waiting.append(spec)
                    else:
                        yield Outcome(spec, "failed", f"its worker died {MAX_DEATHS} times")
                    continue
                idle.append(pipe)
                if outcome.status == "busy":
                    waiting.append(spec)
                    time.sleep(RETRY_S)
                else:
                    yield outcome
    finally:
        for pipe, process in everyone:
            pipe.close()  # ends an idle worker
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()


def _hire(do: Do, workers: int) -> tuple[Connection, Any]:
    context = get_context("spawn")  # a forked CUDA context is unusable
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, do, workers), daemon=True)
    process.start()
    theirs.close()
    return mine, process


def _work(pipe: Connection, do: Do, workers: int) -> None:
    import torch

    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        while True:
            pipe.send(do(pipe.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    """A driver killed by force cannot stop its workers, so they watch it; checkpoints resume."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
