"""Every example runs as it is printed, is short, and does what it says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_at_most_40_lines(path):
    assert len(path.read_text().splitlines()) <= 40


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.?\d*", text)]


def test_own_loop(capsys):
    runpy.run_path(str(EXAMPLES / "own_loop.py"))
    kept, rows, accuracy = numbers(capsys.readouterr().out)
    assert 0.5 * rows < kept < 0.8 * rows  # 0.4 of the labels are wrong
    assert accuracy > 0.9


def test_language_model(capsys):
    runpy.run_path(str(EXAMPLES / "language_model.py"))
    first, last = numbers(capsys.readouterr().out)
    assert last < 0.8 * first


def test_tracker_is_told_of_every_epoch():
    class Client:
        """The one function of MLflow that the example uses."""

        def __init__(self) -> None:
            self.rows: list[dict[str, float]] = []

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            assert step == len(self.rows)
            self.rows.append(metrics)

    client = Client()
    result = runpy.run_path(str(EXAMPLES / "tracker.py"))["main"](client)
    assert len(client.rows) == len(result.history) == 20
    for told, record in zip(client.rows, result.history, strict=True):
        assert told["validation_accuracy"] == record["validation_accuracy"]
    assert client.rows[-1]["kept_fraction"] < 0.8
    assert client.rows[result.epoch]["validation_accuracy"] > 0.45  # 0.6 of the labels are right


def on_two_ranks(path: str) -> str:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", path]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(launch, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_accelerate_on_one_rank_and_on_two(capsys):
    path = str(EXAMPLES / "accelerate_loop.py")
    runpy.run_path(path)
    one, rows = numbers(capsys.readouterr().out)
    assert 0.5 * rows < one < 0.8 * rows
    two, also_rows = numbers(on_two_ranks(path))  # printed once
    assert rows == also_rows
    assert abs(one - two) < 0.02 * rows  # the last batch of an epoch is made up to an even number


def test_a_loader_that_accelerate_prepares_gives_each_kept_row_to_a_rank(tmp_path):
    """A sampler without a generator of its own: every rank must still draw the same order."""
    script = tmp_path / "prepared.py"
    script.write_text("""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from tolerant import Pruner

accelerator = Accelerator()
pruner = Pruner(40, k=0.5)
loader = accelerator.prepare(DataLoader(torch.arange(40), batch_size=5, sampler=pruner.sampler()))
for _ in range(2):
    mine = torch.cat(list(loader))
    rows = accelerator.gather(mine)
    accelerator.print(len(rows), len(rows.unique()))
    pruner.update(mine, mine.lt(30) * 0.9)
accelerator.end_training()
""")
    assert numbers(on_two_ranks(str(script))) == [40, 40, 30, 30]
