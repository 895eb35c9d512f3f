"""TensorBoard reads back what a run did, once, also where the run was cut off and went on."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from train_helpers import quick, table
from typer.testing import CliRunner

from tolerant.adapters.tensorboard import TensorBoardLog
from tolerant.cli import make_app
from tolerant.train import Callback, PruneSchedule, train


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_every_number_of_every_epoch(tmp_path):
    log, prune = TensorBoardLog(tmp_path), PruneSchedule(start_epoch=2, every=1, k=0.2)
    options = {"model": "mlp", "loss": "lq", "prune": prune, "device": "cpu", "progress": "quiet"}
    result = train(table(), recipe=quick(lr=0.3, epochs=4), test=table(100), callbacks=[log], **options)
    read = scalars(tmp_path)
    assert {"train_loss", "validation_accuracy", "test_accuracy", "kept_fraction", "lr"} < read.keys()
    for name, points in read.items():
        known = [(r["epoch"], r[name]) for r in result.history if r[name] is not None]
        assert points == [(epoch, pytest.approx(value)) for epoch, value in known]


class Stop(Callback):
    def on_epoch_end(self, job, record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt


def test_a_resumed_run_has_each_epoch_once(tmp_path):
    options = {"model": "mlp", "loss": "lq", "recipe": quick(epochs=4), "checkpoint": tmp_path / "run"}
    options |= {"checkpoint_every": 2, "device": "cpu", "progress": "quiet"}
    with pytest.raises(KeyboardInterrupt):
        train(table(), callbacks=[TensorBoardLog(tmp_path / "events"), Stop()], **options)
    assert [step for step, _ in scalars(tmp_path / "events")["train_loss"]] == [0, 1, 2]
    train(table(), callbacks=[TensorBoardLog(tmp_path / "events")], **options)
    assert [step for step, _ in scalars(tmp_path / "events")["train_loss"]] == [0, 1, 2, 3]


def test_option_of_the_command(tmp_path):
    data = table(220)  # below 200 rows none are held out
    np.savez(tmp_path / "rows.npz", inputs=data.inputs, labels=data.given_labels)
    words = ["train", tmp_path / "rows.npz", "--out", tmp_path / "run", "--tensorboard", tmp_path / "events"]
    done = CliRunner().invoke(make_app(), [*map(str, words), "--epochs", "3", "--folds", "0", "--loss", "lq"])
    assert done.exit_code == 0, done.output
    assert [step for step, _ in scalars(tmp_path / "events")["validation_accuracy"]] == [0, 1, 2]


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[tensorboard\]'"):
        TensorBoardLog(tmp_path)
