"""Getting a published data set: fetched whole and checked, or not at all."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from tolerant.data.cards import downloads
from tolerant.data.published import unpack
from tolerant.data.published.download import Download, Root, data_root
from tolerant.extras import extra
from tolerant.progress import progress_bar

_CHUNK = 2**18


def download(name: str, root: Root = None, *, retries: int = 2, timeout_s: float = 30) -> Path:
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
        path = _fetch(url, md5, root / "downloads", retries, timeout_s)
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
        unpack.unpack_tar(path, wanted, folder)
    elif path.suffix == ".pt":
        unpack.unpack_labels(path, wanted, folder)
    else:
        unpack.copy(path, folder / path.name)


def _fetch(url: str, md5: str | None, folder: Path, retries: int, timeout_s: float) -> Path:
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
        return Path(keeper.fetch(file_name, downloader=partial(_transfer, timeout_s=timeout_s)))
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


def _transfer(url: str, path: str, keeper: Any, *, timeout_s: float) -> None:
    """pooch's own downloader leaves the connection open if writing fails, and counts chunks, not bytes."""
    # A server may otherwise send a .gz file as compressed text, which would arrive unpacked.
    plain = {"Accept-Encoding": "identity"}
    get = extra("requests").get
    with (
        get(url, stream=True, timeout=timeout_s, headers=plain) as response,
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
