"""`torchrun -m tolerant train`: two ranks write the run of one process, and go on after a kill -9."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from test_experiment_run import lasting

from tolerant.experiment import Store, changed, named_grid, part, run

RANKS = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
ALONE = (sys.executable,)
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
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


def command(
    launch: tuple[str, ...],
    data: Path,
    out: Path,
    program: tuple[str, ...] = ("-m", "tolerant"),
    **options: Any,
) -> list[str]:
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*launch, *program, "train", str(data), "--out", str(out), "--precision", "fp32", *given]


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
    output = []
    for launch, name in ((ALONE, "one"), (RANKS, "two")):
        line = command(launch, data, tmp_path / name, **options)
        done = subprocess.run(line, capture_output=True, text=True, env=ENV, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        output.append(done)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert output[1].stdout == output[0].stdout.replace(f"{tmp_path}/one", f"{tmp_path}/two")
    assert output[1].stderr.count(f"epoch 1/{options['epochs']}") == options["folds"] + 1


KILLED = """
import os, signal
from tolerant.cli import main
from tolerant.train import Run

epoch = Run._epoch

def until_killed(run):
    steps = epoch(run)
    here = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], run.job.name, run.epoch
    if here == ("1", "0", "all rows", 6):
        next(steps)
        os.kill(os.getpid(), signal.SIGKILL)
    yield from steps

Run._epoch = until_killed
main()
"""


def test_a_killed_rank_costs_no_row(data, tmp_path):
    """Rank 1 dies by kill -9 within an epoch of the last training; all go on from the checkpoint."""
    options = {"epochs": 12, "folds": 2}
    subprocess.run(command(ALONE, data, tmp_path / "one", **options), env=ENV, check=True, timeout=600)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    launch = (*RANKS, "--max-restarts=1", "--monitor-interval=0.1")
    line = command(launch, data, tmp_path / "two", program=(str(script),), **options)
    done = subprocess.run(line, capture_output=True, text=True, env=ENV, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "fold 1 of 2: going on after epoch 12" in done.stderr  # read back, not trained again
    # The checkpoint is written beside the training: the last one may have been lost with rank 0.
    assert re.search(r"all rows: going on after epoch [56]\n", done.stderr)
    assert_same_run(tmp_path / "one", tmp_path / "two")


@pytest.mark.filterwarnings("ignore:pruning at k")  # six epochs are few
def test_two_ranks_make_the_row_of_the_local_engine(tmp_path):
    """A run of the digits grid: the same key, the same numbers."""
    (spec,) = part(named_grid("digits"), method=["truncated-lq"], noise_rate=[0.4])
    spec = changed(spec, CHANGES)
    report = run([spec], results=tmp_path / "results", checkpoints=tmp_path / "runs", device="cpu")
    script = tmp_path / "script.py"
    script.write_text(f"""
import json, torch
from tolerant.experiment import RunSpec
from tolerant.experiment.one_run import make_job
from tolerant.experiment.row import make_row
from tolerant.experiment.training_data import training_data
from tolerant.train import Fleet, join_ranks

with join_ranks() as ranks:
    spec = RunSpec.from_dict(json.loads({json.dumps(spec.to_dict())!r}))
    data = training_data(spec)
    job = make_job(spec, data, {str(tmp_path / "two")!r}, None)
    (result,) = Fleet(device="cpu", progress="quiet").run([job])
    if ranks.rank == 0:
        made = make_row(spec, data, result, torch.device("cpu"), wall_s=0.0, share=1.0, side_by_side=1)
        open({str(tmp_path / "made.json")!r}, "w").write(json.dumps(made))
""")
    done = subprocess.run(
        [*RANKS, str(script)], capture_output=True, text=True, env=ENV, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    row, history = json.loads((tmp_path / "made.json").read_text())
    assert row["key"] == spec.key
    assert {**lasting(row), "history": report.rows[0]["history"]} == lasting(report.rows[0])
    expected = Store(tmp_path / "results").history(report.rows[0])
    assert history.keys() == expected.keys()
    for name, column in history.items():
        found, known = np.array([column, expected[name]], float)  # None, where nothing was measured, is NaN
        np.testing.assert_allclose(found, known, rtol=1e-4, err_msg=name)  # stored with five digits
