"""Grids of real runs on the digits: repeatable, past failures, and safe from kill -9."""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from tolerant.cli.reproduce import reproduce
from tolerant.data import CARDS, Card, load
from tolerant.experiment import (
    RunSpec,
    Store,
    changed,
    code_version,
    named_grid,
    one_run,
    part,
    run,
    shared_epochs,
    with_needs,
)
from tolerant.experiment import row as row_module
from tolerant.experiment.engines import local
from tolerant.experiment.engines.local import Runner
from tolerant.experiment.engines.processes import run_in_processes
from tolerant.experiment.one_run import Outcome, Reservation
from tolerant.experiment.row import by_rule
from tolerant.experiment.spec import rows_by_key
from tolerant.experiment.time_left import GridProgress
from tolerant.experiment.training_data import TrainingData, training_data
from tolerant.locks import FileLock
from tolerant.train import Fleet, Job

VOLATILE = ("time_s", "device_s", "peak_mem_mib", "finished", "hardware", "commit", "started_from")


def lasting(row: dict[str, Any]) -> dict[str, Any]:
    """What must come out the same when a run is repeated."""
    return {name: value for name, value in row.items() if name not in VOLATILE}


def tiny(*methods: str, seeds: int = 1, epochs: int = 3) -> list[RunSpec]:
    specs = part(named_grid("digits", range(seeds)), method=methods, noise_rate=[0.4])
    return [changed(spec, {"epochs": epochs}) for spec in specs]


def test_a_removed_row_is_reproduced(tmp_path: Path) -> None:
    folders = {"results": tmp_path / "results", "checkpoints": tmp_path / "runs"}
    specs = tiny("lq", "forward-estimated")
    first = run(specs, **folders, fleet=2)
    assert (first.done, first.failed) == (3, [])  # the CCE run it needs, too
    path = tmp_path / "results" / "digits.jsonl"
    store = Store(tmp_path / "results")
    histories = {row["key"]: store.history(row) for row in store.rows()}
    for key in [spec.key for spec in specs]:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if json.loads(line)["key"] != key))
        (tmp_path / "results" / "history" / f"{key}.json").unlink()
    again = run(specs, **folders)
    assert again.done == 2
    assert [lasting(row) for row in again.rows] == [{**lasting(row), "side_by_side": 1} for row in first.rows]
    assert {row["key"]: store.history(row) for row in store.rows()} == histories
    assert not list((tmp_path / "runs").iterdir())
    left = tmp_path / "runs" / specs[0].key  # by a kill between row and removal
    left.mkdir()
    (left / "state-00003-0000000.safetensors").write_bytes(b"")
    assert run(specs, **folders).done == 0
    assert not left.exists()


def test_threads_change_no_number(tmp_path: Path) -> None:
    """A worker of Ray has one, this process as many as there are cores: both train with one, and say so."""
    before, rows = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            folder = tmp_path / str(threads)
            (row,) = run(tiny("lq"), results=folder, checkpoints=folder / "runs", device="cpu").rows
            rows.append((lasting(row), Store(folder).history(row)))
            assert row["hardware"].endswith(", 1 thread(s)")
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert rows[0] == rows[1]


def test_the_estimated_matrix_is_recorded_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    make_job = local.make_job

    def spy(*values: Any) -> Any:
        job = make_job(*values)
        used.append((job.name, job.transition))
        return job

    monkeypatch.setattr(local, "make_job", spy)
    (spec,) = tiny("forward-estimated")
    report = run([spec], results=tmp_path, checkpoints=tmp_path / "runs")
    assert spec.needs is not None
    (row,) = report.rows
    assert row["result"]["transition_from"] == spec.needs.key
    store = Store(tmp_path)
    (needed,) = [row for row in store.rows() if row["key"] == spec.needs.key]
    matrix = np.array(store.history(needed)["estimated_transition_e5"]) / 1e5
    assert matrix.shape == (10, 10)
    assert [name for name, _ in used] == [spec.needs.title(), spec.title()]
    assert used[0][1] is None
    np.testing.assert_allclose(used[1][1], matrix, atol=1e-4)
    np.testing.assert_allclose(used[1][1].sum(axis=1), 1)


