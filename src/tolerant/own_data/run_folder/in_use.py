"""One process at a time writes to a run folder; what a killed one left half done is finished or swept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tolerant.files import check_not_read, make_folder, read_json
from tolerant.hints import warn_caller
from tolerant.locks import FileLock
from tolerant.own_data.run_folder.layout import FILES, LOCK, PART, TEMPORARY
from tolerant.train.engine.checkpoint import in_use as checkpoint_in_use

# A training's checkpoints by its fingerprint, and those that are being removed.
_FINGERPRINT = "[0-9a-f]{16}"
_GONE = ".gone"


@contextmanager
def using(folder: str | os.PathLike[str], reads: Sequence[str | os.PathLike[str]] = ()) -> Iterator[None]:
    """Hold the right to write to a run folder: whatever writes there does it within this block.

    A ValueError if another process holds it, or if one of the files that the caller ``reads`` would be
    overwritten. A folder that was made for this is removed again if nothing is written to it.
    """
    folder = Path(folder)
    for name in FILES:
        check_not_read(folder / name, reads)
    new = not folder.exists()
    lock = FileLock(folder / LOCK, required=False, leaves_file=False)
    while True:
        make_folder(folder)
        with suppress(FileNotFoundError):  # who found nothing to write has removed it again
            if lock.acquire(wait=False):
                break
            raise ValueError(
                f"{folder} is in use: {lock.holder() or 'another process'} trains or lists there. Wait until "
                "it ends, or give another folder: --out"
            )
    try:
        _refuse_links(folder)
        _sweep(folder)
        yield
    finally:
        lock.release()
        if new:
            with suppress(OSError):
                folder.rmdir()


def holder(folder: str | os.PathLike[str]) -> str:
    """Who is `using` it: "process 4711 on host"; empty if nobody is."""
    lock = FileLock(Path(folder) / LOCK, required=False, leaves_file=False)
    if not lock.path.exists():
        return ""
    with suppress(OSError):
        if lock.acquire(wait=False):
            lock.release()
            return ""
    return lock.holder()


def set_aside(folder: Path, fingerprint: str) -> None:
    """Move a run with another ``fingerprint`` that lies here into ``earlier-1`` or the next such folder.

    It is gathered in a folder that has its name when it is whole: a kill does not split it over two.
    """
    part = folder / PART
    if not part.exists() and (not (folder / "spec.json").exists() or _fingerprint(folder) == fingerprint):
        return
    part.mkdir(exist_ok=True)
    if not (part / "spec.json").exists():  # which goes last: what lies here now would be another run's
        for name in FILES:
            with suppress(FileNotFoundError):
                (folder / name).replace(part / name)
    number = next(n for n in count(1) if not (folder / f"earlier-{n}").exists())
    earlier = part.rename(folder / f"earlier-{number}")
    warn_caller(
        f"{folder} held a run of other data or settings, which is in {earlier} now. "
        "To keep both side by side give another folder: --out"
    )


def remove_checkpoints(folder: Path, which: Callable[[Path], bool] = lambda of_a_training: True) -> None:
    """Remove the checkpoints of those trainings here that ``which`` says, unless they are in use.

    Nothing may fail: what matters is written. The folder can be a link to a larger disk, with other things
    in it.
    """
    checkpoints = folder / "checkpoints"
    for found in list(checkpoints.iterdir()) if checkpoints.is_dir() else ():
        if re.fullmatch(_FINGERPRINT, found.name) and which(found) and not _at_work(found):
            with suppress(OSError):  # renamed first: half of a checkpoint would be refused by the next call
                found = found.rename(found.with_name(found.name + _GONE))
        if re.fullmatch(_FINGERPRINT + re.escape(_GONE), found.name):
            shutil.rmtree(found, ignore_errors=True)
    with suppress(OSError):
        checkpoints.rmdir()


def remove_finished_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of the run that lies here, unless they are newer: then it is trained anew."""
    with suppress(OSError):
        written = (folder / "spec.json").stat().st_mtime
        remove_checkpoints(
            folder, lambda found: found.name == _fingerprint(folder) and _newest(found) <= written
        )


def _refuse_links(folder: Path) -> None:
    """A folder that came from others must not lead what is written here to another place."""
    for name in FILES:
        if (folder / name).is_symlink():
            raise ValueError(
                f"{folder / name} is a link, and what is written would go to where it leads. Put the file "
                "itself there, or give another folder: --out"
            )


def _sweep(folder: Path) -> None:
    """Remove what a kill has left: files of interrupted writes, checkpoints that were being removed."""
    for path in folder.iterdir():
        if TEMPORARY.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
    remove_checkpoints(folder, lambda found: False)


def _newest(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.rglob("*") if path.is_file()), default=0.0)


def _at_work(checkpoints: Path) -> bool:
    """Whether any training has its checkpoints below this folder; one of a disk without locks is not seen."""
    return any(checkpoint_in_use(folder) for folder in checkpoints.iterdir() if folder.is_dir())


def _fingerprint(folder: Path) -> str | None:
    """The fingerprint of the finished run in this folder; None if there is none."""
    with suppress(ValueError, OSError):
        spec = read_json(folder / "spec.json")
        found = spec.get("fingerprint") if isinstance(spec, dict) else None
        return found if isinstance(found, str) else None
    return None
