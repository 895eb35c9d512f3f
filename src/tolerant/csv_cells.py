"""CSV cells that a spreadsheet will not run, and that read back as they were."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from tolerant.files import write_atomic

# What Excel, LibreOffice and Google Sheets take for the start of a formula, their full-width forms
# included. The page's export.js has the same three patterns; a test compares what they do.
_FORMULA = re.compile(r"[\s\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")

_NEEDS_QUOTES = re.compile(r'[",;\t\r\n]|^\s|\s$')


def guard(text: str) -> str:
    """`text` with a leading apostrophe if a spreadsheet could take it for a formula.

    Plain numbers stay as they are. A text that starts with an apostrophe gets one more, so
    that :func:`unguard` gives back exactly what went in.

    >>> guard("=HYPERLINK(1)"), guard("-3.5"), guard("img_01.png")
    ("'=HYPERLINK(1)", '-3.5', 'img_01.png')
    """
    return f"'{text}" if _needs_guard(text) else text


def unguard(cell: str) -> str:
    """The text that :func:`guard` was given; a cell that nobody has guarded stays as it is.

    >>> unguard("'=HYPERLINK(1)"), unguard("'tis"), unguard(guard("'quoted'"))
    ('=HYPERLINK(1)', "'tis", "'quoted'")
    """
    return cell[1:] if cell.startswith("'") and _needs_guard(cell[1:]) else cell


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A CSV file as text, every cell guarded, and quoted where any common reader needs it.

    Not by csv.writer: with lines that end in a plain newline it leaves a carriage return in a cell
    bare (Python 3.11), which ends the row for every reader.
    """
    lines = [header, *([_quote(guard(cell)) for cell in row] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def write_csv(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The file, whole or not at all; with the mark without which Excel spoils "für", where there is one."""
    text = csv_text(header, rows)
    write_atomic(path, text if text.isascii() else f"\ufeff{text}")


def _quote(cell: str) -> str:
    if not _NEEDS_QUOTES.search(cell):
        return cell
    escaped = cell.replace('"', '""')
    return f'"{escaped}"'


def _needs_guard(text: str) -> bool:
    return text.startswith("'") or bool(_FORMULA.match(text) and not _NUMBER.fullmatch(text))
