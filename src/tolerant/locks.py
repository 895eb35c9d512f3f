"""The one lock of files: what lies in a folder is written by one run of one process, whoever dies."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tolerant.regular import read_bytes

RETRY_S = 0.01  # between looks at a lock that another thread of this process holds


class FileLock:
    """The exclusive lock of one file in an existing folder, held until `release` or the end of the process.

    Not the `filelock` package. Its flock is inherited by processes forked meanwhile (a DataLoader's), and
    with them outlives a killed trainer. Where a disk has no locks, it falls back to a file whose presence is
    the lock.

    lockf belongs to this process alone, and NFS hands it on to other machines if the file is opened for
    writing. But it does not keep two runs of one process apart, and ends as soon as the process closes the
    file a second time: hence `_held`, which is asked before the file is opened.

    Args:
        path: the file; it names who has it.
        required: an OSError where there are no file locks (Windows, some network disks); else only other runs
            of this process are kept out there.
        leaves_file: whether the file stays when the lock is released; a folder that people share should not
            name the machine it was written on.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / ".lock"
    >>> with FileLock(path):
    ...     FileLock(path).acquire(wait=False)
    False
    """

    # By process: a fork copies the dictionary, but not the locks.
    _held: ClassVar[dict[tuple[int, str], FileLock]] = {}

    def __init__(
        self, path: str | os.PathLike[str], *, required: bool = True, leaves_file: bool = True
    ) -> None:
        self.path = Path(path)
        self._required, self._leaves_file = required, leaves_file
        self._name: tuple[int, str] | None = None  # in `_held`, while it is
        self._handle: int | None = None

    def acquire(self, *, wait: bool = True) -> bool:
        """Whether the lock was got; with ``wait`` it is, sooner or later."""
        name = os.getpid(), os.path.realpath(self.path)
        while self._name is not None or self._held.setdefault(name, self) is not self:
            if not wait:
                return False
            time.sleep(RETRY_S)
        try:
            got, self._handle = _lock(self.path, wait, self._required)
        except BaseException:
            del self._held[name]
            raise
        if got:
            self._name = name
        else:
            del self._held[name]
        return got

    def release(self) -> None:
        """Leave it to others; nothing happens where it is not held."""
        if self._name is not None and not self._leaves_file:
            with suppress(OSError):
                self.path.unlink()  # while nobody else has it
        if self._handle is not None:
            os.close(self._handle)  # before another thread may open the file, whose lock this would end
            self._handle = None
        if self._name is not None:
            self._held.pop(self._name, None)
            self._name = None

    @property
    def in_this_process(self) -> bool:
        """Whether it is held here, by this object or by another."""
        return (os.getpid(), os.path.realpath(self.path)) in self._held

    def holder(self) -> str:
        """Who has it, or had it last: "process 4711 on host"; empty where that is not known."""
        if self.in_this_process:
            return f"process {os.getpid()} on {socket.gethostname()}"
        try:
            pid, _, host = read_bytes(self.path).decode("utf-8", errors="replace").strip().partition(" ")
        except (OSError, ValueError):
            return ""
        return f"process {pid} on {host}" if pid.isdigit() and host else ""

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _lock(path: Path, wait: bool, required: bool) -> tuple[bool, int | None]:
    """Whether it was got, and the open file, which says whose it is now."""
    try:
        import fcntl  # POSIX only: reading a store must work without it
    except ImportError:
        if not required:
            return True, None
        why = "runs are stored under the file locks of Linux and macOS, which Windows does not have: use WSL"
        raise OSError(why) from None
    if path.is_symlink():  # what it leads to would be emptied
        raise OSError(errno.ELOOP, f"{path} is a link, where only a file can be a lock: remove it")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException as error:
        os.close(handle)
        if isinstance(error, OSError):
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False, None
            if not required:
                return True, None
        raise
    if not _is_at(path, handle):  # whoever had it has removed the file since we opened it
        os.close(handle)
        return _lock(path, wait, required)
    with suppress(OSError):  # a full disk: then nobody is told who has it
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        os.fsync(handle)  # or other machines would read it half a minute later
    return True, handle


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
