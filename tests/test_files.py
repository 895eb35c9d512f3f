"""Atomic writes: the old content or the new, never half of either."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import signal
import stat
from pathlib import Path

import pytest
from forked import forked

from tolerant.files import read_json, replacing, write_atomic, write_json


def test_text_is_utf8_and_bytes_are_kept(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.txt", "naïve\n")
    write_atomic(tmp_path / "b", b"\x00\xff")
    assert (tmp_path / "a.txt").read_bytes() == "naïve\n".encode()
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"


def test_half_a_character_is_written_as_its_escape(tmp_path: Path) -> None:
    """A folder may be called by bytes that are no UTF-8; JSON gives its name back."""
    name = os.fsdecode(b"caf\xe9")
    write_json(tmp_path / "a.json", {"source": name})
    assert (tmp_path / "a.json").read_bytes() == b'{\n  "source": "caf\\udce9"\n}\n'
    assert read_json(tmp_path / "a.json") == {"source": name}


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_leads_to_the_new_content(tmp_path: Path, there: bool) -> None:
    (tmp_path / "other").mkdir()
    target, link = tmp_path / "other" / "real.csv", tmp_path / "link.csv"
    if there:
        target.write_text("old")
    link.symlink_to("other/real.csv")
    write_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["link.csv", "other", "real.csv"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """So are devices: as root, `--out /dev/null` would make a file of it for every program."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(pipe, "rows")
        assert os.read(reader, 100) == b"rows"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_atomic(tmp_path / "x" / "y" / "a.txt", "1")
    write_atomic(tmp_path / "x" / "y" / "a.txt", "2")
    assert [p.name for p in (tmp_path / "x" / "y").iterdir()] == ["a.txt"]
    assert (tmp_path / "x" / "y" / "a.txt").read_text() == "2"


def test_content_then_name_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of results points at a file written just before it: after a power cut both are there."""
    synced = []

    def fsync(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "new" / "a").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomic(tmp_path / "new" / "a", "1")
    assert synced == [(False, False), (True, True)]


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", "1")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_the_umask_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the whole process's: files that other threads make meanwhile would be open to everyone."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("umask was set"))
    write_atomic(tmp_path / "a", "1")


def test_a_damaged_source_is_not_blamed_on_the_target(tmp_path: Path) -> None:
    with pytest.raises(gzip.BadGzipFile, match=r"^CRC check failed$"), replacing(tmp_path / "a"):
        raise gzip.BadGzipFile("CRC check failed")


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_an_error_half_way_keeps_the_old_content(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a"
    write_atomic(path, "old")

    def fail_half_way() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a full disk: the kernel refuses the write in the same way."""
    path = tmp_path / "a"
    write_atomic(path, "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*too large; its old content") as caught:
            write_atomic(path, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a" / "full").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match="cannot write"):
        write_atomic(tmp_path / "a", "1")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    with pytest.raises(OSError, match="cannot write"):
        write_atomic(tmp_path / "a" / "b", "1")


def test_a_killed_writer_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, "old")

    def write_half() -> None:
        with replacing(path) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(write_half).returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_json_round_trip(tmp_path: Path) -> None:
    value = {"name": "é", "list": [1, 2.5, None, True]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[1,]", b"[" * 200_000])
def test_bad_json_names_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.json is not a valid JSON file"):
        read_json(tmp_path / "bad.json")


def test_nan_is_not_json(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert read_json(tmp_path / "a.json") == 1
