"""A run folder and those who write to it: one at a time, whoever was killed before."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import forked
from own_data_helpers import RUN_FILES, tolerant, write_table

from tolerant import cli
from tolerant.data import Source
from tolerant.locks import FileLock
from tolerant.own_data import Settings
from tolerant.own_data.run_folder import load_run, remove_checkpoints, using
from tolerant.own_data.train_source import train_source
from tolerant.train.engine.checkpoint import Checkpoints


def _train(data: Path, run: Path, seed: int = 0) -> None:
    rows = Source(str(data), {"id": "key"})
    train_source(rows, run, Settings(epochs=2, seed=seed), folds=0, device="cpu")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two seeds, and their rows."""
    folder = tmp_path_factory.mktemp("two")
    write_table(folder / "rows.csv", num_rows=60)
    for seed in (0, 1):
        _train(folder / "rows.csv", folder / f"run{seed}", seed)
    return folder


def _with_its_rows(two: Path, folder: Path) -> Path:
    shutil.copy(two / "rows.csv", folder)
    return Path(shutil.copytree(two / "run0", folder / "run"))


def test_a_second_training_is_refused_before_it_reads_anything(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with using(run):
        ended = forked(lambda: tolerant("train", tmp_path / "not there.csv", "--out", run))
        refused = f"{run} is in use: process {os.getpid()} on "
        assert refused in ended.stderr
        assert "not there" not in ended.stderr.partition("ValueError")[2]
        with pytest.raises(ValueError, match=f"is in use: process {os.getpid()} on .* another folder: --out"):
            tolerant("train", tmp_path / "not there.csv", "--out", run)
        with pytest.raises(ValueError, match=f"is not finished: process {os.getpid()} on .* trains there"):
            load_run(run)
    assert not run.exists(), "nothing was written"
    with pytest.raises(FileNotFoundError, match="not there"):
        tolerant("train", tmp_path / "not there.csv", "--out", run)
    assert not run.exists()


def test_a_list_is_not_written_into_a_training(two: Path, tmp_path: Path) -> None:
    run = _with_its_rows(two, tmp_path)
    (run / "suspects.csv").write_text("old")
    with using(run), pytest.raises(ValueError, match="is in use"):
        tolerant("audit", run)
    assert (run / "suspects.csv").read_text() == "old"
    tolerant("audit", run)
    assert {path.name for path in run.iterdir()} == RUN_FILES


def test_checkpoints_in_use_are_not_removed(tmp_path: Path) -> None:
    """As of a training whose version knew no lock of the whole folder."""
    folders = [tmp_path / "checkpoints" / (digit * 16) / "fold-1" for digit in "ab"]
    live, dead = (Checkpoints(folder, {}) for folder in folders)
    dead.close()
    ended = forked(lambda: remove_checkpoints(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert [folder.exists() for folder in folders] == [True, False]
    live.close()
    remove_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "audit.safetensors", "spec.json"])
@pytest.mark.parametrize("command", ["predict", "audit"])
def test_files_of_two_runs_are_not_taken_for_one(two: Path, tmp_path: Path, name: str, command: str) -> None:
    run = shutil.copytree(two / "run0", tmp_path / "run")
    shutil.copy(two / "run1" / name, run / name)
    new_rows = [two / "rows.csv", "--out", tmp_path / "labels.csv"] if command == "predict" else []
    with pytest.raises(ValueError, match=r"is of another training than spec.json .* files of two"):
        tolerant(command, run, *new_rows)
    assert not (tmp_path / "labels.csv").exists()


class _Killed(BaseException):
    """What no code expects."""


def _kill_at(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, nth: int) -> None:
    calls, real = [0], getattr(place, name)

    def killed(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth:
            raise _Killed
        return real(*arguments, **named)

    monkeypatch.setattr(place, name, killed)


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_kill_while_a_run_is_set_aside_does_not_split_it(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    from tolerant.own_data.run_folder import in_use

    run = shutil.copytree(two / "run0", tmp_path / "run")
    (run / "model.classifiers").write_bytes(b"")
    place = in_use.Path if nth < 7 else Path
    _kill_at(monkeypatch, place, "replace" if nth < 7 else "rename", nth if nth < 7 else 1)
    with pytest.raises(_Killed):
        in_use.set_aside(run, "another")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="holds a training that was stopped"):
        load_run(run)
    with pytest.warns(UserWarning, match="earlier-1 now"):
        in_use.set_aside(run, "another")
    assert {path.name for path in run.iterdir()} == {"earlier-1"}
    assert {path.name for path in (run / "earlier-1").iterdir()} == RUN_FILES | {"model.classifiers"}
    (run / "earlier-1" / "model.classifiers").unlink()
    load_run(run / "earlier-1")


def test_a_kill_while_checkpoints_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command was refused: of a checkpoint, the file that names the others was left."""
    write_table(tmp_path / "rows.csv", num_rows=60)
    run, checkpoints = tmp_path / "run", tmp_path / "run" / "checkpoints"

    def rmtree(folder: Path, **options: Any) -> None:
        next(folder.rglob("state-*")).unlink()
        raise _Killed

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(_Killed):
        _train(tmp_path / "rows.csv", run)
    monkeypatch.undo()
    assert [path.suffix for path in checkpoints.iterdir()] == [".gone"]
    whole = (run / "model.safetensors").read_bytes()
    _train(tmp_path / "rows.csv", run)
    assert (run / "model.safetensors").read_bytes() == whole
    assert {path.name for path in run.iterdir()} == RUN_FILES


def test_what_a_kill_has_left_goes_with_the_next_call(two: Path, tmp_path: Path) -> None:
    run = _with_its_rows(two, tmp_path)
    fingerprint = load_run(run).spec["fingerprint"]
    left = [
        run / ".model.safetensors.0a1b2c3d",
        run / "checkpoints" / f"{'0' * 16}.gone" / "all-rows" / "checkpoint.json",
        run / "checkpoints" / fingerprint / "all-rows" / "checkpoint.json",
    ]
    before = (run / "spec.json").stat().st_mtime
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, (before, before - 1))
    mine = run / "checkpoints" / ("1" * 16) / "all-rows" / "checkpoint.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("")  # of a training with other settings, which was stopped
    tolerant("audit", run)
    assert {path.name for path in run.iterdir()} == RUN_FILES | {"checkpoints"}
    assert [path for path in (run / "checkpoints").rglob("*") if path.is_file()] == [mine]
    again = run / "checkpoints" / fingerprint / "all-rows" / "checkpoint.json"
    again.parent.mkdir(parents=True)
    again.write_text("")  # newer than the run: the same training, begun anew and stopped
    tolerant("audit", run)
    assert again.exists()


def test_a_sample_is_set_aside_with_its_run(two: Path, tmp_path: Path) -> None:
    run = _with_its_rows(two, tmp_path)
    tolerant("audit", run, "--sample", "5")
    with pytest.warns(UserWarning, match="earlier-1 now"):
        _train(tmp_path / "rows.csv", run, seed=1)
    assert {path.name for path in run.iterdir()} == RUN_FILES | {"earlier-1"}
    assert (run / "earlier-1" / "sample.html").exists()


def test_what_is_read_is_not_written_over(two: Path, tmp_path: Path) -> None:
    """`predict` and `noise` replaced the data; a table rows.csv in the run folder was taken for the run's."""
    run = _with_its_rows(two, tmp_path)
    data, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    link.symlink_to(data)
    before = {path: path.read_bytes() for path in (data, *run.iterdir())}
    commands: list[tuple[Any, ...]] = [
        ("train", data, "--out", tmp_path),
        ("predict", run, data, "--out", data),
        ("predict", run, data, "--out", link),
        ("predict", run, data, "--out", run / "spec.json"),
        ("noise", data, "--rate", "0.2", "--out", data),
    ]
    for command in commands:
        with pytest.raises(ValueError, match="would be written over what is read"):
            tolerant(*command)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["suspects.csv", "report.html", "sample.html", ".tolerant.lock"])
def test_a_link_in_a_run_of_others_leads_nothing_elsewhere(two: Path, tmp_path: Path, name: str) -> None:
    run = _with_its_rows(two, tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(mine)
    predictions = tmp_path / "p.csv"
    tolerant("predict", run, tmp_path / "rows.csv", "--out", predictions)
    for command in (["audit", run], ["audit", run, "--sample", "5"]):
        with pytest.raises((ValueError, OSError), match=f"{name} is a link"):
            tolerant(*command)
    assert mine.read_text() == "mine"


def test_a_lock_that_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opened the file before it was removed must not think that he has the lock."""
    path, real = tmp_path / ".lock", fcntl.lockf
    lock, removals = FileLock(path, leaves_file=False), [1]

    def lockf(handle: int, operation: int) -> None:
        if removals:
            removals.pop()
            path.unlink()
        real(handle, operation)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    for _ in range(2):
        assert lock.acquire()
        assert path.exists()
        lock.release()
        assert not path.exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_command_ended_by_a_signal_saves_and_says_so_by_its_code(
    two: Path, tmp_path: Path, number: int, code: int
) -> None:
    run, saved = tmp_path / "run", [0]
    command = ["train", str(two / "rows.csv"), "--id", "key", "--epochs", "9", "--folds", "0"]

    def main() -> None:
        save = Checkpoints.save

        def save_and_end(*arguments: Any) -> None:
            save(*arguments)
            saved[0] += 1
            if saved[0] == 3:
                signal.raise_signal(number)

        Checkpoints.save = save_and_end  # type: ignore[method-assign]
        # What started the tests may ignore it, as nohup does.
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        sys.argv = ["tolerant", *command, "--out", str(run)]
        cli.main()

    ended = forked(main)
    assert ended.returncode == code, ended.stderr
    assert f"stopped; the same command resumes from {run / 'checkpoints'}" in ended.stderr
    (record,) = (json.loads(path.read_text()) for path in run.rglob("checkpoint.json"))
    assert record["epoch"] == 3
    assert {path.name for path in run.iterdir()} == {"checkpoints"}, "nobody is at it any more"
    for out in (run, tmp_path / "whole"):
        tolerant(*command, "--out", out)
    assert load_run(run).spec == load_run(tmp_path / "whole").spec
