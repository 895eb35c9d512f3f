"""What the rows of a table are, as the options or else its columns say: pictures, texts or cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tolerant.data.dataset import Kind
from tolerant.data.readers.walk import SUFFIXES as PICTURES

_FILES = ("file_name", "filename", "image", "img", "path")  # what lists of pictures call their column


def with_label(frame: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the only column of classes as that of labels, if none is called so."""
    classes = frame.attrs.get("classes", ())
    if "label" in options or "label" in frame.columns or len(classes) != 1:
        return options
    return {**options, "label": classes[0]}


def _other_columns(frame: Any, options: Mapping[str, Any]) -> list[str]:
    """Those without a role."""
    roles = {options.get(role) for role in ("label", "true_label", "id", "group")} | {"label"}
    return [column for column in frame.columns if column not in roles]


def picture_column(frame: Any, options: Mapping[str, Any]) -> str | None:
    """The column that holds pictures, or else the one that names their files."""
    stored = frame.attrs.get("pictures", ())
    if len(stored) > 1 and "file" not in options:
        raise ValueError(
            f"{frame.attrs['path']} has pictures in the columns {' and '.join(map(repr, stored))}. Say which "
            "with file=... (--file)"
        )
    if stored:
        return str(stored[0])
    others = _other_columns(frame, options)
    if others == ["file"]:
        return "file"
    # Beside measurements, a file is what these were measured on, unless the column is called file.
    likely = ["file"] if "file" in others else others if len(others) == 1 and others[0] in _FILES else []
    named = [name for name in likely if str(frame[name].iloc[0]).lower().endswith(PICTURES)]
    return named[0] if named else None


def kind_of_rows(frame: Any, options: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """What a table holds, as the options or else its columns say, and the options with that said."""
    if "file" not in options and "text" not in options:
        if _other_columns(frame, options) == ["text"]:
            options = {**options, "text": "text"}
        elif found := picture_column(frame, options):
            options = {**options, "file": found}
    return "image" if "file" in options else "text" if "text" in options else "table", options
