"""Every example runs as it is printed, is short, and does what it says."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

import pytest
import torch._dynamo  # noqa: F401  # as an optimiser's first step does, here once and not on every rank
from accelerate import Accelerator  # noqa: F401  # likewise
from accelerate.state import AcceleratorState
from forked import forked_ranks

from tolerant import data

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_at_most_40_lines_and_a_test_of_its_own(path):
    assert len(path.read_text().splitlines()) <= 40
    assert any(name.startswith(f"test_{path.stem}") for name in globals())


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


@pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator")
def test_fine_tuning(capsys):
    pytest.importorskip("trl", reason="needs trl")
    runpy.run_path(str(EXAMPLES / "fine_tuning.py"))
    share, _ = numbers(capsys.readouterr().out.splitlines()[-1])
    assert share > 0.9


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


def on_ranks(count: int, path: Path) -> str:
    """What the script prints on so many ranks."""

    def work() -> None:
        os.environ["ACCELERATE_USE_CPU"] = "true"
        os.environ["OMP_NUM_THREADS"] = "1"  # accelerate warns where it must set that itself
        AcceleratorState._reset_state(reset_partial_state=True)  # of another test of this process
        runpy.run_path(str(path))

    ranks = forked_ranks(count, work)
    assert [rank.returncode for rank in ranks] == [0] * count, ranks
    return "".join(rank.stdout for rank in ranks)


def test_accelerate_loop_on_one_rank_and_on_two():
    data.load("digits")  # imports scikit-learn, which every rank would
    path = EXAMPLES / "accelerate_loop.py"
    one, rows = numbers(on_ranks(1, path))
    assert 0.5 * rows < one < 0.8 * rows
    two, also_rows = numbers(on_ranks(2, path))  # printed once
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

torch.seed()  # as in a process of its own
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
    assert numbers(on_ranks(2, script)) == [40, 40, 30, 30]
