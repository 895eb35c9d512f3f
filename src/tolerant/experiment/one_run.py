"""One run, from a spec to its stored row: reserve it, make its job, store what came out.

A `Reservation` reads and writes the store; `make_job`, and `row.make_row` after the training, may be called
on another machine.
"""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tolerant.experiment.names import protocol_name
from tolerant.experiment.row import History
from tolerant.experiment.shared_epochs import HandOn, forget_if_of_other_code, inherited
from tolerant.experiment.spec import RunSpec, rows_by_key
from tolerant.experiment.store import LOCK, Row, Store
from tolerant.experiment.training_data import TrainingData, job_of
from tolerant.files import write_atomic
from tolerant.locks import FileLock
from tolerant.train import Callback, Job
from tolerant.train.engine.checkpoint import twelve_a_run

Status = Literal["done", "stored", "busy", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one spec. `busy`: another process is doing it, or the run it needs is not done."""

    spec: RunSpec
    status: Status
    text: str = ""


Tell = Callable[[Outcome], None]
OnEpoch = Callable[[RunSpec, int], None]


def describe_error(error: Exception) -> tuple[str, str]:
    """What went wrong in a line, and in full."""
    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


class Reservation:
    """The right to do one spec: a lock, held from `take` until `store`, `fail` or `release`."""

    def __init__(
        self, spec: RunSpec, results: str | os.PathLike[str], checkpoints: str | os.PathLike[str]
    ) -> None:
        self.spec = spec
        self.folder = Path(checkpoints).absolute() / spec.key
        self.estimated: np.ndarray | None = None
        """The transition matrix that the needed run estimated."""
        self._store = Store(results)
        self._lock = FileLock(self.folder / LOCK)

    def take(self) -> Outcome | None:
        """None if the spec is ours to do, else why it is not."""
        try:
            return self._take()
        except Exception as error:
            return self.fail(*describe_error(error))

    def _take(self) -> Outcome | None:
        if not self._acquire():
            return Outcome(self.spec, "busy")
        rows = rows_by_key(self._store.rows())
        if self.spec.key in rows:
            self._remove()
            return Outcome(self.spec, "stored")
        if self.spec.needs is not None:
            if self.spec.needs.key not in rows:
                self.release()
                return Outcome(self.spec, "busy")
            known = self._store.history(rows[self.spec.needs.key])["estimated_transition_e5"]
            matrix = np.asarray(known, dtype=np.float64)
            self.estimated = matrix / matrix.sum(axis=1, keepdims=True)  # rounded when it was stored
        forget_if_of_other_code(self.folder)
        return None

    def _acquire(self) -> bool:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # Another process may hold the lock, and remove the folder at any moment, once its row is stored:
            # then the lock's file is gone, and we try again. (mkdir with exist_ok=True would fail where that
            # happens just after it found the folder.)
            with suppress(FileExistsError):
                self.folder.mkdir()
            with suppress(FileNotFoundError):
                return self._lock.acquire(wait=False)

    def store(self, row: Row, history: History) -> Outcome:
        """Store what came out; the checkpoints go."""
        note = inherited(self.folder)
        if note is not None:
            row = {**row, "started_from": note}
        name = self._store.write_history(self.spec.key, history)
        file = f"{protocol_name(self.spec.protocol)}.jsonl"
        self._store.append({**row, "history": name}, file=file)
        self._remove()
        rules = {rule: at for rule, at in row["result"].items() if isinstance(at, dict)}
        accuracies = [f"{rule} {100 * at['test_accuracy']:.2f}" for rule, at in rules.items()]
        return Outcome(self.spec, "done", ", ".join(accuracies).replace("_", " "))

    def fail(self, line: str, whole: str) -> Outcome:
        """The checkpoint stays: who does the spec next goes on from it."""
        with suppress(OSError):  # then the one line must suffice
            write_atomic(self.folder / "error.txt", whole)
        self.release()
        return Outcome(self.spec, "failed", line)

    def release(self) -> None:
        self._lock.release()

    def _remove(self) -> None:
        # Released first: NFS does not remove open files. Whoever takes the lock now finds the row stored.
        self.release()
        shutil.rmtree(self.folder, ignore_errors=True)


def make_job(
    spec: RunSpec,
    data: TrainingData,
    folder: str | os.PathLike[str],
    estimated: np.ndarray | None,
    on_epoch: OnEpoch | None = None,
    heirs: Sequence[RunSpec] = (),
) -> Job:
    """What trains a spec; ``folder`` is for checkpoints, ``estimated`` the matrix of the run it needs.

    ``heirs`` are the runs that go on from its checkpoint.
    """
    return replace(
        job_of(spec, data, estimated),
        checkpoint=Path(folder),
        checkpoint_every=twelve_a_run(spec.recipe.epochs),
        callbacks=[
            *([] if on_epoch is None else [_TellOfEpochs(spec, on_epoch)]),
            *([HandOn(spec, Path(folder), heirs)] if heirs else []),
        ],
    )


class _TellOfEpochs(Callback):
    def __init__(self, spec: RunSpec, on_epoch: OnEpoch) -> None:
        self.spec, self.on_epoch = spec, on_epoch

    def on_epoch_end(self, job: Job, record: dict[str, Any]) -> None:
        self.on_epoch(self.spec, record["epoch"] + 1)
