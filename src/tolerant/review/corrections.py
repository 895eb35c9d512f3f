"""The decisions of a reviewer: read from their file, checked against the data and applied to its labels.

The labels that `tolerant noise` writes are read, too: they stand for those of the data, and nobody has
decided them.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.csv_cells import unguard
from tolerant.files import read_json
from tolerant.hints import warn_caller
from tolerant.regular import check_regular
from tolerant.review.noise_labels import AS_GIVEN, as_given, is_noise, read_noise_npz
from tolerant.review.tools import decisions_of, hub_rows

DROP = "drop"
DECISIONS = ("accept", "keep", "change", DROP)


@dataclass(frozen=True)
class Correction:
    """One decision; what has a default is None if a hand-written file leaves it out.

    `new_label` is None for a row to be dropped: it is of none of the classes, or of no use.
    """

    id: str
    new_label: str | None
    given_label: str | None = None
    decision: str | None = None
    row_digest: str | None = None
    """A digest of what the row held when it was reviewed (`tolerant.data.digest.content_digests`)."""


@dataclass(frozen=True)
class CorrectedLabels:
    """The labels after review."""

    given_labels: NDArray[np.int64]
    """[N] with the reviewer's labels put in."""
    reviewed: NDArray[np.bool_]
    """[N] True where a person decided, for the given label or against it."""
    changed: NDArray[np.bool_]
    """[N] True where the label is now another one."""
    dropped: NDArray[np.bool_]
    """[N] True where the row is to be left out of everything; decided by a person, too."""
    original_labels: NDArray[np.int64]
    """[N] that nobody has decided: those of the data, or what `tolerant noise` put in their place."""


def apply_corrections(
    given_labels: ArrayLike,
    corrections: Sequence[Correction],
    *,
    ids: ArrayLike,
    class_names: Sequence[str],
    row_digests: Callable[[Sequence[int]], Sequence[str]] | None = None,
) -> CorrectedLabels:
    """Put reviewed labels into `given_labels`; nothing is applied unless everything fits.

    A ValueError for an id or a label that the data does not have, for an id decided twice, and for a given
    label other than the data's (the file was made for other labels), unless the data already has the new one.

    ``row_digests`` gives the digests of rows as they are now: a ValueError if one is not that of its
    correction, for ids that are row numbers name other rows once one is removed; a warning if corrections
    have none.

    >>> fixed = apply_corrections([0, 1, 1], [Correction("b.png", "cat")],
    ...                           ids=["a.png", "b.png", "c.png"], class_names=("cat", "dog"))
    >>> fixed.given_labels.tolist(), fixed.changed.tolist()
    ([0, 0, 1], [False, True, False])
    """
    labels = np.array(given_labels, dtype=np.int64)
    row_of = {str(row_id): row for row, row_id in enumerate(np.asarray(ids).tolist())}
    if len(row_of) != labels.size:
        raise ValueError(
            f"ids must name each of the {labels.size} rows once; got {len(row_of)} different ids."
        )
    label_of = {str(name): label for label, name in enumerate(class_names)}
    _check_known("id", [c.id for c in corrections], row_of)
    _check_known("label", [c.new_label for c in corrections if c.new_label is not None], label_of)

    if row_digests is not None:
        decided = [c for c in corrections if c.decision != AS_GIVEN]
        _check_content(decided, row_digests([row_of[c.id] for c in decided]))
    before, original = labels.copy(), labels.copy()
    reviewed, dropped, seen = (np.zeros(labels.size, dtype=np.bool_) for _ in range(3))
    for correction in corrections:
        row = row_of[correction.id]
        if seen[row]:
            raise ValueError(f"the id {correction.id!r} occurs twice; leave one decision for each id.")
        found = str(class_names[before[row]])
        if correction.given_label not in (None, found) and correction.new_label != found:
            raise ValueError(
                f"the corrections say that {correction.id!r} was labelled "
                f"{correction.given_label!r}, but the data says {found!r}: "
                "they were made for other labels; review the present ones instead."
            )
        seen[row], reviewed[row] = True, correction.decision != AS_GIVEN
        dropped[row] = correction.new_label is None
        if correction.new_label is not None:
            labels[row] = label_of[correction.new_label]
        if not reviewed[row]:
            original[row] = labels[row]
    return CorrectedLabels(labels, reviewed, labels != before, dropped, original)


def _check_content(corrections: Sequence[Correction], digests: Sequence[str]) -> None:
    """A ValueError unless each is of the row that its id names now."""
    pairs = list(zip(corrections, digests, strict=True))
    moved = [c for c, digest in pairs if c.row_digest not in (None, digest)]
    if moved:
        raise ValueError(
            f"{len(moved)} of {len(pairs)} corrections were made for rows that hold something else now "
            f"(first: {moved[0].id!r}): rows were added, removed, sorted or edited since the review. Put "
            "them back as they were, or review them as they are; row numbers are no lasting ids, a column is "
            "(--id). To apply a decision to an edited row, empty its row_digest in the file."
        )
    unknown = sum(c.row_digest is None for c in corrections)
    if unknown:
        warn_caller(
            f"{unknown} of {len(pairs)} corrections have no row_digest, so nothing shows whether their ids "
            "still name the rows that were reviewed. Pages of this version export it."
        )


def _check_known(what: str, values: Sequence[str], known: Mapping[str, int]) -> None:
    unknown = list(dict.fromkeys(value for value in values if value not in known))
    if unknown:
        shown = ", ".join(repr(value) for value in unknown[:3])
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        article = "an" if what == "id" else "a"
        first = ", ".join(repr(value) for value in list(known)[:3])
        raise ValueError(
            f"the corrections have {article} {what} that the data does not have: {shown}{more}; "
            f"the data's {what}s start with {first}."
        )


