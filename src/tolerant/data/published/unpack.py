"""From a publisher's download to the files that are read here.

What lands where is decided by the table of published files and never by names inside a download:
a member that is a link, a device, too large or called ../../x cannot be written by this code.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickletools
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from tolerant.data.published.download import Download
from tolerant.data.read_errors import READ_ERRORS, reason
from tolerant.files import replacing

# The largest member of a published archive is CIFAR-100's train.bin, 153.7 MB.
MAX_MEMBER_BYTES = 2**28
MAX_MEMBERS = 1000


def copy(path: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    with path.open("rb") as source, replacing(target) as file:
        shutil.copyfileobj(source, file, 2**20)


def unpack_tar(path: Path, download: Download, folder: Path) -> None:
    """Write the files of a download from its .tar.gz to `folder`."""
    wanted = {f"{download.folder}/{file}": file for file in download.files}
    try:
        with _BoundedGzip(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS or member.size > MAX_MEMBER_BYTES:
                    raise ValueError(f"member {member.name!r} is too large, or one too many")
                file = wanted.pop(member.name.removeprefix("./"), None)
                if file is None:
                    continue
                source = archive.extractfile(member) if member.isreg() else None
                if source is None:
                    raise ValueError(f"{member.name!r} is not a plain file")
                _write(source, download.files[file], folder / file)
    except READ_ERRORS as error:
        raise ValueError(f"{path} cannot be unpacked: {reason(error)}") from error
    if wanted:
        raise ValueError(f"{path} has no member {min(wanted)!r}")


def _write(source: IO[bytes], md5: str, target: Path) -> None:
    found = hashlib.md5(usedforsecurity=False)
    with replacing(target) as file:
        while chunk := source.read(2**20):
            found.update(chunk)
            file.write(chunk)
        if found.hexdigest() != md5:
            raise ValueError(f"{target.name} in it is not the published one")


class _BoundedGzip(gzip.GzipFile):
    """tarfile reads some headers in one piece of whatever size they claim; here that size has a limit."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > MAX_MEMBER_BYTES:
            raise ValueError(f"a header claims {size} bytes")
        return super().read(size)


def unpack_labels(path: Path, download: Download, folder: Path) -> None:
    """Human labels from the authors' .pt file, without running the pickle inside it.

    A pickle is a program, but its constants can be listed without running it. The file is a dict
    of label arrays; an array is the constant, or the list of numbers, after its key. What comes
    out is checked against the sum of the labels before it is kept.
    """
    (target,) = (folder / file for file in download.files)
    try:
        labels = dict(_label_arrays(_pickle_of(path)))
    except (*READ_ERRORS, OSError) as error:
        raise ValueError(f"{path} is not the label file its authors publish: {reason(error)}") from error
    download.check(target, b"".join(labels[key].tobytes() for key in sorted(labels)))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **labels)  # type: ignore[arg-type]
    with replacing(target) as file:
        file.write(buffer.getvalue())


def _pickle_of(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        (info,) = (info for info in archive.infolist() if info.filename.endswith("/data.pkl"))
        if info.file_size > 2**24:
            raise ValueError(f"{info.filename} claims {info.file_size} bytes")
        return archive.read(info)


def _label_arrays(pickle: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """(our name, uint8 labels) for every `..._label` key, e.g. random_label1 -> random1."""
    sections: dict[str, list[Any]] = {}
    section: list[Any] = []
    for opcode, constant, _ in pickletools.genops(pickle):
        if isinstance(constant, str) and "_label" in constant and len(constant) < 32:
            section = sections.setdefault(constant.replace("_label", ""), [])
        elif opcode.name.startswith(("BININT", "BINUNICODE", "SHORT_BIN", "BINBYTES")):
            section.append(constant)
    for name, constants in sections.items():
        arrays = [raw for raw in constants if isinstance(raw, str | bytes) and len(raw) >= 100]
        if arrays:
            raw = arrays[0].encode("latin-1") if isinstance(arrays[0], str) else arrays[0]
            yield name, np.frombuffer(raw, "<i8").astype(np.uint8)
        else:
            numbers = [number for number in constants if isinstance(number, int)]
            yield name, np.array(numbers, np.int64).astype(np.uint8)
