"""The picture files below a folder, and by reason what else lies there: nothing is passed over in silence."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tolerant.hints import warn_caller
from tolerant.regular import is_regular

# HEIC needs the plugin pillow-heif; without it those files are reported as left out, not passed over.
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".avif", ".heic", ".heif"),
)


class Unused:
    """What lies below a folder and is not used, by reason."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_reason: dict[str, list[Path]] = {}

    def add(self, path: Path, reason: str) -> None:
        self._by_reason.setdefault(reason, []).append(path)

    def warn(self) -> None:
        """One warning that counts them, and names the first of each reason."""
        if not self._by_reason:
            return
        parts = []
        for reason, paths in self._by_reason.items():
            first = readable(os.path.relpath(min(paths), self._folder))
            parts.append(f"{len(paths):,} {reason} (first: {first})")
        warn_caller(f"not all that lies in {readable(str(self._folder))} is used: {'; '.join(parts)}")


def find_pictures(folder: Path, unused: Unused, used: Collection[Path] = ()) -> list[Path]:
    """All pictures in `folder` and below, sorted; ``used``: links in it that are looked into apart."""
    found = []

    def unreadable(error: OSError) -> None:
        unused.add(Path(error.filename), f"folders that cannot be read, {error.strerror}")

    for base, folders, names in os.walk(folder, onerror=unreadable):
        for name in list(folders):
            path = Path(base) / name
            if name.startswith("."):
                unused.add(path, "hidden folders")
                folders.remove(name)
            elif path.is_symlink() and path not in used:
                unused.add(path, "links to folders, which are followed only if they are a class")
        for path in (Path(base) / name for name in names):
            if why := why_unused(path):
                unused.add(path, why)
            else:
                found.append(path)
    return sorted(found)


def why_unused(path: Path) -> str:
    """Why a file is not read as a picture; empty if it is."""
    if path.name.startswith("."):
        return "hidden files"
    if not path.name.lower().endswith(SUFFIXES):
        return "files that are no pictures by their ending"
    if path.is_symlink() and not path.exists():
        return "links to nothing"
    return "" if is_regular(path) else "pipes or devices, no files"


def readable(name: str) -> str:
    r"""A name that can be printed and stored: bytes that are not UTF-8 (an old archive's) become `\xe9`.

    >>> readable(os.fsdecode(b"caf\xe9.png"))
    'caf\\xe9.png'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")
