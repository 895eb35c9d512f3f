"""Hugging Face `datasets`: the suspects as one Parquet file, with a column for the label that they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tolerant.data.read_errors import reason
from tolerant.extras import extra
from tolerant.review.tools.suspect_rows import SuspectRows

_WORDS = ("id", "row_digest", "given_label", "suggested_label", "new_label")
_NUMBERS = ("confidence", "doubt")


def write(folder: Path, suspects: SuspectRows) -> str:
    """`suspects.parquet`, as `datasets.load_dataset("parquet", ...)` and the hub's viewer read it."""
    datasets = extra("datasets", install="datasets")
    rows = [{**row, "new_label": None} for row in suspects.rows()]
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in (*_WORDS, *_NUMBERS)}
    kinds = {name: datasets.Value("string" if name in _WORDS else "float64") for name in columns}
    if suspects.kind == "image":
        files = suspects.files
        columns["image"] = (
            [{"bytes": picture, "path": None} for picture in suspects.encoded_pictures()]
            if files is None
            else files
        )
        kinds["image"] = datasets.Image()
    else:
        columns["text"], kinds["text"] = suspects.texts(), datasets.Value("string")
    path = folder / "suspects.parquet"
    made = datasets.Dataset.from_dict(columns, datasets.Features(kinds))
    part = path.with_suffix(".part")
    made.to_parquet(str(part))
    part.replace(path)
    return (
        f'In Python: rows = datasets.load_dataset("parquet", data_files="{path}")["train"]. Fill the column '
        'new_label; for --labels: rows.to_parquet("reviewed.parquet").'
    )


def decisions(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file, which must have the columns id and new_label."""
    parquet = extra("pyarrow.parquet")
    try:
        names = parquet.read_schema(path).names
        wanted = [
            name for name in ("id", "given_label", "decision", "row_digest", "new_label") if name in names
        ]
        rows: list[dict[str, Any]] = parquet.read_table(path, columns=wanted).to_pylist()
    except extra("pyarrow").ArrowException as error:
        raise ValueError(f"{path.name} cannot be read: {reason(error)}. Export it again.") from error
    if not {"id", "new_label"} <= set(wanted):
        raise ValueError(f"{path.name} must have the columns id and new_label; got {', '.join(names)}.")
    return rows
