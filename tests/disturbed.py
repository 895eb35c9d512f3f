"""Work in a process that is killed or finds its disk full at a file of choice, and what it left."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[Path], object]
Disturb = Callable[[], object]
REFUSED = 3  # the exit code of a child that ended in a sentence
_FILES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
_TIMES = ("time_s", "images_per_s", "device_s", "peak_mem_mib", "finished", "commit", "version")


class Child:
    """Work in a fork; importing torch again would take longer than all else."""

    def __init__(self, work: Work, folder: Path, disturb: Disturb = lambda: None) -> None:
        self.begun = time.monotonic()
        self._said, says = os.pipe()  # not a file: those may be limited
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(says, 2)
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            _do(work, folder, disturb)
        os.close(says)

    def wait(self) -> int:
        with open(self._said) as said:
            self.text = said.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.took_s = time.monotonic() - self.begun
        return code


def _do(work: Work, folder: Path, disturb: Disturb) -> None:
    code = 1
    try:
        warnings.simplefilter("ignore")
        disturb()
        work(folder)
        code = 0
    except (ValueError, OSError) as error:  # what the command line makes a sentence of
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        code = REFUSED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def at_file(folder: Path, number: int, do: Callable[[], None]) -> Disturb:
    """Do something at one of the operations on files below a folder, counted from 1, and at all after it."""
    seen = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILES and str(arguments[0]).startswith(str(folder)):
            if event == "open" and not (
                isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            ):
                return
            seen[0] += 1
            if seen[0] >= number:
                do()

    return lambda: sys.addaudithook(hook)


def count_files(work: Work, folder: Path) -> int:
    """How many operations on files below the folder the work takes."""
    note = folder.with_suffix(".count")
    total = [0]

    def tell() -> None:
        total[0] += 1
        os.pwrite(handle, f"{total[0]:09d}".encode(), 0)

    handle = os.open(note, os.O_RDWR | os.O_CREAT)
    try:
        child = Child(work, folder, at_file(folder, 1, tell))
        assert child.wait() == 0, child.text
        return int(os.pread(handle, 9, 0))
    finally:
        os.close(handle)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def small_files(size: int) -> Disturb:
    """No file grows beyond this size: a write that fails in its middle."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def contents(folder: Path) -> dict[str, Any]:
    """Every file below the folder, without the times that it holds."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = None
        elif path.suffix in (".json", ".jsonl"):
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            rows = sorted((_timeless(json.loads(line)) for line in lines), key=str)
            found[name] = rows
        elif path.name != ".lock":  # of the store, which stays
            found[name] = path.read_bytes()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(one) for name, one in value.items() if name not in _TIMES}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def check_same(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys(), sorted(found.keys() ^ wanted.keys())
    differ = [name for name in wanted if wanted[name] != found[name]]
    assert not differ, differ
