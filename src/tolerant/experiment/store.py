"""Finished runs: one JSON line each in `<folder>/*.jsonl`, added to, never changed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tolerant.files import read_json, remove_interrupted, sync_folder, write_atomic
from tolerant.locks import FileLock
from tolerant.regular import read_bytes

Row = dict[str, Any]
LOCK = ".lock"
_OURS = {"key": str, "spec": dict, "versions": dict}  # another tool's file here may have keys, too
_NUMBER = (int, float)
# What a line has beyond that must be of its kind, or whoever edited it would stop all others from being read.
_KINDS: dict[str, dict[str, Any]] = {
    "": {"result": dict, "history": str, "hardware": str, "finished": str}
    | dict.fromkeys(("time_s", "device_s", "side_by_side"), _NUMBER),
    "versions": {"training": int},
    "spec": {"recipe": dict, "loss_args": dict, "model_args": dict, "noise_rate": _NUMBER}
    | {"prune": (dict, type(None))}
    | dict.fromkeys(("protocol", "dataset", "model", "loss", "noise", "transition"), str),
}
COLUMNS_DIGITS = 5  # significant digits of a history column: finer than any figure or table shows


@dataclass(frozen=True)
class Store:
    """The rows of one folder. Any number of processes may add to it and read it at once.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> row = {"key": "a1", "spec": {}, "versions": {}, "result": {}}
    >>> store.append(row, file="digits.jsonl"), store.append(row, file="digits.jsonl")
    (True, False)
    >>> [row["key"] for row in store.rows()]
    ['a1']
    """

    folder: str | os.PathLike[str]

    def rows(self) -> list[Row]:
        """Every whole row, in the order of files and lines."""
        return [row for row, _ in self._lines() if row is not None]

    def keys(self) -> set[str]:
        """The keys of every whole row."""
        return {row["key"] for row in self.rows()}

    def torn(self) -> list[str]:
        """`file:line` of the lines that hold no row: cut off by a kill, edited, or not ours."""
        return [where for row, where in self._lines() if row is None]

    def append(self, row: Mapping[str, Any], *, file: str = "runs.jsonl") -> bool:
        """Add a row and wait until it is on the disk; False when its key is already stored.

        O_APPEND alone would keep the lines of several writers apart. It would not notice that a kill has
        cut off the line before, or that another writer has just stored the same key. So the folder is
        locked meanwhile; the kernel frees that lock when its holder dies.
        """
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        with FileLock(Path(self.folder) / LOCK):
            if row["key"] in self.keys():
                return False
            path = Path(self.folder) / file
            new = not path.exists()
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    line = "\n" + line  # end the torn line, so that it costs itself alone
                data = memoryview(line.encode())
                try:
                    while data:
                        data = data[os.write(handle, data) :]
                    os.fsync(handle)
                except OSError as error:
                    with suppress(OSError):
                        os.ftruncate(handle, size)  # a full disk: no half line stays behind
                    why = f"cannot add a row to {path}: {error.strerror}; the others are intact"
                    raise type(error)(error.errno, why) from error
            finally:
                os.close(handle)
            if new:
                sync_folder(self.folder)  # the file's name, too, must survive a power cut
        return True

    def write_history(self, key: str, history: Mapping[str, Any]) -> str:
        """Store the columns of a run's epochs; returns the path to put into its row.

        Written before the row, so a row never points at nothing.
        """
        name = f"history/{key}.json"
        path = Path(self.folder) / name
        text = json.dumps(_rounded(history), separators=(",", ":"), allow_nan=False)
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        with FileLock(Path(self.folder) / LOCK):  # so that what looks interrupted is
            remove_interrupted(path)
            write_atomic(path, text + "\n")
        return name

    def history(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that belong to a row."""
        path = Path(self.folder) / row["history"]
        try:
            columns: dict[str, Any] = read_json(path)
        except FileNotFoundError as error:
            why = f"{path} is missing: whoever copies the row {row['key']} must copy its history, too"
            raise FileNotFoundError(errno.ENOENT, why) from error
        return columns

    def _lines(self) -> Iterator[tuple[Row | None, str]]:
        for path in sorted(Path(self.folder).glob("*.jsonl")):
            for number, line in enumerate(read_bytes(path).split(b"\n"), 1):
                if line.strip():
                    yield _parse(line), f"{path.name}:{number}"


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in _OURS.items())
    return row if ours and _has_right_kinds(row) else None


def _has_right_kinds(row: Row) -> bool:
    for part, kinds in _KINDS.items():
        fields = row[part] if part else row
        if not all(isinstance(fields[name], kind) for name, kind in kinds.items() if name in fields):
            return False
    recipe, result = row["spec"].get("recipe", {}), row.get("result", {})
    whole = (
        all(isinstance(recipe.get(name, 1), int) for name in ("seed", "epochs")) and recipe.get("epochs") != 0
    )
    rules = [at for at in result.values() if isinstance(at, dict)]
    return whole and all(isinstance(at.get("test_accuracy"), _NUMBER) for at in rules)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None  # JSON has no NaN; figures leave a gap there
        return float(f"{value:.{COLUMNS_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
