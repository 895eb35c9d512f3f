"""Which code makes the numbers: its commit, and its source as it lies on the disk."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

import tolerant


@cache
def source() -> str:
    """Git's own digest of the package's folder: `git rev-parse COMMIT:src/tolerant` says it for a commit.

    So a row can be held against the commit it names, wherever it was made, git or not.
    """
    return _tree(_package()).hex()


@cache
def commit() -> str | None:
    """The checkout's commit, `+` after it where the source differs.

    Where there is no git, TOLERANT_COMMIT is believed; as COMMIT:TREE, with the `source` of that commit,
    it is refused unless that is the code that runs.
    """
    try:
        head, tree = _git("rev-parse", "--short=12", "HEAD"), _git("rev-parse", "HEAD:./")
    except (OSError, subprocess.CalledProcessError):  # no git, or only a folder around the package is in it
        told, _, tree = os.environ.get("TOLERANT_COMMIT", "").partition(":")
        if tree and tree != source():
            raise ValueError(
                f"TOLERANT_COMMIT must name the code that runs, of digest {source()}; got {told}:{tree}. "
                "Give $(git rev-parse HEAD):$(git rev-parse HEAD:src/tolerant) of that code."
            ) from None
        return told or None
    return head + ("" if tree == source() else "+")


def _package() -> Path:
    return Path(tolerant.__file__).parent


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_package(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _tree(folder: Path) -> bytes:
    entries: dict[bytes, bytes] = {}
    for path in folder.iterdir():
        name = path.name.encode()
        if path.name == "__pycache__" or (path.is_dir() and not any(path.iterdir())):
            continue
        if path.is_dir():
            entries[name + b"/"] = b"40000 " + name + b"\0" + _tree(path)  # git sorts folders by this name
        else:
            entries[name] = b"100644 " + name + b"\0" + _digest(b"blob", path.read_bytes())
    return _digest(b"tree", b"".join(entries[name] for name in sorted(entries)))


def _digest(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0%s" % (kind, len(content), content), usedforsecurity=False).digest()
