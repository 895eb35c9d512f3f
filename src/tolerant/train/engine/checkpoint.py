"""A run on disk: weights as safetensors, everything else as JSON, never half written.

``checkpoint.json`` is the checkpoint: it names the files it needs, which are written before it and
deleted after the next one stands. A stop at any moment leaves the old one or the new one whole.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from tolerant.extras import extra
from tolerant.files import make_folder, read_json, to_json, write_atomic, write_json
from tolerant.locks import FileLock
from tolerant.regular import read_bytes
from tolerant.train.model_state import to_host

FORMAT = 1
_NAME = "checkpoint.json"
_LOCK = ".checkpoint.lock"


def twelve_a_run(epochs: int) -> int:
    """Epochs between two checkpoints. One of ResNet-34 with its momentum is 170 MB: too much for each epoch.

    >>> twelve_a_run(120), twelve_a_run(5)
    (10, 1)
    """
    return max(1, epochs // 12)


class Checkpoints:
    """The checkpoint in one folder; ``run`` describes the run, and must be the same for it to go on.

    One run at a time writes there; of several ranks only the first takes the ``lock``.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Mapping[str, Any], *, lock: bool = True) -> None:
        self.folder = Path(folder)
        self.run = dict(run)
        self._writes = lock
        self._best: str | None = None  # the file of best weights that is known to be this run's
        self._writer = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        # A read-only folder, or a numpy number among the values, is refused before an epoch is spent.
        extra("safetensors.torch")
        to_json(self.run)
        make_folder(self.folder)
        self._lock = _locked(self.folder) if lock else None

    @property
    def exists(self) -> bool:
        return (self.folder / _NAME).exists()

    def save(
        self,
        record: Mapping[str, Any],
        state: Mapping[str, Tensor],
        best: Mapping[str, Tensor] | None,
    ) -> None:
        """Copy everything now and write it in another thread: the device need not wait for a disk.

        The best weights are written only if they are of another epoch than the last time. An error in
        writing is raised by the next `save` or `flush`.
        """
        self.flush()
        files = {"state": f"state-{record['epoch']:05d}-{record['step']:07d}.safetensors"}
        new = {files["state"]: to_host(state)}
        if best is not None:
            files["best"] = f"best-{record['best_epoch']:05d}.safetensors"
            if files["best"] != self._best:
                new[files["best"]] = to_host(best)
        text = {"format": FORMAT, "run": self.run, **copy.deepcopy(dict(record)), "files": files}
        self._pending = self._writer.submit(self._write, text, new)
        self._best = files.get("best")

    def flush(self) -> None:
        """Wait until what was saved is on disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait as `flush` does, and leave the folder to others."""
        try:
            self.flush()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _write(self, record: dict[str, Any], new: dict[str, dict[str, Tensor]]) -> None:
        for name, tensors in new.items():
            write_atomic(self.folder / name, extra("safetensors.torch").save(tensors))
        write_json(self.folder / _NAME, record)
        self._delete_all_but(record["files"])

    def _delete_all_but(self, files: Mapping[str, str]) -> None:
        for path in self.folder.iterdir():
            if path.name not in files.values() and _is_ours(path.name):
                with suppress(OSError):
                    path.unlink()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor] | None] | None:
        """The record, the state and the best weights; None where there is no checkpoint yet."""
        path = self.folder / _NAME
        if not self.exists:
            return None
        try:
            record = read_json(path)
        except ValueError as error:
            raise ValueError(f"{error}. Delete the folder to start anew.") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ValueError(f"{path} is not a checkpoint of this version. Use another folder.")
        _check_record(path, record)
        for name in {**self.run, **record["run"]}:
            theirs, mine = record["run"].get(name), self.run.get(name)
            if theirs != mine:
                where, old, new = _first_difference(name, theirs, mine)
                raise ValueError(
                    f"{path} belongs to another run: {where} was {old!r} and is now {new!r}. "
                    "Use another folder, or delete this one to start anew."
                )
        safetensors = extra("safetensors.torch")
        loaded: dict[str, dict[str, Tensor]] = {}
        for kind, name in record["files"].items():
            try:
                loaded[kind] = safetensors.load(read_bytes(self.folder / Path(name).name))
            except (OSError, extra("safetensors").SafetensorError) as error:
                raise ValueError(
                    f"{self.folder / name}, which {path} needs, cannot be read: {error}. "
                    "Delete the folder to start anew."
                ) from error
        self._best = record["files"].get("best")
        if self._writes:  # a kill may have left files of the checkpoint before this one
            self._delete_all_but(record["files"])
        return record, loaded["state"], loaded.get("best")


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("run", "files"), dict),
    **dict.fromkeys(("epoch", "step", "best_epoch"), int),
    **dict.fromkeys(("loss_sum", "time_s"), (int, float)),
    "history": list,
}


def _check_record(path: Path, record: dict[str, Any]) -> None:
    """A ValueError for the first field that is missing or of another kind; JSON is easily edited."""
    for name, kind in _KINDS.items():
        value = record.get(name)
        if not isinstance(value, kind) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{path} is damaged: {name} is {value!r:.80}. Delete the folder to start anew.")
    if not all(_is_epoch(epoch, len(record["history"])) for epoch in record["history"]):
        raise ValueError(
            f"{path} is damaged: history is no list of records. Delete the folder to start anew."
        )
    names = [record["files"].get("state"), *record["files"].values()]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path} is damaged: files are {names!r:.80}. Delete the folder to start anew.")


def _is_epoch(record: Any, num_epochs: int) -> bool:
    if not isinstance(record, dict) or record.get("epoch") not in range(num_epochs):
        return False
    chooses = (record.get(name) for name in ("validation_accuracy", "validation_loss"))
    return all(value is None or isinstance(value, int | float) for value in chooses)


@contextmanager
def naming_damage(checkpoints: Checkpoints) -> Iterator[None]:
    """What a checkpoint that fits no run raises, as a ValueError that says what to do."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(
            f"{checkpoints.folder / _NAME} is damaged: {error!r:.200}. Delete the folder to start anew."
        ) from error


def in_use(folder: Path) -> bool:
    """Whether a run writes its checkpoints here now, as far as there are file locks."""
    if not (folder / _LOCK).exists():
        return False
    lock = FileLock(folder / _LOCK, required=False)
    free = lock.acquire(wait=False)
    lock.release()
    return not free


def _locked(folder: Path) -> FileLock:
    """The right of one run to write here, where there are file locks; a disk without them trains, too."""
    lock = FileLock(folder / _LOCK, required=False)
    if lock.acquire(wait=False):
        return lock
    if lock.in_this_process:
        raise ValueError(
            f"checkpoint folder {folder} is in use: another run of this process trains with it. "
            "Give each run a folder of its own."
        )
    who = lock.holder()
    raise ValueError(
        f"checkpoint folder {folder} is in use: another process trains with it{f' ({who})' if who else ''}. "
        "Wait until that one ends, or use another folder."
    )


# Files of older checkpoints, and temporary ones left by a kill; the folder may hold a user's own, too.
_OURS = re.compile(r"(state-\d{5,}-\d{7,}|best-\d{5,})\.safetensors")
_TEMPORARY = re.compile(rf"\.({_OURS.pattern}|{re.escape(_NAME)})\.\w+")


def _is_ours(name: str) -> bool:
    return bool(_OURS.fullmatch(name) or _TEMPORARY.fullmatch(name))


def _first_difference(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                return _first_difference(f"{name} {key}", old.get(key), new.get(key))
    return name, old, new
