"""Pipes and devices told from files before they are opened: to read one may never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_regular(path: str | os.PathLike[str]) -> bool:
    """A file, or a link to one, that is there."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def check_regular(path: str | os.PathLike[str]) -> None:
    """A ValueError for what is there, but is no file.

    >>> check_regular("/dev/null")
    Traceback (most recent call last):
        ...
    ValueError: /dev/null is a pipe or a device, which is not read. Save its content as a file first.
    """
    there = Path(path)
    if there.exists() and not (is_regular(there) or there.is_dir()):
        raise ValueError(
            f"{path} is a pipe or a device, which is not read. Save its content as a file first."
        )


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """What a file holds; a ValueError for a pipe or a device."""
    check_regular(path)
    return Path(path).read_bytes()
