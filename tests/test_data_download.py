"""Downloads, for real: from a server on this machine, whole or not at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import resource
import signal
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import data_makers
import numpy as np
import pytest
from data_makers import Server, contents, cut, offers, publish, serving

from tolerant.data import CARDS, Download, data_root, download, downloads, load
from tolerant.data.published import fetch

# Data set -> its array of given labels.
HUMAN_LABELS = {f"cifar10n-{key}": key for key in ("aggre", "random1", "random2", "random3", "worse")}
HUMAN_LABELS |= {"cifar100n": "noisy", "cifar100n-coarse": "noisy_coarse"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    with serving() as server:
        for name in downloads():
            publish(monkeypatch, name, server.url)
            for file, content in offers(name).items():
                server.paths[f"/{name}/{file}"] = content
        yield server


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", [card.name for card in CARDS.values() if card.downloads])
def test_download_then_load(name: str, server: Server, tmp_path: Path) -> None:
    card, expected = CARDS[name], []
    for needed in card.downloads:
        folder = download(needed.name, tmp_path)
        expected += [f"{folder.name}/{file}" for file in contents(needed.name)]
    assert left(tmp_path) == sorted(expected)
    train, test = (load(name, root=tmp_path, split=split) for split in ("train", "test"))
    for rows in (train, test):
        assert (rows.inputs.shape[1:], rows.class_names) == (card.shape, card.class_names)
    if name == "cifar10":
        records = np.frombuffer(contents(name)["data_batch_3.bin"], np.uint8).reshape(-1, 3073)
        assert np.array_equal(train.inputs[41], records[1, 1:].reshape(3, 32, 32).transpose(1, 2, 0))
        assert train.given_labels[41] == records[1, 0]
    key = HUMAN_LABELS.get(name)
    assert card.by_people == (key is not None)
    if key is not None:
        assert np.array_equal(train.given_labels, data_makers.human_labels(card.downloads[1].name)[key])
        assert train.flipped.mean() > 0.8, "the small labels are drawn at random"
    assert not test.flipped.any()


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    download("fashion-mnist", tmp_path)
    (tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    server.requests.clear()
    download("fashion-mnist", tmp_path)
    download("fashion-mnist", tmp_path)
    assert server.requests == ["/fashion-mnist/t10k-labels-idx1-ubyte.gz"]


def test_two_processes_get_the_same_set(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is first clears the download away, which the other one has just unpacked, too."""
    place = fetch._place

    def place_as_another_does(path: Path, wanted: Download, folder: Path) -> None:
        place(path, wanted, folder)
        path.unlink()

    monkeypatch.setattr(fetch, "_place", place_as_another_does)
    download("cifar10", tmp_path)
    assert not downloads()["cifar10"].missing(tmp_path)


def test_wrong_checksum(server: Server, tmp_path: Path) -> None:
    server.paths["/cifar10/cifar10-binary.tar.gz"] = offers("cifar100")["cifar100-binary.tar.gz"]
    with pytest.raises(ValueError, match=r"tar\.gz is not what its publisher put there"):
        download("cifar10", tmp_path, retries=0)
    assert left(tmp_path) == []


@pytest.mark.parametrize("answer", [cut, 404, 503], ids=["cut", "404", "503"])
@pytest.mark.parametrize("name", ["cifar100", "fashion-mnist", "cifar10n"])
def test_failed_transfer_then_again(name: str, answer: Any, server: Server, tmp_path: Path) -> None:
    path = next(path for path in server.paths if path.startswith(f"/{name}/"))
    whole, server.paths[path] = server.paths[path], answer
    reason = "the connection failed" if answer is cut else f"the server answers {answer}"
    with pytest.raises(ConnectionError, match=f"cannot download .*{reason}.*run the same command"):
        download(name, tmp_path, retries=0)
    assert left(tmp_path) == []
    assert downloads()[name].missing(tmp_path)
    server.paths[path] = whole
    download(name, tmp_path)
    assert not downloads()[name].missing(tmp_path)


def test_a_label_file_that_is_none_is_fetched_again(server: Server, tmp_path: Path) -> None:
    """Its publisher states no md5, so only unpacking shows what it is."""
    path = next(path for path in server.paths if path.startswith("/cifar10n/"))
    whole, server.paths[path] = server.paths[path], b"<html>busy, try later</html>"
    with pytest.raises(ValueError, match="is not the label file its authors publish"):
        download("cifar10n", tmp_path)
    assert left(tmp_path) == []
    server.paths[path] = whole
    download("cifar10n", tmp_path)
    assert not downloads()["cifar10n"].missing(tmp_path)


