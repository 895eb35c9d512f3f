"""Rows as pandas frames: from CSV, TSV, JSON Lines and Parquet files, and from data sets of hubs."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import lzma
import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tolerant.data.read_errors import naming_table
from tolerant.data.readers.arrow_files import read_arrow_files
from tolerant.data.readers.hub import PREFIX, hub_files
from tolerant.extras import extra
from tolerant.hints import warn_caller

SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".parquet")
_MOST_OF_HEADER = 2**20  # characters that are looked at for what separates the cells
# A first line that is meant for Excel; programs that fill up rows have separators behind it.
_SAYS_SEPARATOR = re.compile(r'"?sep=([,;\t|])"?\1*\s*', re.IGNORECASE)
_UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def check_table(path: Path) -> None:
    """A ValueError for a file whose ending is none of those read here."""
    packed = [f"{text}{end}" for text in SUFFIXES[:-1] for end in _UNPACK]
    if not path.name.lower().endswith((*SUFFIXES, *packed)):
        sheet = path.suffix.lower() in (".xlsx", ".xls", ".ods")
        hint = '. Save the sheet as CSV (in Excel "CSV UTF-8")' if sheet else ""
        if path.suffix.lower() == ".json":
            hint = ". Write an object on each line (.jsonl); in pandas: to_json(orient='records', lines=True)"
        raise ValueError(
            f"{path}: only folders, .npz, {', '.join(SUFFIXES)}, and .csv.gz and the like are read{hint}"
        )


def read_frame(source: str | os.PathLike[str], *, split: str | None = None, config: str | None = None) -> Any:
    """The rows of a CSV, TSV, JSON Lines or Parquet file, or of a hub's data set, as a pandas DataFrame.

    What Excel writes as "Unicode text" ends in .txt. Text may be packed (.csv.gz, .bz2, .xz). Cells of CSV
    and TSV stay words here, so that a class called NA or 007 keeps its name. The separator is whichever of
    , ; tab and | the first line has most of. ``split`` and ``config`` are of a hub's data set alone.
    """
    extra("pandas")
    name, path = os.fspath(source), Path(source)
    if name.startswith(PREFIX) or path.is_dir():
        frame = read_arrow_files(hub_files(name, split=split, config=config))
    elif path.suffix.lower() == ".parquet":
        frame = read_arrow_files([path])
    else:
        packed = path.suffix.lower() in _UNPACK
        json_lines = (path.with_suffix("") if packed else path).suffix.lower() == ".jsonl"
        with naming_table(path):
            frame = _read_json_lines(path) if json_lines else _read_separated(path)
    frame.columns = _stripped([str(name) for name in frame.columns])
    frame.attrs["path"] = name
    frame.index = range(len(frame))  # messages name rows by it, even where some are left out
    if "separator" in frame.attrs and len(frame.columns) > 1:
        frame = _without_blank(frame)
    if not len(frame):
        raise ValueError(f"{name} has no rows")
    return frame


def _without_blank(frame: Any) -> Any:
    """The rows in which some cell is filled: spreadsheets write lines of separators alone.

    Their ids would be empty, so that no column names each row, and such a row has nothing to learn from.
    """
    blank = frame.index[frame.iloc[:, 0].str.strip() == ""]  # nearly every row is done with here
    if len(blank):
        cells = frame.loc[blank]
        blank = blank[cells.apply(lambda column: column.str.strip() == "").all(axis=1)]
    if not len(blank):
        return frame
    warn_caller(
        f"{frame.attrs['path']}: {len(blank):,} of {len(frame):,} rows are blank and left out (first: row "
        f"{blank[0]}, counted from 0)"
    )
    return frame.drop(index=blank)


def _read_separated(path: Path) -> Any:
    pandas = extra("pandas")
    with _open(path) as start:
        utf16 = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text"
    encoding = "utf-16" if utf16 else "utf-8-sig"
    with _open(path) as file:
        lines = codecs.getreader(encoding)(file)
        header = lines.readline(_MOST_OF_HEADER)
        said = _SAYS_SEPARATOR.fullmatch(header)
        if said:
            header = lines.readline(_MOST_OF_HEADER)
    separator = said[1] if said else max(",;\t|", key=header.count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pandas warns of rows longer than the header
        try:
            frame = pandas.read_csv(
                path,
                sep=separator,
                dtype=str,
                keep_default_na=False,
                index_col=False,
                encoding=encoding,
                skiprows=1 if said else 0,
            )
        except pandas.errors.ParserWarning as error:
            raise ValueError(
                "its rows have more cells than its first line, which must name every column"
            ) from error
    first = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    if not header.endswith(("\n", "\r")):  # cut in a name, which may then look like another
        first = first[:-1]
    twice = [name for name, count in Counter(first).items() if name and count > 1]
    if twice:
        warn_caller(f"{path} has more than one column {twice[0]!r}; the first of them is meant by that name")
    frame.attrs["separator"] = separator  # decides what a comma means in a number
    return frame


def _read_json_lines(path: Path) -> Any:
    rows = []
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    rows.append(json.loads(_whole_characters(line)))
                except json.JSONDecodeError as error:
                    raise ValueError(f"line {number} is not JSON: {error}") from error
                if not isinstance(rows[-1], dict):
                    raise ValueError(f"line {number} is not a JSON object with a name for every cell")
    return extra("pandas").DataFrame(rows)


def _whole_characters(line: bytes) -> bytes | str:
    r"""JSON without lone surrogates, which cutting a text at a length leaves: "\ud83d" becomes U+FFFD.

    pandas refuses them, and no file could hold them.
    """
    if b"\\ud" not in line.lower():
        return line
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _open(path: Path) -> IO[bytes]:
    packed: IO[bytes] = _UNPACK.get(path.suffix.lower(), open)(path, "rb")
    return packed


def _stripped(names: Sequence[str]) -> list[str]:
    """Names without blanks around them; a repeated one gets a number, as in pandas."""
    found: dict[str, None] = {}
    for name in map(str.strip, names):
        own, number = name, 0
        while own in found:
            number += 1
            own = f"{name}.{number}"
        found[own] = None
    return list(found)
