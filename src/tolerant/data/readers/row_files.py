"""Files of rows, CSV, TSV, JSON Lines or Parquet, as pandas frames."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import lzma
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tolerant.data.read_errors import reason
from tolerant.extras import extra
from tolerant.hints import warn_caller

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def check_table(path: Path) -> None:
    """A ValueError for a file whose ending is none of those read here."""
    packed = [f"{text}{end}" for text in SUFFIXES[:3] for end in _UNPACK]
    if not path.name.lower().endswith((*SUFFIXES, *packed)):
        sheet = path.suffix.lower() in (".xlsx", ".xls", ".ods")
        hint = '. Save the sheet as CSV (in Excel "CSV UTF-8")' if sheet else ""
        raise ValueError(
            f"{path}: only folders, .npz, {', '.join(SUFFIXES)}, and .csv.gz and the like are read{hint}"
        )


def read_frame(path: str | os.PathLike[str]) -> Any:
    """The rows of a CSV, TSV, JSON Lines or Parquet file as a pandas DataFrame.

    Text may be packed (.csv.gz, .bz2, .xz). Cells of CSV and TSV stay words here, so that a class called NA
    or 007 keeps its name. The separator is whichever of , ; tab and | the first line has most of.
    """
    pandas = extra("pandas")
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        extra("pyarrow")  # pandas' own message names two engines, but not how to get one
    try:
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path, engine="pyarrow")
            # To others an index with a name is a column of the file, and --id may name it; but no feature.
            index = [name for name in frame.index.names if name is not None and name not in frame.columns]
            frame = frame.reset_index(index) if index else frame
            frame.attrs["index"] = [str(name).strip() for name in index]
        elif (path.with_suffix("") if path.suffix.lower() in _UNPACK else path).suffix.lower() == ".jsonl":
            frame = _read_json_lines(path)
        else:
            frame = _read_separated(path)
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: it has a byte {error.object[error.start]:#04x}. "
            f'Save it as UTF-8 (in Excel "CSV UTF-8"), or: iconv -f WINDOWS-1252 -t UTF-8 {path.name}'
        ) from error
    except Exception as error:  # pandas and pyarrow raise many kinds of their own
        where = _unreadable_column(path) if path.suffix.lower() == ".parquet" else ""
        raise ValueError(f"{path} is not a readable table: {where}{reason(error)}") from error
    frame.columns = _stripped([str(name) for name in frame.columns])
    frame.attrs["path"] = str(path)
    frame.index = range(len(frame))  # messages name rows by it, even where some are left out
    if not len(frame):
        raise ValueError(f"{path} has no rows")
    return frame


def _unreadable_column(path: Path) -> str:
    """The first column of a Parquet file that cannot be read, in words; empty if it is not a single one."""
    try:
        names = extra("pyarrow.parquet").read_schema(path).names
    except Exception:
        return ""
    for name in names:
        try:
            extra("pandas").read_parquet(path, engine="pyarrow", columns=[name])
        except Exception:
            return f"column {name!r}: "
    return ""


def _read_separated(path: Path) -> Any:
    pandas = extra("pandas")
    with _open(path) as start:
        utf16 = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text"
    encoding = "utf-16" if utf16 else "utf-8-sig"
    with _open(path) as file:
        header = codecs.getreader(encoding)(file).readline(2**20)
    separator = max(",;\t|", key=header.count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pandas warns of rows longer than the header
        try:
            frame = pandas.read_csv(
                path, sep=separator, dtype=str, keep_default_na=False, index_col=False, encoding=encoding
            )
        except pandas.errors.ParserWarning as error:
            raise ValueError(
                "its rows have more cells than its first line, which must name every column"
            ) from error
    first = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
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
