"""Features that were computed once, kept in the platform's cache and found again by what the row holds.

Each extractor has a folder with two files that only grow: `rows.bin`, a row's vectors as float16, and
`keys.bin`, the digest of what the row holds and a checksum of its vectors. A row is written before its key,
so a kill at any moment leaves at most rows without a key, which the next writer overwrites. A row whose
checksum is wrong, in a file that was cut or damaged, counts as missing and is computed again. Nothing is
unpickled. Rows are read through a memory map whose pages are given back: a million of them need no memory.
"""

from __future__ import annotations

import mmap
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.features.extractor import Identity
from tolerant.extras import extra
from tolerant.files import make_folder, read_json, write_json
from tolerant.locks import FileLock

_KEY = np.dtype([("digest", "<i8"), ("checksum", "<u4")])
_ROW = np.dtype("<f2")
_LARGEST = float(np.finfo(_ROW).max)
_DEFAULT_GIB = 20.0
_BLOCK = 1024  # rows in memory at a time


def cache_root() -> Path:
    """Where features are kept: TOLERANT_CACHE, or the platform's cache."""
    given = os.environ.get("TOLERANT_CACHE")
    try:
        if given:
            return Path(given).expanduser()
        return Path(extra("platformdirs").user_cache_dir("tolerant")) / "features"
    except RuntimeError as error:  # a user without a name, in a container
        raise ValueError(
            "no folder for features: this user has no home folder. Set TOLERANT_CACHE to one"
        ) from error


def cache_limit() -> int:
    """Bytes that the cache may take: TOLERANT_CACHE_GIB, 20 GiB by default."""
    word = os.environ.get("TOLERANT_CACHE_GIB") or str(_DEFAULT_GIB)
    try:
        gib = float(word)
    except ValueError:
        gib = -1.0
    if not 0 <= gib < 2**33:  # all bytes that 63 bits count
        raise ValueError(f"TOLERANT_CACHE_GIB must be a number of GiB, such as 20; got {word!r}")
    return int(gib * 2**30)


@dataclass(frozen=True)
class Stored:
    """What the cache holds of one extractor."""

    folder: Path
    identity: Identity
    num_rows: int
    num_bytes: int
    used: float
    """When features were last taken from it or added, in seconds since 1970."""


def stored() -> list[Stored]:
    """All that is cached, the last used first; folders that are not ours are passed over."""
    found = []
    root = cache_root()
    for about in root.glob("*/about.json") if root.is_dir() else ():
        try:
            identity = Identity.from_dict(read_json(about))
            files = [path.stat().st_size for path in about.parent.iterdir() if path.is_file()]
            keys = about.parent / "keys.bin"
            num_rows = keys.stat().st_size // _KEY.itemsize if keys.exists() else 0
            found.append(Stored(about.parent, identity, num_rows, sum(files), about.stat().st_mtime))
        except (ValueError, OSError):  # another process is removing it, or it is not ours
            continue
    return sorted(found, key=lambda entry: -entry.used)


def clear(name: str | None = None) -> int:
    """Remove what is cached, or only that of the extractor ``name``; returns the bytes freed."""
    entries = [entry for entry in stored() if name is None or entry.identity.name == name]
    if name is not None and not entries:
        known = ", ".join(sorted({entry.identity.name for entry in stored()})) or "nothing"
        raise ValueError(f"the cache has no features of {name!r}; it has {known}")
    for entry in entries:
        shutil.rmtree(entry.folder, ignore_errors=True)
    return sum(entry.num_bytes for entry in entries)


