"""Files of a run with wrong values in valid JSON, or no numbers: a sentence that names them, no stack."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import forked
from own_data_helpers import tolerant, write_table
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from train_helpers import quick, table
from wrong_values import WRONG, wrong_in

from tolerant import cli
from tolerant.data import Source
from tolerant.own_data import Settings, load_run
from tolerant.own_data.train_source import train_source
from tolerant.train import DivergedError, train


def make_run(folder: Path, settings: Settings) -> Path:
    write_table(folder / "rows.csv", num_rows=60)
    rows = Source(str(folder / "rows.csv"), {"id": "key"})
    train_source(rows, folder / "run", settings, folds=0, device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("damaged"), Settings(epochs=2))


@pytest.fixture(scope="module")
def committee(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = Settings(model="linear", class_weight="balanced")
    return make_run(tmp_path_factory.mktemp("damaged"), settings)


def _refused_or_read(use: Callable[[], object], what: Any) -> bool:
    try:
        use()
    except (ValueError, OSError):
        return True
    except Exception as error:
        raise AssertionError(f"{error!r} for {str(what)[:300]}") from error
    return False


@pytest.mark.parametrize(("model", "every"), [("run", 5), ("committee", 2)])  # all take a minute
def test_a_spec_with_any_field_wrong_is_refused_by_a_sentence(
    model: str, every: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = request.getfixturevalue(model)
    shutil.copy(run.parent / "rows.csv", tmp_path)
    folder = shutil.copytree(run, tmp_path / "run")
    spec = json.loads((run / "spec.json").read_text())
    rows = load_run(run).load_rows()

    def use() -> None:
        found = load_run(folder)
        found.probs(Source(str(tmp_path / "rows.csv")).read(found.encoder), device="cpu")
        found.load_rows()
        found.label_counts()
        _ = found.title, found.corrections
        found.suspects(rows)

    refused = []
    for wrong in list(wrong_in(spec))[::every]:
        (folder / "spec.json").write_text(json.dumps(wrong))
        refused.append(_refused_or_read(use, wrong))
    assert len(refused) > 100
    assert sum(refused) > 20


def test_a_history_with_any_field_wrong_is_refused_or_drawn(run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    history = json.loads((run / "history.json").read_text())
    refused = []
    for wrong in (*WRONG, *wrong_in(history)):
        (folder / "history.json").write_text(json.dumps(wrong))
        refused.append(_refused_or_read(load_run(folder).history, wrong))
    assert sum(refused) > 20


def test_a_checkpoint_with_any_field_wrong_is_refused_or_goes_on(tmp_path: Path) -> None:
    from tolerant.train import PruneSchedule

    def fit(epochs: int) -> object:
        return train(
            table(80),
            model="mlp",
            loss="lq",
            recipe=quick(epochs=epochs, milestones=(), batch_size=32),
            prune=PruneSchedule(1, 1, 0.1),
            device="cpu",
            checkpoint=tmp_path / "c",
            progress="quiet",
        )

    fit(2)
    record = json.loads((tmp_path / "c" / "checkpoint.json").read_text())
    shutil.copytree(tmp_path / "c", tmp_path / "whole")
    refused, here = [], {name: record[name] for name in record if name != "run"}
    for wrong in wrong_in(here):
        shutil.rmtree(tmp_path / "c")
        shutil.copytree(tmp_path / "whole", tmp_path / "c")
        (tmp_path / "c" / "checkpoint.json").write_text(json.dumps({"run": record["run"], **wrong}))
        refused.append(_refused_or_read(lambda: fit(2), wrong))
    assert sum(refused) > 60


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_without_numbers_labels_nothing(run: Path, tmp_path: Path, value: float) -> None:
    """All rows would be of the first class."""
    folder = shutil.copytree(run, tmp_path / "run")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.startswith("model/") and name.endswith("weight"))
    tensors[name].view(-1)[0] = value
    with safe_open(folder / "model.safetensors", "pt") as file:
        header = file.metadata()
    save_file(tensors, folder / "model.safetensors", header)
    with pytest.raises(ValueError, match=r"holds no numbers in 'model/.*Train again"):
        tolerant("predict", folder, run.parent / "rows.csv", "--id", "key", "--out", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "audit.safetensors", "history.json"])
def test_a_pipe_in_a_run_is_refused_and_not_waited_for(run: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(run.parent / "rows.csv", tmp_path)
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=rf"{name} is a pipe or a device"):
        tolerant("audit", folder)


def test_predictions_that_are_no_numbers_label_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_run(run)
    rows = found.load_rows()
    monkeypatch.setattr(type(found.model), "probs", lambda *_: np.full((60, 4), np.nan))
    with pytest.raises(ValueError, match=r"no numbers for 60 of 60 rows \(first: row0\)"):
        found.probs(rows)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DivergedError("training diverged: train_loss is nan. Use a lower lr"), "training diverged"),
        (MemoryError(), "out of memory: MemoryError. Lower --size"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory: CUDA"),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: not enough memory"), "out of memory: "),
        (ValueError("labels \x1b]0;owned\x07"), "labels \\x1b]0;owned\\x07"),
    ],
)
def test_a_command_that_cannot_end_well_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    def work() -> None:
        monkeypatch.setattr("tolerant.own_data.train_source.train_source", fails)
        sys.argv = ["tolerant", "train", "digits"]
        cli.main()

    ended = forked(work)
    assert ended.returncode == 2
    assert f"tolerant: {words}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_run_names_no_user_and_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is found again when its folder and its rows move together, or are given to another."""
    home = tmp_path / "home" / "some-user"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    write_table(home / "project" / "rows.csv", num_rows=60)
    (home / "decided.csv").write_text("id,new_label\nrow1,a\n")
    rows = Source(str(home / "project" / "rows.csv"), {"id": "key"})

    def train_into(folder: Path) -> bytes:
        with pytest.warns(UserWarning, match="no row_digest"):
            train_source(
                rows, folder, Settings(epochs=2), corrections=[home / "decided.csv"], folds=0, device="cpu"
            )
        return b"".join(path.read_bytes() for path in folder.iterdir())

    written = train_into(home / "project" / "run")
    for word in (b"some-user", str(tmp_path).encode(), socket.gethostname().encode()):
        assert word not in written
    spec = json.loads((home / "project" / "run" / "spec.json").read_text())
    assert (spec["source"]["name"], spec["labels"]) == ("../rows.csv", ["../../decided.csv"])
    assert b"some-user" not in train_into(tmp_path / "elsewhere" / "run")
    (home / "project").rename(tmp_path / "given")
    assert "Review them" in tolerant("audit", tmp_path / "given" / "run")
    gone = r"rows of .*elsewhere/run are not at rows.csv.* beside .*under that name"
    with pytest.raises(FileNotFoundError, match=gone):
        tolerant("audit", tmp_path / "elsewhere" / "run")
    shutil.copy(tmp_path / "given" / "rows.csv", tmp_path / "elsewhere")
    assert "Review them" in tolerant("audit", tmp_path / "elsewhere" / "run")
