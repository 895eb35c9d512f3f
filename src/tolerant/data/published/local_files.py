"""Where the files of a published data set lie, and whether they are what was published."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tolerant.extras import extra

Root = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Download:
    """One download: the files it leaves in the data folder and the addresses they come from.

    Args:
        name: as in `tolerant download NAME`.
        title: for people.
        folder: below the data folder.
        files: name -> md5 of the content (for a .gz file, of what is in it, since packing it again changes
            the file; for label arrays, of the arrays). Checked at every load, so that runs start from the
            same bytes everywhere. The sums agree with those in public code.
        remotes: address -> md5 of what lies there, as its publisher states it; None where the publisher
            states none, and `files` decides.
        size_mb: what is transferred.
        licence: as its publisher states it.
    """

    name: str
    title: str
    folder: str
    files: Mapping[str, str]
    remotes: Mapping[str, str | None]
    size_mb: int
    licence: str

    def missing(self, root: Root = None) -> list[Path]:
        """The files that are not in the data folder."""
        folder = data_root(root) / self.folder
        return [folder / file for file in self.files if not (folder / file).is_file()]

    def find(self, file: str, root: Root = None) -> Path:
        """Where one of the files lies, or how to get it."""
        missing = self.missing(root)
        if missing:
            raise FileNotFoundError(
                f"{self.title} is not in {data_root(root)} ({missing[0].name} is missing): "
                f"`tolerant download {self.name}` gets it ({self.size_mb} MB), "
                "or set TOLERANT_DATA to the folder that has it"
            )
        return data_root(root) / self.folder / file

    def check(self, path: Path, content: Any) -> None:
        """A ValueError unless `content`, read from `path`, is what was published."""
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != self.files[path.name]:
            raise ValueError(
                f"{path} is damaged: its content has md5 {found}, the published one "
                f"{self.files[path.name]}. Delete it and run `tolerant download {self.name}`"
            )


def data_root(root: Root = None) -> Path:
    """The data folder: `root`, or TOLERANT_DATA, or the platform's cache."""
    if root is None:
        root = os.environ.get("TOLERANT_DATA") or None
    try:
        if root is None:
            root = Path(extra("platformdirs").user_cache_dir("tolerant")) / "data"
        return Path(root).expanduser()
    except RuntimeError as error:  # a user without a name, in a container
        raise ValueError(
            "no folder for the data: this user has no home folder. Set TOLERANT_DATA to one, or pass "
            "root=... (--root)"
        ) from error
