"""Damaged files, 2,600 of them: each gives the right data or one clear sentence."""

from __future__ import annotations

import gzip
import io
import resource
import struct
import tarfile
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_makers import ROWS, contents, idx, md5, offers, publish, tar_gz

from tolerant.data import downloads, load
from tolerant.data.published.fetch import unpack_labels, unpack_tar
from tolerant.data.published.layouts import read_idx, read_records
from tolerant.data.readers.npz import load_npz, read_npz


def mutated(data: bytes, draw: np.random.Generator) -> bytes:
    """Cut, flip bits, insert, delete, or write a large number; more often near the ends, where
    headers and sums are."""
    changed = bytearray(data)
    for _ in range(int(draw.integers(1, 4))):
        near = int(draw.integers(0, min(len(changed) + 1, 64)))
        place = [near, len(changed) - near, int(draw.integers(0, len(changed) + 1))][int(draw.integers(0, 3))]
        match int(draw.integers(0, 5)):
            case 0:
                del changed[place:]
            case 1:
                for offset in range(place, min(place + 3, len(changed))):
                    changed[offset] ^= 1 << int(draw.integers(0, 8))
            case 2:
                changed[place:place] = draw.bytes(int(draw.integers(1, 20)))
            case 3:
                del changed[place : place + int(draw.integers(1, 20))]
            case 4:
                changed[place : place + 4] = b"\xff\xff\xff\x7f"
    return bytes(changed)


def check(
    count: int,
    seed: int,
    original: bytes,
    path: Path,
    read: Callable[[], Any],
    right: Callable[[Any, bytes], bool],
) -> int:
    """Read `count` mutations of `original`; how many were refused."""
    draw = np.random.default_rng(seed)
    refused = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        data = mutated(original, draw)
        path.write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what a mutation has made of a column
                result = read()
        except ValueError as error:
            refused += 1
            sentence = str(error)
        else:
            assert right(result, data), f"mutation {number} of seed {seed} gave wrong data"
            sentence = "read it"
        assert len(sentence.splitlines()) == 1, sentence
        assert len(sentence) < 700, sentence
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 200
    return refused


def test_binary_records(tmp_path: Path) -> None:
    original = contents("cifar10")["test_batch.bin"][: 3 * 3073]
    path = tmp_path / "x.bin"
    refused = check(
        300, 0, original, path, lambda: read_records(path, 1), lambda rows, data: rows.tobytes() == data
    )  # fmt: skip
    assert 100 < refused < 300


def test_published_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "cifar100")
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for file, content in contents("cifar100").items():
        (folder / file).write_bytes(content)
    right = load("cifar100", split="test", root=tmp_path).inputs
    check(
        300, 1, contents("cifar100")["test.bin"], folder / "test.bin",
        lambda: load("cifar100", split="test", root=tmp_path),
        lambda data, _: np.array_equal(data.inputs, right),
    )  # fmt: skip


def test_idx(tmp_path: Path) -> None:
    array = np.random.default_rng(2).integers(0, 256, (ROWS, 7, 6), np.uint8)
    path = tmp_path / "x.gz"
    check(
        500, 2, gzip.compress(idx(array)), path,
        lambda: read_idx(path)[0], lambda found, _: np.array_equal(found, array),
    )  # fmt: skip


@pytest.mark.parametrize("compressed", [False, True])
def test_npz(compressed: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    stored: dict[str, Any] = {
        "x": draw.integers(0, 256, (ROWS, 5, 4, 3), np.uint8),
        "y": np.arange(ROWS) % 4,
        "ids": np.array([f"row {n}" for n in range(ROWS)]),
    }
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **stored)
    path = tmp_path / "x.npz"

    def right(found: dict[str, np.ndarray], _: bytes) -> bool:
        # A member may lose its name (which has no sum) or drop out; its values are still right.
        return all(any(np.array_equal(array, s) for s in stored.values()) for array in found.values())

    check(350, 4, buffer.getvalue(), path, lambda: read_npz(path), right)
    check(50, 5, buffer.getvalue(), path, lambda: load_npz(path), lambda data, _: len(data) == ROWS)