def test_a_run_that_prunes_goes_on_from_the_checkpoint_of_the_one_that_does_not(tmp_path: Path) -> None:
    """Until the first pruning they are one run: the same row and history as trained on its own."""
    lq, pruned = tiny("lq", "truncated-lq", epochs=24)
    assert pruned.prune is not None
    assert pruned.prune.start_epoch == 12  # checkpoints are made every other
    epochs: list[tuple[str, int]] = []

    def do(folder: str, *specs: RunSpec) -> tuple[dict[str, Any], dict[str, Any]]:
        epochs.clear()
        where = {"results": tmp_path / folder, "checkpoints": tmp_path / folder / "runs"}
        run(specs, **where, fleet=2, on_epoch=lambda spec, epoch: epochs.append((spec.key, epoch)))
        assert not list((tmp_path / folder / "runs").iterdir())
        store = Store(tmp_path / folder)
        row = rows_by_key(store.rows())[pruned.key]
        return row, store.history(row)

    alone, history = do("alone", pruned)
    row, same = do("both", pruned, lq)
    assert row["started_from"] == {"key": lq.key, "epoch": 12, "source": code_version.source()}
    assert (lasting(row), same) == (lasting(alone), history)
    assert epochs == [*((lq.key, n + 1) for n in range(24)), *((pruned.key, n + 1) for n in range(12, 24))]


def test_runs_wait_for_each_other_only_where_that_spares_much() -> None:
    """Table 1 prunes from a third of the epochs on, table 2 from a tenth on."""
    table1, table2 = named_grid("table1"), named_grid("table2")
    assert len(shared_epochs.heirs_among(table1)) == len(part(table1, method=["truncated-lq"]))
    assert not shared_epochs.heirs_among(table2)


def test_a_checkpoint_of_other_code_is_not_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec,) = tiny("truncated-lq")
    folder = Reservation(spec, tmp_path, tmp_path).folder
    folder.mkdir()
    for code, epoch, stays in (("this", 1, True), ("other", 2, True), ("other", 1, False)):
        monkeypatch.setattr(shared_epochs, "source", lambda code=code: code)
        for name, values in (
            ("checkpoint", {"epoch": epoch}),
            ("started_from", {"epoch": 1, "source": "this"}),
        ):
            (folder / f"{name}.json").write_text(json.dumps(values))
        reservation = Reservation(spec, tmp_path, tmp_path)
        assert reservation.take() is None
        assert (folder / "checkpoint.json").exists() is stays  # once it has gone on, its own epochs stay
        assert (shared_epochs.inherited(folder) is not None) is stays
        reservation.release()


def test_the_data_of_a_run_go_when_it_ends(tmp_path: Path) -> None:
    """Of open-set noise each run has pictures of its own: a grid of them filled the memory."""
    alive: list[int] = []

    def spy(spec: RunSpec) -> TrainingData:
        gc.collect()
        alive.append(sum(type(each) in (TrainingData, Job) for each in gc.get_objects()))
        return training_data(spec)

    runner = local.Runner(str(tmp_path), str(tmp_path / "runs"), data=spy)
    runner.run_once(tiny("cce", "lq", "mae"), lambda outcome: None)
    assert alive == [0, 0, 0]  # when the next are made


def test_a_run_is_trained_as_its_spec_says(tmp_path: Path) -> None:
    (pruned,) = tiny("truncated-lq")
    (corrected,) = tiny("forward-estimated")
    for spec in (pruned, replace(corrected, transition="true")):
        job = one_run.make_job(spec, training_data(spec), tmp_path, None)
        for name in ("model", "loss", "recipe", "prune"):
            assert getattr(job, name) == getattr(spec, name)
        assert (job.model_args, job.loss_args) == (dict(spec.model_args), dict(spec.loss_args))
    assert pruned.prune is not None
    assert np.array_equal(job.transition, training_data(corrected).transition)