class StoredRows:
    """float16 [rows, views, dim] of a file, read when indexed.

    The pages that a reading leaves in memory are given back after it. They would stay until another process
    needs them: a gigabyte after one look at 100,000 pictures.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        if not shape[0]:  # there may be no file, and none of no length can be mapped
            self._map, self._rows = None, np.empty(shape, _ROW)
            return
        count = shape[0] * shape[1] * shape[2]
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), count * _ROW.itemsize, access=mmap.ACCESS_READ)
        self._rows = np.frombuffer(self._map, _ROW, count).reshape(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        found = np.array(self._rows[index])
        if self._map is not None and hasattr(self._map, "madvise"):  # not on Windows
            self._map.madvise(mmap.MADV_DONTNEED)
        return found


class FeatureCache:
    """The features of one extractor, ``views`` vectors of ``dim`` numbers a row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = FeatureCache(Path(folder), Identity("mine", "1", "ab", ""), views=1, dim=2)
    ...     cache.append(np.array([7]), np.array([[[0.5, 1.0]]]))
    ...     cache.find(np.array([7, 8])).tolist()
    [0, -1]
    """

    def __init__(self, root: Path, identity: Identity, *, views: int, dim: int) -> None:
        self.folder, self.identity = root / f"{identity.key}-{views}x{dim}", identity
        self.views, self.dim = views, dim
        make_folder(self.folder)
        about = self.folder / "about.json"
        if about.exists():
            os.utime(about)
        else:
            write_json(about, identity.to_dict())

    @property
    def row_bytes(self) -> int:
        return self.views * self.dim * _ROW.itemsize

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside, no other process changes the files."""
        self.folder.mkdir(parents=True, exist_ok=True)  # another process may have cleared the cache
        with FileLock(self.folder / "lock", required=False):
            yield

    def find(self, digests: np.ndarray) -> np.ndarray:
        """int64 [N]: where the rows with these digests are, -1 for those that are missing or damaged."""
        keys = self._keys()
        # The last of equal digests counts: one that was damaged has been computed again behind it.
        known, last = np.unique(keys["digest"][::-1], return_index=True)
        places = np.full(len(digests), -1, np.int64)
        if not len(known):
            return places
        at = np.minimum(np.searchsorted(known, digests), len(known) - 1)
        there = known[at] == digests
        places[there] = len(keys) - 1 - last[at[there]]
        wanted, which = np.unique(places[there], return_inverse=True)
        rows = self.rows()
        whole = np.empty(len(wanted), np.bool_)
        for start in range(0, len(wanted), _BLOCK):
            part = slice(start, start + _BLOCK)
            found = [zlib.crc32(row) for row in rows[wanted[part]]]
            whole[part] = found == keys["checksum"][wanted[part]]
        places[there] = np.where(whole[which], places[there], -1)
        return places

    def rows(self) -> StoredRows:
        """All that are stored."""
        return StoredRows(self.folder / "rows.bin", (self._num_rows(), self.views, self.dim))

    def append(self, digests: np.ndarray, vectors: np.ndarray) -> None:
        """Add rows, [n, views, dim]."""
        rows = np.clip(vectors, -_LARGEST, _LARGEST).astype(_ROW).reshape(len(digests), self.views, self.dim)
        keys = np.empty(len(rows), _KEY)
        keys["digest"], keys["checksum"] = digests, [zlib.crc32(row) for row in rows]
        with self.locked():
            end = self._num_rows()
            for name, data, size in (("rows", rows, self.row_bytes), ("keys", keys, _KEY.itemsize)):
                self._write(self.folder / f"{name}.bin", end * size, data.tobytes())

    def _write(self, path: Path, end: int, data: bytes) -> None:
        """Behind the whole rows; what a kill left behind them goes."""
        try:
            with open(path, "r+b" if path.exists() else "w+b") as file:
                file.truncate(end)
                file.seek(end)
                file.write(data)
        except OSError as error:
            raise type(error)(
                error.errno,
                f"cannot keep features in {path}: {error.strerror or error}. Make room, or set "
                "TOLERANT_CACHE to a folder on a larger disk; what was computed before is kept",
            ) from error

    def make_room(self, num_rows: int, needed: np.ndarray) -> None:
        """For so many more rows, within the limit: other extractors' features go, the longest unused first.

        If this extractor's alone are too many, all but the rows ``needed`` go too.
        """
        limit = cache_limit() - num_rows * (self.row_bytes + _KEY.itemsize)
        total = {
            entry.folder: entry.num_bytes for entry in stored() if entry.folder.parent == self.folder.parent
        }
        for entry in reversed(stored()):
            if sum(total.values()) <= limit:
                return
            if entry.folder != self.folder and entry.folder in total:
                shutil.rmtree(entry.folder, ignore_errors=True)
                del total[entry.folder]
        if sum(total.values()) > limit:
            self._keep_only(needed)

    def _keep_only(self, digests: np.ndarray) -> None:
        with self.locked():
            places = np.unique(self.find(digests))
            places = places[places >= 0]
            rows, keys = self.rows(), self._keys()[places]  # of the old file, which lives as long as its map
            for name in ("keys", "rows"):  # a kill in between leaves none rather than wrong ones
                (self.folder / f"{name}.bin").unlink(missing_ok=True)
            for start in range(0, len(places), _BLOCK):
                part = rows[places[start : start + _BLOCK]]
                self._write(self.folder / "rows.bin", start * self.row_bytes, part.tobytes())
            self._write(self.folder / "keys.bin", 0, keys.tobytes())

    def _num_rows(self) -> int:
        """Rows that are there with their keys: a file that was cut has fewer than the other."""
        sizes = ((self.folder / "rows.bin", self.row_bytes), (self.folder / "keys.bin", _KEY.itemsize))
        return min(path.stat().st_size // size if path.exists() else 0 for path, size in sizes)

    def _keys(self) -> np.ndarray:
        num_rows = self._num_rows()
        if not num_rows:
            return np.empty(0, _KEY)
        return np.fromfile(self.folder / "keys.bin", _KEY, num_rows)
