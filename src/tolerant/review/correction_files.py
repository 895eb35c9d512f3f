"""The decisions that the review page exported, or that a person wrote, read from their file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tolerant.csv_cells import unguard
from tolerant.files import read_json
from tolerant.review.corrections import Correction

DECISIONS = ("accept", "keep", "change")


def read_corrections(path: str | os.PathLike[str]) -> list[Correction]:
    """Read what the review page exported (`.csv` or `.json`), or a file written by hand.

    The columns (keys in JSON) `id` and `new_label` are needed; `given_label` and `decision`
    (accept, keep or change) are checked where they are there. A CSV may come back from a
    spreadsheet with `;` or tabs for commas, and the apostrophe that guards a cell from being
    run as a formula is taken off again. Rows without a new label count as not decided.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,new_label\\na.png,cat\\nb.png,\\n")
    ...     file.flush()
    ...     read_corrections(file.name)
    [Correction(id='a.png', new_label='cat', given_label=None, decision=None)]
    """
    path = Path(path)
    rows = _json_rows(path) if path.suffix.lower() == ".json" else _csv_rows(path)
    corrections: list[Correction] = []
    seen: set[str] = set()
    for number, row in rows:
        correction = _parse(row, f"{path.name}, {number}")
        if correction is None:
            continue
        if correction.id in seen:
            raise ValueError(
                f"{path.name}, {number}: the id {correction.id!r} occurs twice; "
                "leave one decision for each id."
            )
        seen.add(correction.id)
        corrections.append(correction)
    return corrections


def _csv_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    try:  # bytes, so that a carriage return in an id stays; the export has a byte-order mark for Excel
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name} must be UTF-8 text; in a spreadsheet save it as 'CSV UTF-8'."
        ) from error
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    for column in ("id", "new_label"):
        if column not in (reader.fieldnames or ()):
            raise ValueError(
                f"{path.name} must have the columns id and new_label; "
                f"got {', '.join(reader.fieldnames or ()) or 'an empty file'}."
            )
    return [
        (
            f"line {reader.line_num}",
            {key: unguard(cell) for key, cell in row.items() if isinstance(cell, str) and key},
        )
        for row in reader
    ]


def _json_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    content = read_json(path)
    rows = content.get("corrections") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            f"{path.name} must hold a list of corrections, each with id and new_label; "
            "export it from the review page."
        )
    return [(f"entry {number}", row) for number, row in enumerate(rows, start=1)]


def _parse(row: Mapping[str, Any], where: str) -> Correction | None:
    filled = {name: value for name, value in row.items() if value is not None and value != ""}
    new_label, given, decision = (filled.get(name) for name in ("new_label", "given_label", "decision"))
    if new_label is None:
        return None
    if "id" not in filled:
        raise ValueError(f"{where}: the id is missing; every decision needs the id of its row.")
    if decision is not None and decision not in DECISIONS:
        raise ValueError(f"{where}: decision must be one of {DECISIONS}; got {decision!r}.")
    if decision == "keep" and given is not None and str(given) != str(new_label):
        raise ValueError(
            f"{where}: decision is keep, but new_label {new_label!r} is not given_label {given!r}."
        )
    return Correction(
        id=str(filled["id"]),
        new_label=str(new_label),
        given_label=None if given is None else str(given),
        decision=decision,
    )
