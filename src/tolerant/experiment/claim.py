"""A spec claimed by one process, until its row is stored or it has failed."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tolerant.experiment.protocol import name_of
from tolerant.experiment.spec import TRAINING_VERSION, RunSpec
from tolerant.experiment.store import Row, Store, locked
from tolerant.experiment.work import History
from tolerant.files import write_atomic

Status = Literal["done", "stored", "busy", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one spec. `busy`: another process is doing it, or the run it needs is not done."""

    spec: RunSpec
    status: Status
    text: str = ""


Tell = Callable[[Outcome], None]


def stored(store: Store) -> dict[str, Row]:
    """Rows by the key their spec has today.

    A field that the spec has got since then counts with its default, which means "as before" (else the
    training version would have been raised), so old rows stay done.
    """
    found: dict[str, Row] = {}
    for each in store.rows():
        found.setdefault(each["key"], each)
        if each["versions"]["training"] == TRAINING_VERSION:
            try:
                found.setdefault(RunSpec.from_dict(each["spec"]).key, each)
            except ValueError:
                continue  # a value that no longer exists
    return found


def describe_error(error: Exception) -> tuple[str, str]:
    """What went wrong in a line, and in full."""
    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


class Claim:
    """The right to do one spec: a lock, held from `take` until `keep`, `fail` or `close`."""

    def __init__(
        self, spec: RunSpec, results: str | os.PathLike[str], checkpoints: str | os.PathLike[str]
    ) -> None:
        self.spec = spec
        self.store = Store(results)
        self.folder = Path(checkpoints).absolute() / spec.key
        self.estimated: np.ndarray | None = None
        """The transition matrix that the needed run estimated."""
        self._held = ExitStack()

    def take(self) -> Outcome | None:
        """None if the spec is ours to do, else why it is not."""
        if not self._lock():
            self.close()
            return Outcome(self.spec, "busy")
        rows = stored(self.store)
        if self.spec.key in rows:
            self._leave()
            return Outcome(self.spec, "stored")
        if self.spec.needs is not None:
            if self.spec.needs.key not in rows:
                self.close()
                return Outcome(self.spec, "busy")
            known = self.store.history(rows[self.spec.needs.key])["estimated_transition_e5"]
            matrix = np.asarray(known, dtype=np.float64)
            self.estimated = matrix / matrix.sum(axis=1, keepdims=True)  # rounded when it was stored
        return None

    def _lock(self) -> bool:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # Another process may hold the lock, and remove the folder at any moment, once its row is stored:
            # then the lock's file is gone, and we try again. (mkdir with exist_ok=True would fail where that
            # happens just after it found the folder.)
            with suppress(FileExistsError):
                self.folder.mkdir()
            with suppress(FileNotFoundError):
                return self._held.enter_context(locked(self.folder, wait=False))

    def keep(self, row: Row, history: History) -> Outcome:
        """Store what came out; the checkpoints go."""
        name = self.store.write_history(self.spec.key, history)
        file = f"{name_of(self.spec.protocol)}.jsonl"
        self.store.append({**row, "history": name}, file=file)
        self._leave()
        rules = {rule: at for rule, at in row["result"].items() if isinstance(at, dict)}
        accuracies = [f"{rule} {100 * at['test_accuracy']:.2f}" for rule, at in rules.items()]
        return Outcome(self.spec, "done", ", ".join(accuracies).replace("_", " "))

    def fail(self, line: str, whole: str) -> Outcome:
        """The checkpoint stays: the next attempt goes on from it."""
        with suppress(OSError):  # then the one line must suffice
            write_atomic(self.folder / "error.txt", whole)
        self.close()
        return Outcome(self.spec, "failed", line)

    def close(self) -> None:
        self._held.close()

    def _leave(self) -> None:
        # Closed first: NFS does not remove open files. Whoever takes the lock now finds the row stored.
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