def read_corrections(path: str | os.PathLike[str]) -> list[Correction]:
    """Read what the review page exported (`.csv` or `.json`), or a file written by hand.

    The columns (keys in JSON) `id` and `new_label` are needed; `given_label`, `decision`
    (accept, keep, change or drop) and `row_digest` are checked where they are there. A CSV may come back
    from a spreadsheet with `;` or tabs for commas, and the apostrophe that guards a cell from being
    run as a formula is taken off again. Rows without a new label and a decision count as not decided. A row
    that lacks cells, or a quote that is not closed, is an error: the file was cut off.

    A file of `tolerant noise` (`.csv` or `.npz`) is read as the labels that the data has. What Label Studio,
    Argilla and FiftyOne export as JSON, and Parquet with these columns, are decisions, too.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,new_label\\na.png,cat\\nb.png,\\n")
    ...     file.flush()
    ...     read_corrections(file.name)
    [Correction(id='a.png', new_label='cat', given_label=None, decision=None, row_digest=None)]
    """
    path = Path(path)
    check_there(path)
    check_regular(path)
    readers = {".json": _json_rows, ".npz": read_noise_npz, ".parquet": _parquet_rows}
    rows = readers.get(path.suffix.lower(), _csv_rows)(path)
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
    if not corrections:
        warn_caller(f"{path.name} holds no decision: nothing was reviewed in it, or it was cut off")
    return corrections


def check_there(path: str | os.PathLike[str]) -> None:
    """A FileNotFoundError that says where the page's export lies, which a browser puts elsewhere."""
    if not Path(path).exists():
        raise FileNotFoundError(
            f"there is no {path}. What the review page exports lies where the browser saves its downloads: "
            "move it here, or give the path to it there"
        )


def _csv_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    try:  # bytes, so that a carriage return in an id stays; the export has a byte-order mark for Excel
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name} must be UTF-8 text; in a spreadsheet save it as 'CSV UTF-8'."
        ) from error
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[str, Mapping[str, Any]]] = []
    try:
        names = next(lines, [])
        noise = is_noise(names, path)
        for column in () if noise else ("id", "new_label"):
            if names.count(column) != 1:
                raise ValueError(
                    f"{path.name} must have the columns id and new_label, each once; "
                    f"got {', '.join(names) or 'an empty file'}."
                )
        for cells in lines:
            where = f"line {lines.line_num}"
            if len(cells) > len(names) and not any(cells[len(names) :]):
                cells = cells[: len(names)]  # a spreadsheet writes empty ones
            if cells and len(cells) != len(names):
                raise ValueError(
                    f"{path.name}, {where}: {len(cells)} cells where the first line names {len(names)}: "
                    "the file was cut off or its quotes were edited. Export it again from the review page."
                )
            if cells:
                row = dict(zip(names, map(unguard, cells), strict=True))
                rows.append((where, as_given(row["id"], row["given_label"]) if noise else row))
    except csv.Error as error:
        raise ValueError(
            f"{path.name}, line {lines.line_num}: {error}: the file was cut off, or a quote is not closed. "
            "Export it again from the review page."
        ) from error
    if rows and "row_digest" in names and not text.endswith("\n") and not rows[-1][1]["row_digest"]:
        raise ValueError(
            f"{path.name}, {rows[-1][0]}: the row_digest is missing and no line follows: the file was cut "
            "off. Export it again from the review page."
        )
    return rows


def _json_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    content = read_json(path)
    try:
        decided = decisions_of(content)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} is not whole: {error!r}. Export it again.") from error
    if decided is not None:
        return _numbered(decided)
    rows = content.get("corrections") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            f"{path.name} must hold a list of corrections, each with id and new_label; "
            "export it from the review page."
        )
    return _numbered(rows)


def _parquet_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    return _numbered(hub_rows.decisions(path))


def _numbered(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(f"entry {number}", row) for number, row in enumerate(rows, start=1)]


def _parse(row: Mapping[str, Any], where: str) -> Correction | None:
    filled = {name: value for name, value in row.items() if value is not None and value != ""}
    new_label, given, decision = (filled.get(name) for name in ("new_label", "given_label", "decision"))
    row_digest = filled.get("row_digest")
    if new_label is None and decision is None:
        return None
    if "id" not in filled:
        raise ValueError(f"{where}: the id is missing; every decision needs the id of its row.")
    if decision is not None and decision not in (*DECISIONS, AS_GIVEN):
        raise ValueError(f"{where}: decision must be one of {DECISIONS}; got {decision!r}.")
    if decision == DROP and new_label is not None:
        raise ValueError(f"{where}: decision is drop, so new_label must be empty; got {new_label!r}.")
    if decision != DROP and new_label is None:
        raise ValueError(
            f"{where}: decision is {decision}, but new_label is missing. Fill it in, or empty the decision."
        )
    if decision == "keep" and given is not None and str(given) != str(new_label):
        raise ValueError(
            f"{where}: decision is keep, but new_label {new_label!r} is not given_label {given!r}."
        )
    if row_digest is not None and not re.fullmatch("r[0-9a-f]{16}", str(row_digest)):
        raise ValueError(
            f"{where}: row_digest must be the letter r and 16 hexadecimal digits, or empty; got "
            f"{str(row_digest)[:40]!r}. Export the file again from the review page."
        )
    return Correction(
        id=str(filled["id"]),
        new_label=None if new_label is None else str(new_label),
        given_label=None if given is None else str(given),
        decision=decision,
        row_digest=None if row_digest is None else str(row_digest),
    )
