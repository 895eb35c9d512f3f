"""Parquet and Arrow files as frames: pictures stay on the disk, and numbers of classes become their names."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tolerant.checks import check_class_names, check_words
from tolerant.data.read_errors import naming_table, reason
from tolerant.data.readers.walk import SUFFIXES as PICTURES
from tolerant.data.stored_pictures import PictureColumn, StoredPicture, mapped
from tolerant.extras import extra
from tolerant.regular import check_regular

_LOOKED_AT = 8  # cells, to see whether a column of bytes holds pictures


def read_arrow_files(files: Sequence[Path]) -> Any:
    """The rows of one file or of several with the same columns, as a pandas DataFrame.

    A column of pictures has a `StoredPicture` in each cell. ``attrs`` say more: "pictures" and "classes" are
    the columns of pictures and those whose class names the file has; "index", those that are pandas' index.
    """
    extra("pyarrow")  # pandas' own message names two engines, but not how to get one
    frames = [_read(file) for file in files]
    first = frames[0]
    for file, frame in zip(files, frames, strict=True):
        for name in {*first.columns} ^ {*frame.columns}:
            has, lacks = (files[0], file) if name in first.columns else (file, files[0])
            raise ValueError(f"{lacks} has no column {name!r}, and {has} has. Read one of them alone.")
    attrs = dict(first.attrs)
    frame = first if len(frames) == 1 else extra("pandas").concat(frames, ignore_index=True)
    frame.attrs = attrs
    return frame


def _read(file: Path) -> Any:
    check_regular(file)
    with naming_table(file):
        opened = _Parquet(file) if file.suffix.lower() == ".parquet" else _Arrow(file)
        features = _features(opened.schema)
        pictures = [
            field.name for field in opened.schema if _holds_pictures(field, features.get(field.name), opened)
        ]
        others = [name for name in opened.schema.names if name not in pictures]
        frame = _frame(opened, others if pictures else None)
    index = [name for name in frame.index.names if name is not None and name not in frame.columns]
    # To others an index with a name is a column of the file, and --id may name it; but no feature.
    frame = frame.reset_index(index) if index else frame
    for name in pictures:
        column = PictureColumn(file, name, opened.num_rows)
        cells = [StoredPicture(column, row) for row in range(opened.num_rows)]
        frame[name] = extra("pandas").Series(cells, frame.index, dtype=object)
    classes = [
        name
        for name, feature in features.items()
        if feature.get("_type") == "ClassLabel" and feature.get("names") and name in frame.columns
    ]
    for name in classes:
        frame[name] = _class_words(frame[name], features[name]["names"], file)
    frame.attrs = {
        "index": [str(name).strip() for name in index],
        "pictures": [name.strip() for name in pictures],
        "classes": [name.strip() for name in classes],
    }
    return frame


class _Parquet:
    """A Parquet file of which only what is asked for is read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with extra("pyarrow.parquet").ParquetFile(file) as opened:
            self.schema, self.num_rows = opened.schema_arrow, opened.metadata.num_rows

    def frame(self, columns: list[str] | None) -> Any:
        return extra("pandas").read_parquet(self._file, engine="pyarrow", columns=columns)

    def first_cells(self, name: str) -> list[Any]:
        with extra("pyarrow.parquet").ParquetFile(self._file) as opened:
            batch = next(opened.iter_batches(_LOOKED_AT, columns=[name]), None)
            return [] if batch is None else batch.column(0).to_pylist()


class _Arrow:
    """A file of Arrow's stream format, through a memory map."""

    def __init__(self, file: Path) -> None:
        self._table = mapped(file)
        self.schema, self.num_rows = self._table.schema, self._table.num_rows

    def frame(self, columns: list[str] | None) -> Any:
        return (self._table if columns is None else self._table.select(columns)).to_pandas()

    def first_cells(self, name: str) -> list[Any]:
        cells: list[Any] = self._table.column(name).slice(0, _LOOKED_AT).to_pylist()
        return cells


def _frame(file: _Parquet | _Arrow, columns: list[str] | None) -> Any:
    """The columns (None: all); an error names the first that cannot be read, if it is a single one."""
    if columns == []:  # of which older pandas makes a frame without rows
        return extra("pandas").DataFrame(index=range(file.num_rows))
    try:
        return file.frame(columns)
    except Exception as error:  # pandas and pyarrow raise many kinds of their own
        for name in columns or file.schema.names:
            try:
                file.frame([name])
            except Exception:
                raise ValueError(f"column {name!r}: {reason(error)}") from error
        raise


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """What the hub's library says of each column, by name."""
    try:
        said = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in said.items() if isinstance(feature, dict)}
    except (KeyError, TypeError, ValueError, AttributeError):  # none, or somebody else's
        return {}


def _holds_pictures(field: Any, feature: Any, file: _Parquet | _Arrow) -> bool:
    types = extra("pyarrow").types
    if types.is_struct(field.type):
        inside = {part.name: part.type for part in field.type}
        if not {"bytes", "path"} & inside.keys():
            return False
    elif not (types.is_binary(field.type) or types.is_large_binary(field.type)):
        return False
    if feature is not None and feature.get("_type") == "Image":
        return True
    return any(_is_picture(cell) for cell in file.first_cells(field.name))


def _is_picture(cell: Any) -> bool:
    content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)
    if content is None:
        return str(path or "").lower().endswith(PICTURES)
    try:
        extra("PIL.Image").open(io.BytesIO(content)).close()
    except Exception:  # a decoder may raise anything on what is no picture
        return False
    return True


def _class_words(column: Any, names: Any, file: Path) -> Any:
    """The names for the numbers of a column; -1, which hubs write for an unknown label, is missing."""
    try:
        words = check_class_names(check_words(names, "names"), len(names))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: the classes of column {column.name!r}: {error}") from error
    numbers = extra("pandas").to_numeric(column, errors="coerce").fillna(-1)
    wrong = numbers[(numbers < -1) | (numbers >= len(words)) | (numbers % 1 != 0)]
    if len(wrong):
        raise ValueError(
            f"{file}: column {column.name!r} has the class {wrong.iloc[0]} in row {wrong.index[0]}, and "
            f"names for the classes 0 to {len(words) - 1}. Correct the number, or the file's names."
        )
    return numbers.astype(int).map(dict(enumerate(words))).astype(object)
