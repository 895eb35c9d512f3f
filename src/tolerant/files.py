"""Writing files so that a reader sees the old content or the new, never half of either."""

from __future__ import annotations

import glob
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tolerant.regular import read_bytes


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends without an error.

    The bytes go to a temporary file in the same folder (a rename across disks would be a
    copy), which is synced to disk and then replaces `path` in one step. That step is synced
    too, so what is written next may rely on it. After an error `path` is unchanged and the
    temporary file is gone. A symbolic link stays and its target is replaced; a pipe or a
    device, such as /dev/stdout, is written to directly.
    """
    path = Path(path)
    if _is_stream(path):
        with path.open("wb") as file:
            yield file
        return
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    # Not tempfile: its files have mode 0600, so nobody else could read them in a shared folder. The umask,
    # which would give the right mode, can only be read by setting it, for all threads.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno is None:  # what is being copied is at fault, such as a damaged .gz
            raise
        kept = "its old content is intact" if path.exists() else "nothing was written"
        raise type(error)(error.errno, f"cannot write {path}: {error.strerror or error}; {kept}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _is_stream(path: Path) -> bool:
    """Neither a file nor a folder: a rename onto /dev/null would take it from the whole machine."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def write_atomic(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write `data` (text as UTF-8) to `path`, whole or not at all.

    A lone surrogate, from a path that is not valid UTF-8, is written as its escape `\\udce9`, as in JSON.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomic(Path(folder) / "new" / "note.txt", "whole")
    ...     (Path(folder) / "new" / "note.txt").read_text()
    'whole'
    """
    with replacing(path) as file:
        file.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


def check_not_read(path: str | os.PathLike[str], reads: Iterable[str | os.PathLike[str]]) -> None:
    """A ValueError if what would be written is one of the files that are read, by whatever name."""
    for read in reads:
        with suppress(OSError):  # not there, or not a file but the name of a data set
            if os.path.samefile(path, read):
                raise ValueError(f"{path} would be written over what is read from it. Give another --out")


def remove_interrupted(path: str | os.PathLike[str]) -> None:
    """Remove what writes of `path` that were killed have left beside it; nobody may be writing it."""
    path = Path(path)
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}"):
        with suppress(OSError):
            left.unlink()


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a power cut, where the system can."""
    with suppress(OSError):  # Windows opens no folder, some network disks sync none
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and check that files can be written to it; the error says why not."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        why = "it is a file" if path.is_file() else error.strerror or error
        raise type(error)(error.errno, f"cannot write to the folder {path}: {why}") from error


def to_json(obj: Any) -> str:
    """`obj` as indented JSON. NaN and infinity are refused: they are not JSON."""
    return json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write `obj` as JSON, whole or not at all."""
    write_atomic(path, to_json(obj))


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; a file that is not JSON gives a ValueError that names it."""
    data = read_bytes(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # JSON errors and bad UTF-8 are both ValueErrors
        raise ValueError(f"{path} is not a valid JSON file: {error}") from error
