"""`torchrun -m tolerant train`: two ranks write the run of one process, and go on after a kill -9."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import forked, forked_ranks
from safetensors.numpy import load_file
from test_experiment_run import lasting

from tolerant.cli import main
from tolerant.experiment import Store, changed, named_grid, part, run
from tolerant.experiment.one_run import make_job
from tolerant.experiment.row import make_row
from tolerant.experiment.training_data import training_data
from tolerant.train import Fleet, Run, join_ranks

CHANGES = {"epochs": 6, "precision": "fp32"}
FILES = {"model.safetensors", "audit.safetensors", "spec.json", "history.json", "suspects.csv", "report.html"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 rows whose class is in the signs of two products: learnt over many epochs, not in the first."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(1500, 5))
    true = (inputs[:, 0] * inputs[:, 1] > 0) + 2 * (inputs[:, 2] * inputs[:, 3] > 0)
    given = np.where(rng.random(1500) < 0.2, rng.integers(0, 4, 1500), true)
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, inputs=inputs.astype(np.float32), labels=given)
    return path


def words(data: Path, out: Path, **options: Any) -> list[str]:
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["train", str(data), "--out", str(out), "--device", "cpu", "--precision", "fp32", *given]


def command(*arguments: Any, **options: Any) -> Callable[[], None]:
    """The command, for a process of its own."""

    def work() -> None:
        sys.argv[1:] = words(*arguments, **options)
        warnings.simplefilter("ignore")  # of the words: pytest makes errors of warnings
        main()

    return work


def assert_same_run(one: Path, two: Path) -> None:
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()} == FILES
    for name in ("model.safetensors", "audit.safetensors"):
        expected, found = load_file(one / name), load_file(two / name)
        assert expected.keys() == found.keys()
        for tensor in expected:
            np.testing.assert_allclose(found[tensor], expected[tensor], atol=1e-5, err_msg=tensor)
    histories = [json.loads((run / "history.json").read_text()) for run in (one, two)]
    for record, expected in zip(*reversed(histories), strict=True):
        assert record.keys() == expected.keys()
        for number in record.keys() - {"time_s", "images_per_s"}:
            assert record[number] == pytest.approx(expected[number], abs=1e-5), number


@pytest.mark.parametrize("options", [{"epochs": 1, "folds": 2}, {"epochs": 4, "folds": 0, "k": 0.4}])
def test_two_ranks_write_the_run_of_one_process(data, tmp_path, options):
    one = forked(command(data, tmp_path / "one", **options))
    two, silent = forked_ranks(2, command(data, tmp_path / "two", **options))
    assert (one.returncode, two.returncode, silent.returncode) == (0, 0, 0), (one, two, silent)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert two.stdout == one.stdout.replace(f"{tmp_path}/one", f"{tmp_path}/two")
    last = f"epoch {options['epochs']}/{options['epochs']}"
    assert two.stderr.count(last) == options["folds"] + 1  # a line a training, of rank 0 alone
    assert silent.stdout == ""


def test_a_killed_rank_costs_no_row(data, tmp_path):
    """Rank 1 dies by kill -9 within an epoch of the last training; all go on from the checkpoint.

    That torchrun starts them again is tested in test_distributed_train.py.
    """
    options = {"epochs": 6, "folds": 2}
    one = forked(command(data, tmp_path / "one", **options))
    assert one.returncode == 0, one.stderr
    two = command(data, tmp_path / "two", **options)
    epoch = Run._epoch

    def until_killed(run: Run) -> Iterator[bool]:
        steps = epoch(run)
        if (os.environ["RANK"], run.job.name, run.epoch) == ("1", "all rows", 3):
            next(steps)
            os.kill(os.getpid(), signal.SIGKILL)
        yield from steps

    def killed() -> None:
        Run._epoch = until_killed
        two()

    left, dead = forked_ranks(2, killed)
    assert left.returncode != 0
    assert dead.returncode == -signal.SIGKILL
    done, again = forked_ranks(2, two)
    assert (done.returncode, again.returncode) == (0, 0), (done, again)
    assert "fold 1 of 2: going on after epoch 6" in done.stderr  # read back, not trained again
    # The checkpoint is written beside the training: the last one may have been lost with rank 0.
    assert re.search(r"all rows: going on after epoch [23]\n", done.stderr)
    assert_same_run(tmp_path / "one", tmp_path / "two")


@pytest.mark.filterwarnings("ignore:pruning at k")  # six epochs are few
def test_two_ranks_make_the_row_of_the_local_engine(tmp_path):
    """A run of the digits grid: the same key, the same numbers."""
    (spec,) = part(named_grid("digits"), method=["truncated-lq"], noise_rate=[0.4])
    spec = changed(spec, CHANGES)
    report = run([spec], results=tmp_path / "results", checkpoints=tmp_path / "runs", device="cpu")

    def work() -> None:
        with join_ranks("cpu") as ranks:
            data = training_data(spec)
            job = make_job(spec, data, tmp_path / "two", None)
            (result,) = Fleet(device="cpu", progress="quiet").run([job])
            if ranks.rank == 0:
                device = torch.device("cpu")
                made = make_row(spec, data, result, device, wall_s=0.0, share=1.0, side_by_side=1)
                (tmp_path / "made.json").write_text(json.dumps(made))

    ended = forked_ranks(2, work)
    assert [rank.returncode for rank in ended] == [0, 0], ended
    row, history = json.loads((tmp_path / "made.json").read_text())
    assert row["key"] == spec.key
    assert {**lasting(row), "history": report.rows[0]["history"]} == lasting(report.rows[0])
    expected = Store(tmp_path / "results").history(report.rows[0])
    assert history.keys() == expected.keys()
    for name, column in history.items():
        found, known = np.array([column, expected[name]], float)  # None, where nothing was measured, is NaN
        np.testing.assert_allclose(found, known, rtol=1e-4, err_msg=name)  # stored with five digits