def test_a_cut_connection_is_tried_again(server: Server, tmp_path: Path) -> None:
    path = "/cifar10/cifar10-binary.tar.gz"
    whole = server.paths[path]
    server.paths[path] = lambda handler: cut(handler) if len(server.requests) < 3 else whole
    download("cifar10", tmp_path, retries=2)
    assert server.requests == [path] * 3
    assert len(load("cifar10", root=tmp_path)) == 5 * data_makers.ROWS


def test_a_body_that_ends_early_without_a_length(server: Server, tmp_path: Path) -> None:
    def end_early(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(offers("cifar10")["cifar10-binary.tar.gz"][:1000])

    server.paths["/cifar10/cifar10-binary.tar.gz"] = end_early
    with pytest.raises(ValueError, match="is not what its publisher put there"):
        download("cifar10", tmp_path, retries=0)
    assert left(tmp_path) == []


def test_nobody_listens(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "cifar10", "http://127.0.0.1:9")
    with pytest.raises(ConnectionError, match=r"the connection failed \(ConnectionError\)"):
        download("cifar10", tmp_path, retries=0)


def test_interrupted_by_a_key(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(self: Any, done: int, total: int | None = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tolerant.progress.Bar.update", press)
        with pytest.raises(KeyboardInterrupt):
            download("cifar10", tmp_path)
    assert left(tmp_path) == []
    download("cifar10", tmp_path)


def test_killed_half_way(server: Server, tmp_path: Path) -> None:
    """What a killed process leaves behind is never taken for the data set."""
    whole = server.paths["/cifar10/cifar10-binary.tar.gz"]
    killed = threading.Event()

    def stall(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(whole)))
        handler.end_headers()
        handler.wfile.write(whole[:-5])
        handler.wfile.flush()
        killed.wait(timeout=60)

    server.paths["/cifar10/cifar10-binary.tar.gz"] = stall
    worker = multiprocessing.get_context("fork").Process(target=download, args=("cifar10", tmp_path))
    worker.start()
    while worker.is_alive() and not any(p.stat().st_size for p in tmp_path.rglob("tmp*")):
        time.sleep(0.01)
    worker.kill()
    worker.join()
    killed.set()
    assert left(tmp_path), "the test is about what is left"
    assert downloads()["cifar10"].missing(tmp_path)
    with pytest.raises(FileNotFoundError, match="tolerant download cifar10"):
        load("cifar10", root=tmp_path)
    server.paths["/cifar10/cifar10-binary.tar.gz"] = whole
    download("cifar10", tmp_path)
    assert len(load("cifar10", root=tmp_path)) == 5 * data_makers.ROWS


@pytest.fixture
def disk_of() -> Iterator[Callable[[int], None]]:
    """RLIMIT_FSIZE stands for a full disk: the kernel refuses the write in the same way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda num_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_disk_full_while_downloading(server: Server, tmp_path: Path, disk_of: Callable[[int], None]) -> None:
    disk_of(100_000)
    with pytest.raises(OSError, match=r"cannot save http.*run the same command again") as caught:
        download("cifar10", tmp_path, retries=0)
    assert caught.value.errno == errno.EFBIG
    assert left(tmp_path) == []


def test_disk_full_while_unpacking(
    server: Server,
    tmp_path: Path,
    disk_of: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = data_makers.tar_gz(
        {f"cifar-10-batches-bin/{file}": bytes(300_000) for file in contents("cifar10")}
    )
    published = downloads()["cifar10"]
    url = next(iter(published.remotes))
    monkeypatch.setitem(published.remotes, url, data_makers.md5(packed))  # type: ignore[misc]
    server.paths["/cifar10/cifar10-binary.tar.gz"] = packed
    disk_of(100_000)
    with pytest.raises(OSError, match=r"cannot write .*data_batch_1\.bin.*nothing was written"):
        download("cifar10", tmp_path, retries=0)
    assert downloads()["cifar10"].missing(tmp_path)
    assert not any("batch" in file for file in left(tmp_path))


@pytest.mark.parametrize("root", ["/proc/tolerant", "file"])
def test_a_folder_that_cannot_be_written(root: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError):
        download("cifar10", tmp_path / root, retries=0)


def plain(name: str, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


WANTED = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.mark.parametrize(
    "member",
    [
        plain("../evil"),
        plain("/tmp/tolerant-evil"),
        plain("cifar-10-batches-bin/../../evil"),
        link(WANTED, tarfile.SYMTYPE, "/etc/passwd"),
        link(WANTED, tarfile.LNKTYPE, "../../outside"),
        link(WANTED, tarfile.CHRTYPE, ""),
        link(WANTED, tarfile.DIRTYPE, ""),
        link(WANTED, tarfile.FIFOTYPE, ""),
        link("cifar-10-batches-bin", tarfile.SYMTYPE, "../outside-folder"),
    ],
    ids=lambda member: f"{member.name} {member.type!r}",
)
def test_archives_write_only_what_the_table_names(member: tarfile.TarInfo, tmp_path: Path) -> None:
    from tolerant.data.published.fetch import unpack_tar

    (tmp_path / "outside").write_text("mine")
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(member)
        tar.addfile(plain("cifar-10-batches-bin/extra"))
    folder = tmp_path / "root" / "cifar-10-batches-bin"
    with pytest.raises(ValueError, match=r"x\.tar\.gz (cannot be unpacked|has no member)"):
        unpack_tar(archive, downloads()["cifar10"], folder)
    assert left(tmp_path) == ["outside", "x.tar.gz"]
    assert not Path("/tmp/tolerant-evil").exists()
    assert (tmp_path / "outside").read_text() == "mine"


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_in_a_label_file_is_not_run(tmp_path: Path) -> None:
    from tolerant.data.published.fetch import unpack_labels

    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        data = {"clean_label": list(range(9)), "worse_label": Attack(tmp_path / "run")}
        archive.writestr("archive/data.pkl", pickle.dumps(data, protocol=2))
    with pytest.raises(ValueError, match=r"cifar10n_labels\.npz is damaged"):
        unpack_labels(tmp_path / "x.pt", downloads()["cifar10n"], tmp_path / "out")
    assert left(tmp_path) == ["x.pt"]
    assert not (tmp_path / "run").exists()


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"name must be one of .*; got 'mnist'"):
        download("mnist", tmp_path)


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLERANT_DATA", str(tmp_path / "env"))
    assert data_root() == tmp_path / "env"
    assert data_root(tmp_path) == tmp_path
    monkeypatch.setenv("TOLERANT_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "tolerant" / "data"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a container: platformdirs and pathlib raise RuntimeErrors, which showed as tracebacks."""
    import platformdirs

    from tolerant.cli.doctor import doctor

    def user_cache_dir(name: str) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("TOLERANT_DATA", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", user_cache_dir)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for root in (None, "~/data"):
        with pytest.raises(ValueError, match="this user has no home folder"):
            data_root(root)
    doctor()
    assert "no known folder (no folder for the data" in capsys.readouterr().out


def test_the_doctor_where_the_system_does_not_tell_its_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tolerant.cli.doctor import doctor

    monkeypatch.delattr(os, "sysconf")
    doctor()
    assert f"{os.cpu_count()} cores; torch uses" in capsys.readouterr().out


def test_the_commands(server: Server, tmp_path: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from tolerant.cli import doctor, download

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(doctor.doctor)
    app.command()(download.download)
    call = CliRunner().invoke
    before = call(app, ["doctor", "--root", str(tmp_path / "data")])
    assert before.exit_code == 0
    assert "(does not exist yet)" in before.output
    for name in downloads():
        assert f"tolerant download {name} --root {tmp_path / 'data'}" in before.output
    assert "torch" in before.output
    assert "cores" in before.output
    done = call(app, ["download", "all", "--root", str(tmp_path / "data")])
    assert done.exit_code == 0, done.output
    assert "Fashion-MNIST is in" in done.output
    after = call(app, ["doctor", "--root", str(tmp_path / "data")])
    assert "missing: tolerant download" not in after.output
    assert f"found in {tmp_path / 'data' / 'cifar-n'}" in after.output
    (tmp_path / "data" / "cifar-100-binary" / "test.bin").unlink()
    partly = call(app, ["doctor", "--root", str(tmp_path / "data")])
    assert "test.bin missing: tolerant download cifar100" in partly.output
    server.paths.clear()
    failed = call(app, ["download", "cifar100", "--root", str(tmp_path / "data")])
    assert isinstance(failed.exception, ConnectionError)  # `main` turns it into one line
    assert "cannot download" in str(failed.exception)
