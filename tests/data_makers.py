"""Small files in the layouts the publishers use, and a server on this machine that offers them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tolerant.data import CARDS, Download, downloads

ROWS = 20


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def cifar_records(num_classes: tuple[int, ...], rows: int = ROWS, seed: int = 0) -> bytes:
    draw = np.random.default_rng(seed)
    labels = [draw.integers(0, high, (rows, 1)) for high in num_classes]
    pixels = draw.integers(0, 256, (rows, 3072))
    return np.concatenate([*labels, pixels], axis=1).astype(np.uint8).tobytes()


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def tar_gz(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), compresslevel=1, mtime=0)


def human_labels(name: str) -> dict[str, np.ndarray]:
    """Labels for the small CIFAR files below, by the names of the NPZ file."""
    draw = np.random.default_rng(5)
    if name == "cifar10n":
        clean = np.concatenate(
            [np.frombuffer(cifar_records((10,), seed=i), np.uint8)[::3073] for i in range(1, 6)]
        )
        keys = ("aggre", "random1", "random2", "random3", "worse")
        return {"clean": clean} | {key: draw.integers(0, 10, len(clean), np.uint8) for key in keys}
    records = np.frombuffer(cifar_records((20, 100), rows=300), np.uint8).reshape(-1, 3074)
    return {
        "clean": records[:, 1].copy(),
        "clean_coarse": records[:, 0].copy(),
        "noisy": draw.integers(0, 100, len(records), np.uint8),
        "noisy_coarse": draw.integers(0, 20, len(records), np.uint8),
    }


def human_labels_pt(name: str) -> bytes:
    """The authors' layout: int64 arrays, and plain lists for the coarse labels."""
    import torch  # the only use, and slow to import for the process that is killed

    buffer = io.BytesIO()
    torch.save(
        {
            _pt_key(key): labels.tolist() if "coarse" in key else labels.astype(np.int64)
            for key, labels in human_labels(name).items()
        },
        buffer,
    )
    return buffer.getvalue()


def _pt_key(key: str) -> str:
    return f"random_label{key[-1]}" if key.startswith("random") else f"{key}_label"


@cache
def contents(name: str) -> dict[str, bytes]:
    """File name -> content, as it lies in the data folder."""
    return {file: _content(name, file) for file in downloads()[name].files}


def _content(name: str, file: str) -> bytes:
    """By the layout that the name of a file tells: a new data set of a known layout needs nothing here."""
    draw = np.random.default_rng(1)
    if file.endswith("images-idx3-ubyte.gz"):
        return idx(draw.integers(0, 256, (ROWS, 28, 28), np.uint8))
    if file.endswith("labels-idx1-ubyte.gz"):
        return idx(draw.integers(0, 10, ROWS, np.uint8))
    if file.endswith("_labels.npz"):
        labels = human_labels(name)
        return b"".join(labels[key].tobytes() for key in sorted(labels))
    if name == "cifar100":
        return cifar_records((20, 100), rows=300 if file == "train.bin" else ROWS)
    number = file.removesuffix(".bin")[-1]
    return cifar_records((10,), seed=int(number) if number.isdigit() else 0)


@cache
def offers(name: str) -> dict[str, bytes]:
    """File name -> what the publisher offers under it."""
    remotes = [url.rpartition("/")[2] for url in downloads()[name].remotes]
    if remotes[0].endswith(".tar.gz"):
        folder = downloads()[name].folder
        members = {f"{folder}/{file}": content for file, content in contents(name).items()}
        members = {f"{folder}/readme.html": b"x" * 99} | members
        return {f"{name}-binary.tar.gz": tar_gz(members)}
    if remotes[0].endswith(".pt"):
        return {f"{name}.pt": human_labels_pt(name)}
    return {file: gzip.compress(content, mtime=0) for file, content in contents(name).items()}


class Server:
    """What lies at each path: bytes, a status, or a function that answers the request itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: dict[str, Any] = {}
        self.requests: list[str] = []


@contextmanager
def serving(otherwise: Any = 404) -> Iterator[Server]:
    """``otherwise``: the answer at all paths that the server is not told of."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            server.requests.append(self.path)
            answer = server.paths.get(self.path, otherwise)
            if callable(answer):
                answer = answer(self)
            if isinstance(answer, int):
                self.send_error(answer)
            elif isinstance(answer, bytes):
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def cut(handler: Any) -> None:
    """Announce the file, send half of it, hang up."""
    whole = offers_at(handler.path)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(whole)))
    handler.end_headers()
    handler.wfile.write(whole[: len(whole) // 2])
    handler.close_connection = True


def offers_at(path: str) -> bytes:
    name, _, file = path.strip("/").partition("/")
    return offers(name)[file]


def publish(monkeypatch: pytest.MonkeyPatch, name: str, url: str = "http://127.0.0.1:1") -> None:
    """Let `name` be the small files above, offered at `url`/`name`/."""
    small = replace(
        downloads()[name],
        files={file: md5(content) for file, content in contents(name).items()},
        remotes={
            f"{url}/{name}/{file}": None if file.endswith(".pt") else md5(content)
            for file, content in offers(name).items()
        },
    )
    put_in_cards(monkeypatch, small)


def put_in_cards(monkeypatch: pytest.MonkeyPatch, download: Download) -> None:
    """Let every card that needs the download of this name need this one."""
    for card in list(CARDS.values()):
        needed = tuple(download if known.name == download.name else known for known in card.downloads)
        monkeypatch.setitem(CARDS, card.name, replace(card, downloads=needed))


def write_tiny_vit(folder: Path) -> None:
    """A vision transformer of 16 numbers a picture, as a hub serves it."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=32,
        patch_size=16,
    )
    transformers.ViTModel(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32},
                    "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2})
    )  # fmt: skip