def test_csv(tmp_path: Path) -> None:
    rows = [f'{n},{n / 7:.3f},"w{n % 3}",{"ab"[n % 2]}' for n in range(ROWS)]
    path = tmp_path / "x.csv"
    check(
        450, 6, "\n".join(["n,f,word,label", *rows]).encode(), path,
        lambda: load(path, min_per_class=1),
        lambda data, _: bool(np.isfinite(data.inputs).all()) and data.num_classes >= 2,
    )  # fmt: skip


def test_archives(tmp_path: Path) -> None:
    inside = {"train.bin": b"a" * 700, "test.bin": bytes(range(256)) * 5}
    sums = {name: md5(body) for name, body in inside.items()}
    download = replace(downloads()["cifar100"], files=sums)
    packed = tar_gz({f"cifar-100-binary/{name}": body for name, body in inside.items()})
    archive, folder = tmp_path / "x.tar.gz", tmp_path / "root" / "folder"
    (tmp_path / "outside").write_text("mine")

    def read() -> dict[str, bytes]:
        for file in folder.glob("*"):
            file.unlink()
        if not archive.read_bytes().startswith(b"\x1f\x8b"):
            archive.write_bytes(gzip.compress(archive.read_bytes(), 1))
        unpack_tar(archive, download, folder)
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    check(250, 7, packed, archive, read, lambda found, _: found == inside)
    # Damage below the gzip layer too, whose own sum would otherwise find most of it.
    check(250, 8, gzip.decompress(packed), archive, read, lambda found, _: found == inside)
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} <= {
        *("outside", "x.tar.gz", "root/folder/train.bin", "root/folder/test.bin")
    }
    assert (tmp_path / "outside").read_text() == "mine"


def test_label_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "cifar100n")
    path, out = tmp_path / "x.pt", tmp_path / "out"
    original = offers("cifar100n")["cifar100n.pt"]
    right = contents("cifar100n")["cifar100n_labels.npz"]

    def read() -> bytes:
        unpack_labels(path, downloads()["cifar100n"], out)
        labels = read_npz(out / "cifar100n_labels.npz")
        return b"".join(labels[key].tobytes() for key in sorted(labels))

    check(200, 9, original, path, read, lambda found, _: found == right)


GIB = 2**30


def lying_npz(path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (100 * GIB,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + b"few bytes")


def zeros_npz(path: Path) -> None:
    """The zip directory claims more than deflate can make of so few bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(100_000))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 3 * GIB)
    path.write_bytes(data)


def lying_idx(path: Path) -> None:
    path.write_bytes(gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 9)))


def lying_tar(path: Path) -> None:
    info = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    info.size = 7 * GIB
    path.write_bytes(gzip.compress(info.tobuf() + b"few bytes"))


def lying_pax(path: Path) -> None:
    """tarfile reads an extended header in one piece of the size it claims."""
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 7 * GIB
    path.write_bytes(gzip.compress(info.tobuf() + b"few bytes"))


def lying_pt(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(40_000_000))


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lying_npz, read_npz),
        (zeros_npz, read_npz),
        (lying_idx, read_idx),
        (lying_tar, lambda path: unpack_tar(path, downloads()["cifar10"], path.parent / "o")),
        (lying_pax, lambda path: unpack_tar(path, downloads()["cifar10"], path.parent / "o")),
        (lying_pt, lambda path: unpack_labels(path, downloads()["cifar10n"], path.parent / "o")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_lying_header_takes_no_memory(
    make: Callable[[Path], None], read: Callable[[Path], Any], tmp_path: Path
) -> None:
    make(tmp_path / "x")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"claims|too large|cannot hold"):
            read(tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "o").exists()
