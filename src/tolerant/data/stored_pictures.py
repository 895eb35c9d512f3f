"""Pictures in the cells of a column, as hubs serve them: each stands where a picture file would."""

from __future__ import annotations

import io
import itertools
import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tolerant.data.read_errors import naming_table
from tolerant.extras import extra
from tolerant.regular import check_regular

_ROWS_AT_ONCE = 100  # of photographs, which may have megabytes each


class PictureColumn:
    """A column of encoded pictures in an Arrow or Parquet file, opened when the first of them is wanted.

    Cells are bytes, or a struct with the fields bytes and path. They are read through a memory map. It
    pickles as its address, so that a worker elsewhere opens the file itself.
    """

    def __init__(self, file: Path, name: str, num_rows: int) -> None:
        self.file, self.name, self.num_rows = file, name, num_rows
        self._lock = Lock()
        self._chunks: list[Any] = []
        self._starts = np.zeros(0, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return PictureColumn, (self.file, self.name, self.num_rows)

    def cell(self, row: int) -> tuple[Any, str | None]:
        """(buffer of bytes or None, path or None)."""
        with self._lock:  # pictures are decoded in threads
            if not self._chunks:
                self._open()
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        value = self._chunks[chunk][row - int(self._starts[chunk])]
        if not value.is_valid:
            return None, None
        if not extra("pyarrow").types.is_struct(value.type):
            return value.as_buffer(), None
        names = [field.name for field in value.type]
        content = value["bytes"] if "bytes" in names else None
        path = value["path"].as_py() if "path" in names else None
        return (content.as_buffer() if content is not None and content.is_valid else None), path

    def _open(self) -> None:
        with naming_table(self.file):
            table = (spooled if self.file.suffix.lower() == ".parquet" else mapped)(self.file, self.name)
            if len(table) != self.num_rows:
                raise ValueError(f"{len(table):,} of {self.num_rows:,} rows are there")
        chunks = [chunk for chunk in table.column(self.name).chunks if len(chunk)]
        self._starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])[:-1]
        self._chunks = chunks


class EmptyCell(ValueError):
    """There is no picture in the cell."""


@dataclass(frozen=True, slots=True)
class StoredPicture:
    """One cell of a `PictureColumn`."""

    column: PictureColumn
    row: int

    @property
    def name(self) -> str | None:
        """What the file was called from which the cell was made, if it says."""
        return self.column.cell(self.row)[1]

    def content(self) -> bytes:
        """The picture as it is encoded."""
        content, path = self.column.cell(self.row)
        if content is not None:
            return bytes(content)
        if not path:
            raise EmptyCell("an empty cell")
        file = self.column.file.parent / path
        check_regular(file)  # or a pipe would be waited for
        return file.read_bytes()

    def __str__(self) -> str:
        return f"{self.column.file}, column {self.column.name!r}, row {self.row}"


def to_open(place: Any) -> Any:
    """What Pillow opens: a path as it is, or the content of a cell."""
    return io.BytesIO(place.content()) if isinstance(place, StoredPicture) else place


def mapped(file: Path, *columns: str) -> Any:
    """A file of Arrow's stream format, as `datasets` writes it, as a table that is not in memory."""
    arrow = extra("pyarrow")
    table = arrow.ipc.open_stream(arrow.memory_map(str(file))).read_all()
    table = table.select(columns) if columns else table
    table.validate(full=True)  # or places beyond the end of a damaged file would be read
    return table


def spooled(file: Path, *columns: str) -> Any:
    """Columns of a Parquet file, copied into a nameless file on the disk that is read by row.

    In a Parquet file one row is found only by unpacking the thousands around it.
    """
    arrow, parquet = extra("pyarrow"), extra("pyarrow.parquet")
    with parquet.ParquetFile(file) as source, tempfile.TemporaryFile() as spool:
        batches = source.iter_batches(_ROWS_AT_ONCE, columns=list(columns))
        first = next(batches, None)
        if first is None:
            raise ValueError("it has no rows")
        with arrow.ipc.new_stream(spool, first.schema) as writer:
            for batch in itertools.chain([first], batches):
                writer.write_batch(batch)
        spool.flush()
        view = mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ)  # keeps the file when it has no name
    return arrow.ipc.open_stream(arrow.py_buffer(view)).read_all()
