"""Getting a published data set: fetched whole, checked and unpacked, or not at all.

What lands where is decided by the table of published files and never by names inside a download:
a member that is a link, a device, too large or called ../../x cannot be written by this code.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import pickletools
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from tolerant.data.published.local_files import Download, Root, data_root
from tolerant.data.published_sets import downloads
from tolerant.data.read_errors import READ_ERRORS, reason
from tolerant.extras import extra
from tolerant.files import replacing
from tolerant.progress import progress_bar

_CHUNK = 2**18
_TIMEOUT_S = 30
# The largest member of a published archive is CIFAR-100's train.bin, 153.7 MB.
MAX_MEMBER_BYTES = 2**28
MAX_MEMBERS = 1000


def download(name: str, root: Root = None, *, retries: int = 2) -> Path:
    """Get what is missing of a published data set; returns its folder.

    Every file arrives under a temporary name, is checked against its published sum and only then
    takes its place. So an interrupted download leaves the data set missing, never half there, and
    the same call again gets the rest.
    """
    known = downloads()
    if name not in known:
        raise ValueError(f"name must be one of {sorted(known)}; got {name!r}")
    wanted, root = known[name], data_root(root)
    folder = root / wanted.folder
    for url, md5 in wanted.remotes.items():
        if not wanted.missing(root):
            break
        file_name = PurePosixPath(url).name
        if file_name in wanted.files and (folder / file_name).is_file():
            continue
        path = _fetch(url, md5, root / "downloads", retries)
        try:
            _place(path, wanted, folder)
        except ValueError:  # damaged, and no md5 told so before: if kept, it would be used the next time
            path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)  # another process may have got the same set first
    missing = wanted.missing(root)
    if missing:
        raise ValueError(f"the download of {wanted.title} did not contain {missing[0].name}")
    return folder


def _place(path: Path, wanted: Download, folder: Path) -> None:
    if path.name.endswith(".tar.gz"):
        unpack_tar(path, wanted, folder)
    elif path.suffix == ".pt":
        unpack_labels(path, wanted, folder)
    else:
        with path.open("rb") as source, replacing(folder / path.name) as file:
            shutil.copyfileobj(source, file, 2**20)


def _fetch(url: str, md5: str | None, folder: Path, retries: int) -> Path:
    pooch, requests = extra("pooch"), extra("requests")
    pooch.get_logger().setLevel(logging.WARNING)  # the progress bar says it already
    file_name = PurePosixPath(url).name
    keeper = pooch.create(
        path=folder,
        base_url="",
        registry={file_name: f"md5:{md5}" if md5 else None},
        urls={file_name: url},
        retry_if_failed=retries,
    )
    again = "Nothing of it was kept; run the same command again"
    try:
        return Path(keeper.fetch(file_name, downloader=_transfer))
    except requests.RequestException as error:
        raise ConnectionError(f"cannot download {url}: {_reason(error)}. {again}") from error
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot save {url} in {folder}: {error.strerror or error}. {again}"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{url} is not what its publisher put there: its md5 is not {md5}. {again}, or get "
            "the file by other means and unpack it below the data folder"
        ) from error


def _transfer(url: str, path: str, keeper: Any) -> None:
    """pooch's own downloader leaves the connection open if writing fails, and counts chunks, not bytes."""
    # A server may otherwise send a .gz file as compressed text, which would arrive unpacked.
    plain = {"Accept-Encoding": "identity"}
    get = extra("requests").get
    with (
        get(url, stream=True, timeout=_TIMEOUT_S, headers=plain) as response,
        open(path, "wb") as file,
        progress_bar(f"download {PurePosixPath(url).name}", unit="byte") as bar,
    ):
        response.raise_for_status()
        total = int(response.headers.get("Content-Length", 0)) or None
        for chunk in response.iter_content(_CHUNK):
            file.write(chunk)
            bar.update(file.tell(), total)


def _reason(error: Any) -> str:
    if error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    return f"the connection failed ({type(error).__name__})"


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