def test_the_command_plans_runs_stores_and_says_what_failed(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(reproduce)

    def said(*words: str) -> tuple[int, str]:
        folders = ("--results", str(tmp_path / "rows"), "--checkpoints", str(tmp_path / "runs"))
        result = CliRunner().invoke(app, ["digits", "--rate", "0.4", "--epochs", "3", *words, *folders])
        return result.exit_code, result.output

    two = ("--loss", "lq,forward-estimated")
    forward, lq = tiny("lq", "forward-estimated")
    assert forward.needs is not None
    code, planned = said(*two, "--dry-run")
    assert code == 0
    keys = [line.split()[0] for line in planned.splitlines()[:-1]]
    assert keys == [forward.needs.key, forward.key, lq.key]
    assert planned.count("  about ") == 3
    assert "3 runs to do: about" in planned
    assert not list(tmp_path.iterdir())

    code, done = said(*two)
    assert code == 0
    assert "2 runs requested, 3 to do" in done
    assert f"2 of 2 runs are stored in {tmp_path / 'rows'}" in done
    code, planned = said(*two, "--dry-run")
    assert planned.count("  stored\n") == 2  # the one that was needed is not asked for
    assert "0 runs to do" in planned

    code, failed = said("--loss", "lq", "--change", "lr=1e30")
    assert code == 1
    assert "0 of 1 runs are stored" in failed
    assert "DivergedError" in failed
    assert "error.txt has the full message" in failed


def test_a_failed_run_does_not_stop_the_others(tmp_path: Path) -> None:
    broken = replace(tiny("cce")[0], dataset="digit")
    needy = replace(tiny("forward-estimated")[0], dataset="digit")
    wild = changed(tiny("lq")[0], {"lr": 1e30})
    good = tiny("lq")
    report = run([broken, needy, wild, *good], results=tmp_path, checkpoints=tmp_path / "runs")
    assert [row["key"] for row in report.rows] == [good[0].key]
    assert {outcome.spec.key for outcome in report.failed} == {broken.key, needy.key, wild.key}
    texts = {outcome.spec.key: outcome.text for outcome in report.failed}
    assert "which failed" in texts[needy.key]
    assert texts[wild.key].startswith("DivergedError")
    error = tmp_path / "runs" / broken.key / "error.txt"
    assert "Traceback" in error.read_text()


def test_what_another_process_is_doing_is_left_to_it(tmp_path: Path) -> None:
    (spec,) = tiny("cce")
    folder = tmp_path / "runs" / spec.key
    folder.mkdir(parents=True)
    runner = Runner(str(tmp_path), str(tmp_path / "runs"))
    with FileLock(folder / ".lock"):
        assert runner(spec).status == "busy"
    assert runner(spec).status == "done"
    assert runner(spec).status == "stored"
    needy = Reservation(tiny("forward-estimated")[0], tmp_path / "no rows", tmp_path / "runs")
    outcome = needy.take()  # the run it needs is not there yet: another's, who may start this one, too
    assert outcome is not None
    assert outcome.status == "busy"
    assert FileLock(needy.folder / ".lock").acquire(wait=False)


def test_a_folder_removed_while_it_is_reserved_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process stores the row, and removes the folder, between making it and locking it."""
    (spec,) = tiny("cce")
    gone: list[Path] = []
    acquire = FileLock.acquire

    def late(lock: FileLock, *, wait: bool = True) -> bool:
        if not gone and lock.path.parent.name == spec.key:
            shutil.rmtree(lock.path.parent)
            gone.append(lock.path.parent)
        return acquire(lock, wait=wait)

    monkeypatch.setattr(FileLock, "acquire", late)
    assert Runner(str(tmp_path), str(tmp_path / "runs"))(spec).status == "done"
    assert gone == [tmp_path / "runs" / spec.key]


def test_a_folder_removed_while_it_is_found_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process removes the folder between the refusal to make a second one and a look at the first."""
    (spec,) = tiny("cce")
    gone: list[str] = []
    mkdir = os.mkdir

    def late(path: Any, *mode: int) -> None:
        if not gone and Path(path).name == spec.key:
            gone.append(path)
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        mkdir(path, *mode)

    monkeypatch.setattr(os, "mkdir", late)
    assert Reservation(spec, tmp_path, tmp_path / "runs").take() is None
    assert gone


def test_a_result_that_cannot_be_stored_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = row_module.estimate_transition

    def once(*_: Any) -> Any:
        monkeypatch.setattr(row_module, "estimate_transition", estimate)
        raise ValueError("probs must be probabilities")

    monkeypatch.setattr(row_module, "estimate_transition", once)
    bad, *good = tiny("cce", "lq", seeds=2)
    report = run([bad, *good], results=tmp_path, checkpoints=tmp_path / "runs")
    assert [(outcome.spec, outcome.text) for outcome in report.failed] == [
        (bad, "ValueError: probs must be probabilities")
    ]
    assert [row["key"] for row in report.rows] == [spec.key for spec in good]


class Deadly(Runner):
    """Takes its worker down with every run of cross entropy."""

    def __call__(self, spec: RunSpec) -> Outcome:
        if spec.method == "cce":
            with (Path(self.checkpoints) / "deaths").open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(spec)


def test_a_run_that_takes_its_worker_down_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    told: list[Outcome] = []
    bad, good = tiny("cce", "lq")
    run_in_processes([bad, good], Deadly(str(tmp_path), str(tmp_path)), told.append, workers=1)
    assert {outcome.spec: (outcome.status, outcome.text) for outcome in told}[bad] == (
        "failed",
        "its worker died 3 times",
    )
    assert (tmp_path / "deaths").read_text() == "xxx"
    assert Store(tmp_path).keys() == {good.key}


def test_workers_end_when_the_last_run_needs_one_that_failed(tmp_path: Path) -> None:
    told: list[Outcome] = []
    specs = with_needs(tiny("forward-estimated"))
    run_in_processes(specs, Deadly(str(tmp_path), str(tmp_path)), told.append, workers=2)
    assert [outcome.spec for outcome in told] == specs
    assert [outcome.status for outcome in told] == ["failed", "failed"]
    assert "which failed" in told[1].text


def test_rows_from_before_a_new_value_still_count(tmp_path: Path) -> None:
    (spec,) = tiny("cce")
    report = run([spec], results=tmp_path, checkpoints=tmp_path / "runs")
    old = dict(report.rows[0], key="0" * 16)
    del old["spec"]["model_args"], old["spec"]["recipe"]["compile"]
    old["spec"]["model_args"] = {"hidden": [64]}
    (tmp_path / "digits.jsonl").write_text(json.dumps(old) + "\n")
    assert run([spec], results=tmp_path, checkpoints=tmp_path / "runs").done == 0
    old["versions"]["training"] -= 1
    (tmp_path / "digits.jsonl").write_text(json.dumps(old) + "\n")
    assert rows_by_key(Store(tmp_path).rows()).keys() == {"0" * 16}
    old["versions"]["training"] += 1
    old["spec"]["loss"] = "a loss of the past"
    (tmp_path / "digits.jsonl").write_text(json.dumps(old) + "\n")
    assert rows_by_key(Store(tmp_path).rows()).keys() == {"0" * 16}


def test_the_rules_choose_their_epochs() -> None:
    history = [
        {"validation_accuracy": v, "test_accuracy": t}
        for v, t in ((0.5, 0.6), (0.7, 0.5), (0.7, 0.9), (0.6, 0.8))
    ]
    assert {rule: at["epoch"] for rule, at in by_rule(history).items()} == {
        "noisy_validation": 1,
        "last_epoch": 3,
        "best_test": 2,
    }
    assert list(by_rule([{"test_accuracy": 0.5}])) == ["last_epoch", "best_test"]


@pytest.mark.parametrize("noise", ["uniform", "symmetric", "class-dependent", "none"])
def test_the_same_seed_gives_every_method_the_same_wrong_labels(noise: str) -> None:
    rate = 0.0 if noise == "none" else 0.4
    one, other = (replace(s, noise=noise, noise_rate=rate) for s in tiny("cce", "lq"))
    labels = [training_data(spec).train.given_labels for spec in (one, other)]
    assert (labels[0] == labels[1]).all()
    other = replace(one, recipe=replace(one.recipe, seed=1))
    assert (training_data(other).train.given_labels == labels[0]).all() == (noise == "none")
    expected = {"uniform": 0.36, "symmetric": 0.4, "class-dependent": 0.4, "none": 0.0}[noise]
    assert training_data(one).realised_noise_rate == pytest.approx(expected, abs=0.04)


def test_labels_as_they_were_found_need_no_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of one's own, under a name of its own; whether its labels are wrong is not known."""

    def found(card: Card, split: str, root: Any) -> Any:
        return replace(load("digits", split=split), true_labels=None)

    monkeypatch.setitem(CARDS, "found", Card(name="found", title="Found", loader=found, by_people=True))
    spec = replace(tiny("lq")[0], dataset="found", noise="human", noise_rate=0.0)
    (row,) = run([spec], results=tmp_path, checkpoints=tmp_path / "runs").rows
    assert row["result"]["realised_noise_rate"] is None


def test_open_set_rows_belong_to_no_class(data_folder: Path) -> None:
    (spec,) = part(named_grid("table2"), noise=["open-set"], method=["cce"])
    data = training_data(spec)
    outside = data.train.true_labels == -1
    assert outside.mean() == pytest.approx(0.4, abs=0.01)
    assert data.train.flipped.mean() == pytest.approx(data.realised_noise_rate)


def test_runs_that_share_a_device_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second alone, two beside another run: two of its three seconds; the other has one of its two."""
    clock = iter([0.0, 0.0, 1.0, 3.0, 3.0])
    monkeypatch.setattr(local.time, "perf_counter", lambda: next(clock))
    shares = local._Shares()
    shares.start("first")
    shares.start("second")
    assert shares.end("first") == {"wall_s": 3.0, "share": pytest.approx(2 / 3)}
    assert shares.end("second") == {"wall_s": 2.0, "share": pytest.approx(1 / 2)}


def test_the_time_of_a_resumed_run_is_that_of_all_its_epochs(tmp_path: Path) -> None:
    """Its own clock goes on, while that of the process starts anew."""
    (spec,) = tiny("lq", epochs=1)
    data, cpu = training_data(spec), torch.device("cpu")
    job = one_run.make_job(spec, data, tmp_path, None)
    result = replace(Fleet(device=cpu, progress="quiet").run_one(job), time_s=100.0)
    made, _ = row_module.make_row(spec, data, result, cpu, wall_s=2.0, share=0.5, side_by_side=2)
    assert (made["time_s"], made["device_s"]) == (100.0, 50.0)


def test_progress_goes_on_when_stored_runs_took_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    (spec,) = tiny("cce")
    row = {"spec": spec.to_dict(), "device_s": 0.0}
    GridProgress([spec], [row]).tell(Outcome(spec, "done", "last epoch 90.00"))
    told = capsys.readouterr().err
    assert told == "done   digits uniform 0.4 cce seed 0: last epoch 90.00 · 1 of 1 runs, all over\n"
    (other,) = tiny("mae")
    GridProgress([spec, other], [row]).tell(Outcome(spec, "done"))
    assert capsys.readouterr().err.endswith("1 of 2 runs, no estimate yet\n")


def test_the_commit_is_that_of_this_package_and_not_of_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    package = tmp_path / "tolerant"
    for name in ("b/c.py", "b.py", "a.json", "__pycache__/a.pyc"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    (tmp_path / ".gitignore").write_text("__pycache__")
    monkeypatch.setattr(code_version, "_package", lambda: package)
    monkeypatch.setattr(code_version, "source", code_version.source.__wrapped__)
    monkeypatch.setenv("TOLERANT_COMMIT", "told")
    found = code_version.commit.__wrapped__
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "someone's project")
    assert found() == "told"
    monkeypatch.setenv("TOLERANT_COMMIT", f"told:{code_version.source()}")
    assert found() == "told"
    monkeypatch.setenv("TOLERANT_COMMIT", "told:another")
    with pytest.raises(ValueError, match=rf"of digest {code_version.source()}; got told:another\. Give"):
        found()
    git("add", ".")
    git("commit", "-q", "-m", "this package")
    assert code_version.source() == git("rev-parse", "HEAD:tolerant")
    assert found() == git("rev-parse", "--short=12", "HEAD")
    (package / "new.py").touch()  # which `git status` may be told to pass over
    assert found() == git("rev-parse", "--short=12", "HEAD") + "+"


def test_stored_rows_are_from_the_code_of_their_commit() -> None:
    """As far as this clone has the commit; rows from before there was a digest say none."""
    root = Path(__file__).parents[1]
    for path in [root / "results", *(root / "results" / "ablations").iterdir()]:
        for row in Store(path).rows() if path.is_dir() else ():
            words = ["git", "rev-parse", f"{row['commit']}:src/tolerant"]
            tree = subprocess.run(words, cwd=root, capture_output=True, text=True)
            if "source" in row and tree.returncode == 0:
                assert tree.stdout.strip() == row["source"], row["key"]
            assert not (row["commit"] or "").endswith("+"), row["key"]


@pytest.mark.parametrize("folder", ["results", "checkpoints"])
def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    folders = {"results": tmp_path / "rows", "checkpoints": tmp_path / "runs", folder: tmp_path / "file"}
    with pytest.raises(OSError, match="it is a file"):
        run(tiny("cce"), **folders)


def test_without_file_locks_nothing_starts_and_reports_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(OSError, match="Windows does not have: use WSL"):
        run(tiny("cce"), results=tmp_path, checkpoints=tmp_path / "runs")
    assert Store(tmp_path).rows() == []


LATE = """
from tolerant.experiment.engines.processes import _Pool
start = _Pool._start
def late(pool):
    pipe = start(pool)
    pool._workers[pipe].join()
    return pipe
_Pool._start = late
"""


@pytest.mark.parametrize("first", ["", LATE], ids=["sent to a worker", "the worker has already ended"])
def test_a_script_without_a_main_guard_is_told(tmp_path: Path, first: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f'{first}from tolerant.experiment import named_grid, run\nrun(named_grid("digits"), workers=1)\n'
    )
    command = [sys.executable, str(script)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert said.returncode == 1
    assert said.stderr.count("An attempt has been made") == 1  # one worker tried, not thirty
    assert "must stand below `if __name__ == '__main__':`" in said.stderr.splitlines()[-1]


@pytest.mark.filterwarnings("ignore:pruning at k")  # three epochs are few
def test_a_grid_survives_kill_9_of_driver_and_workers(tmp_path: Path) -> None:
    rng = random.Random(0)
    code = "import typer; from tolerant.cli.reproduce import reproduce; typer.run(reproduce)"
    command = [sys.executable, "-c", code, "digits", "--workers", "2", "--epochs", "3"]
    command += ["--results", str(tmp_path / "results"), "--checkpoints", str(tmp_path / "runs")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    store = Store(tmp_path / "results")
    kills = {"driver": 0, "worker": 0}
    seen: set[str] = set()
    seeds, log = 1, tmp_path / "log"
    while True:
        with log.open("a") as file:
            driver = subprocess.Popen([*command, "--seeds", str(seeds)], env=environment, stderr=file)
        try:
            while driver.poll() is None and sum(kills.values()) < 2:
                # Wait for work to be under way (new rows since the last kill), then for any moment in it.
                if len(store.keys() - seen) < 2:
                    time.sleep(0.05)
                    continue
                time.sleep(0.3 * rng.random())  # of a second in which a fast machine ends all ten
                target = min(kills, key=lambda who: (kills[who], who == "driver"))
                pids = _workers(driver.pid) if target == "worker" else [driver.pid]
                with suppress(ProcessLookupError):  # it has just ended
                    if pids and driver.poll() is None:
                        os.kill(rng.choice(pids), signal.SIGKILL)
                        kills[target] += 1
                        seen = store.keys()
            driver.wait(timeout=600)
        finally:
            driver.kill()
        assert driver.returncode in (0, -signal.SIGKILL), log.read_text()
        if driver.returncode == 0:
            if sum(kills.values()) == 2:
                break
            seeds += 1  # it was all over before the second kill: ten more runs
            assert seeds < 10, kills
    lines = (tmp_path / "results" / "digits.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines if line.endswith("}")]
    wanted = [changed(spec, {"epochs": 3}) for spec in named_grid("digits", range(seeds))]
    assert sorted(keys) == sorted(spec.key for spec in wanted)
    assert len(keys) == 10 * seeds
    assert kills == {"driver": 1, "worker": 1}
    # A run that was cut and resumed ends as one that was not.
    sample = rng.sample([spec for spec in wanted if spec.needs is None], 2)
    calm = run(sample, results=tmp_path / "calm", checkpoints=tmp_path / "calm-runs")
    stormy = {row["key"]: lasting(row) for row in store.rows()}
    assert [lasting(row) for row in calm.rows] == [stormy[spec.key] for spec in sample]


def _workers(driver: int) -> list[int]:
    """The driver's workers: children of the server it started to fork them."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in parents.items() if parents.get(parent) == driver]
