"""L_q and truncated L_q are one run until the first pruning, bit for bit: its epochs are trained once.

Of 21 stored pairs the 19 that one commit made have the same history up to there, on the GPU, too. So where
both are to be done, the run that prunes comes second and goes on from a checkpoint of the other. In table 1
that spares a third of its epochs, on CIFAR-100 half of them. In table 2, which prunes from epoch 10 on,
runs that wait would cost more than they spare.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.experiment.code_version import source
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.store import LOCK
from tolerant.files import read_json, write_json
from tolerant.locks import FileLock
from tolerant.train import Callback, Job
from tolerant.train.engine.measure import pruning_record

CHECKPOINT = "checkpoint.json"
NOTE = "started_from.json"
WAIT_S = 10.0  # for a disk that takes longer than an epoch to write a checkpoint


def twin(spec: RunSpec) -> RunSpec | None:
    """The same run without pruning, where it is the same until then and that is a good part of it."""
    prune, recipe = spec.prune, spec.recipe
    # Pruning by weight takes the mean over rows, whose last digit differs from the loss's own mean.
    if prune is None or recipe.prune_by != "filter" or prune.start_epoch < recipe.epochs / 4:
        return None
    return replace(spec, prune=None)


def heirs_among(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    """By the key of a run: those that can go on from its checkpoint, if both are among the specs."""
    specs = list(specs)
    heirs: dict[str, list[RunSpec]] = {spec.key: [] for spec in specs}
    for spec in specs:
        before = twin(spec)
        if before is not None and before.key in heirs:
            heirs[before.key].append(spec)
    return {key: found for key, found in heirs.items() if found}


class HandOn(Callback):
    """Leaves to the runs that prune the last checkpoint before they do."""

    def __init__(self, spec: RunSpec, folder: Path, heirs: Sequence[RunSpec]) -> None:
        self.key, self.folder, self.heirs = spec.key, folder, heirs

    def on_epoch_end(self, job: Job, record: dict[str, Any]) -> None:
        """A checkpoint is written beside the next epoch: it is looked for at the end of that."""
        every = job.checkpoint_every
        for heir in self.heirs:
            assert heir.prune is not None
            last = heir.prune.start_epoch // every * every
            if 0 < last == record["epoch"]:
                with suppress(OSError, ValueError):  # then it trains those epochs itself
                    self._hand_on(job, heir, last)

    def _hand_on(self, job: Job, heir: RunSpec, epoch: int) -> None:
        until = time.monotonic() + WAIT_S
        while _epoch_of(self.folder) < epoch and time.monotonic() < until:
            time.sleep(0.05)
        stored = read_json(self.folder / CHECKPOINT)
        folder = self.folder.parent / heir.key
        folder.mkdir(exist_ok=True)
        lock = FileLock(folder / LOCK)
        if stored["epoch"] != epoch or stored["step"] or not lock.acquire(wait=False):
            return
        try:
            if not (folder / CHECKPOINT).exists():
                for name in stored["files"].values():
                    shutil.copyfile(self.folder / name, folder / name)
                write_json(folder / NOTE, {"key": self.key, "epoch": epoch, "source": source()})
                run = {**stored["run"], "prune": asdict(heir.prune)}  # type: ignore[arg-type]
                nothing = _nothing_pruned(job)
                history = [record | nothing for record in stored["history"]]
                write_json(folder / CHECKPOINT, {**stored, "run": run, "history": history, "time_s": 0.0})
        finally:
            lock.release()


def _epoch_of(folder: Path) -> int:
    """The epochs that the checkpoint there has behind it; 0 where there is none yet."""
    return int(read_json(folder / CHECKPOINT)["epoch"]) if (folder / CHECKPOINT).exists() else 0


def _nothing_pruned(job: Job) -> dict[str, Any]:
    index, data = job.split()[0], job.dataset
    wrong = None if data.true_labels is None else data.flipped[index]
    return pruning_record(np.ones(len(index), dtype=bool), wrong)


def forget_if_of_other_code(folder: Path) -> None:
    """An inherited checkpoint that was not gone on from yet, and is of other code: start anew."""
    note = inherited(folder)
    if note and note["source"] != source() and _epoch_of(folder) == note["epoch"]:
        (folder / CHECKPOINT).unlink()
        (folder / NOTE).unlink()


def inherited(folder: Path) -> dict[str, Any] | None:
    """Whose checkpoint a run went on from, for its row: key, epoch, source."""
    note: dict[str, Any] | None = read_json(folder / NOTE) if (folder / NOTE).exists() else None
    return note
