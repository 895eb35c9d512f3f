"""The lock of files: one holder, whoever forks, dies or has no locks; and it says who that is."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tolerant.experiment import RunSpec, Store
from tolerant.experiment.one_run import Reservation
from tolerant.locks import FileLock


def test_one_of_this_process_has_it(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / ".lock"), FileLock(tmp_path / "x" / ".." / ".lock")
    (tmp_path / "x").mkdir()
    assert not second.in_this_process
    assert (first.acquire(), second.acquire(wait=False), first.acquire(wait=False)) == (True, False, False)
    assert second.in_this_process
    second.release()  # which it does not have
    assert first.in_this_process
    first.release()
    assert second.acquire(wait=False)
    second.release()


def test_a_second_thread_waits(tmp_path: Path) -> None:
    path, order = tmp_path / ".lock", []

    def later() -> None:
        with FileLock(path):
            order.append("second")

    with FileLock(path):
        thread = threading.Thread(target=later)
        thread.start()
        thread.join(timeout=0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert FileLock(path).acquire(wait=False)


HOLDER = """
import os, sys, time
from tolerant.locks import FileLock
assert FileLock(sys.argv[1]).acquire()
if os.fork() == 0:  # as a DataLoader's worker, which may live on for seconds
    time.sleep(60)
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


def test_another_process_has_it_says_who_and_leaves_it_when_killed(tmp_path: Path) -> None:
    """The fork of a holder inherits nothing: it may outlive a killed trainer."""
    path = tmp_path / ".lock"
    path.write_text(f"1 {'a' * 100}\n")  # whoever had it before
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "held\n"
        mine = FileLock(path)
        assert not mine.acquire(wait=False)
        assert not mine.in_this_process
        assert mine.holder() == f"process {other.pid} on {socket.gethostname()}"
        other.kill()
        other.wait()
        assert mine.acquire(wait=False)
        assert mine.holder() == f"process {os.getpid()} on {socket.gethostname()}"
        assert path.read_text() == f"{os.getpid()} {socket.gethostname()}\n"
        mine.release()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(other.pid, signal.SIGKILL)
        other.stdout.close()


@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b"someone"])
def test_a_holder_that_is_not_known_is_nobody(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / ".lock").write_bytes(content)
    assert FileLock(tmp_path / ".lock").holder() == ""


def test_asking_who_has_it_does_not_end_it(tmp_path: Path) -> None:
    """The kernel frees a process's lock when the process closes the file, wherever it had opened it."""
    mine = FileLock(tmp_path / ".lock")
    with mine:
        assert FileLock(tmp_path / ".lock").holder()
        assert not FileLock(tmp_path / ".lock").acquire(wait=False)
        code = "import sys; from tolerant.locks import FileLock; "
        code += "print(FileLock(sys.argv[1]).acquire(wait=False))"
        done = subprocess.run([sys.executable, "-c", code, str(mine.path)], capture_output=True, text=True)
        assert done.stdout == "False\n"


def no_locks(handle: int, operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def without_lockf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "lockf", no_locks)


def without_fcntl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)


@pytest.mark.parametrize(
    ("take_away", "message"),
    [(without_lockf, "No locks available"), (without_fcntl, "Windows does not have: use WSL")],
)
def test_where_there_are_no_locks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    take_away: Callable[[pytest.MonkeyPatch], None],
    message: str,
) -> None:
    take_away(monkeypatch)
    with pytest.raises(OSError, match=message), FileLock(tmp_path / ".lock"):
        pass
    one, other = (FileLock(tmp_path / ".lock", required=False) for _ in range(2))
    assert (one.acquire(), other.acquire(wait=False)) == (True, False)  # runs of this process are kept apart
    one.release()
    assert other.acquire(wait=False)
    other.release()


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "gone" / ".lock", required=False)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            lock.acquire(wait=False)


def test_locks_are_of_files_opened_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS hands only these on to its server; on a folder it locks for this machine alone."""
    seen = []

    def lockf(handle: int, operation: int) -> None:
        mode = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE
        seen.append((stat.S_ISREG(os.fstat(handle).st_mode), mode == os.O_RDWR))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    row = {"spec": {}, "versions": {}, "key": "a"}
    assert Store(tmp_path / "results").append(row)
    spec = RunSpec(dataset="digits", model="mlp", loss="cce")
    reservation = Reservation(spec, tmp_path / "others", tmp_path / "runs")
    assert reservation.take() is None
    reservation.release()
    assert seen == [(True, True)] * 2
    assert Store(tmp_path / "results").rows() == [row]
