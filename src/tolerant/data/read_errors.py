"""What reading a damaged file can raise, and its reason in one short line."""

from __future__ import annotations

import gzip
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# All that the standard library and numpy raise on headers and streams that make no sense. Plain
# OSErrors are not among them: where files are also written, a full disk must stay a full disk.
READ_ERRORS = (
    ValueError, EOFError, KeyError, IndexError, TypeError, SyntaxError, RuntimeError, MemoryError,
    OverflowError, NotImplementedError, struct.error, zlib.error,
    gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


def reason(error: BaseException) -> str:
    """The first line of an error, at most 300 characters of it.

    >>> reason(EOFError())
    'EOFError'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 300 else f"{lines[0][:297]}..."


@contextmanager
def naming_table(path: Path) -> Iterator[None]:
    """A ValueError with the file's name for all that pandas and pyarrow raise, in many kinds of their own."""
    try:
        yield
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: it has a byte {error.object[error.start]:#04x}. "
            f'Save it as UTF-8 (in Excel "CSV UTF-8"), or: '
            f"iconv -f WINDOWS-1252 -t UTF-8 {path.name} > new.csv"
        ) from error
    except Exception as error:
        raise ValueError(f"{path} is not a readable table: {reason(error)}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own, a device's, or that of torch on a processor, which is a RuntimeError like any other.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    True
    """
    words = ("DefaultCPUAllocator", "not enough memory", "CUDA out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
