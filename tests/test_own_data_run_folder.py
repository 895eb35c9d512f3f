"""What a training leaves in its folder: listed again, edited since, damaged, stopped, set aside."""

from __future__ import annotations

import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from own_data_helpers import AT_ONCE, RUN_FILES, read, tolerant, write_pictures, write_table, write_texts
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from train_helpers import table
from typer.testing import CliRunner

from tolerant.cli import make_app
from tolerant.cli.training import train_over_ranks
from tolerant.data import InputEncoder, Source
from tolerant.data.readers import pictures as data_pictures
from tolerant.files import write_atomic
from tolerant.own_data import Settings
from tolerant.own_data.corrected_rows import CorrectedRows
from tolerant.own_data.run_folder import holds_run
from tolerant.review import CorrectedLabels
from tolerant.review.page import MOST_SHOWN
from tolerant.train import Callback, Job, Record


def test_audit_of_a_run_is_what_the_run_said(trained, tmp_path):
    before = (trained / "run" / "suspects.csv").read_text()
    output = tolerant("audit", trained / "run", "--out", tmp_path, "--limit", 3)
    assert (tmp_path / "suspects.csv").read_text() == before
    assert (tmp_path / "report.html").stat().st_size < (trained / "run" / "report.html").stat().st_size
    assert "of the labels are wrong (between" in output
    listed = re.findall(r"\brow\d+\b", output.partition("The most doubtful labels")[2])
    assert listed == [row["id"] for row in read(tmp_path / "suspects.csv")][:10]


def test_audit_of_a_run_that_only_the_folds_pruned(trained, tmp_path):
    """In two epochs there is no round of pruning, and no k."""
    run = tmp_path / "run"
    tolerant("train", trained / "data.csv", "--out", run, "--id", "key", "--epochs", 2, "--folds", 3)
    assert json.loads((run / "spec.json").read_text())["k"] is None
    before = (run / "suspects.csv").read_text()
    assert ",no,0\n" in before
    tolerant("audit", run)
    assert (run / "suspects.csv").read_text() == before


def test_audit_of_a_run_whose_data_changed_is_refused(trained, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for path in (trained / "run").iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    spec = json.loads((run / "spec.json").read_text())
    data = (trained / "data.csv").read_text().splitlines()
    (tmp_path / "data.csv").write_text("\n".join(data[:-1]) + "\n")
    spec["source"]["name"] = str(tmp_path / "data.csv")
    (run / "spec.json").write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="are not those of"):
        tolerant("audit", run)


def _edit_table(folder: Path) -> None:
    lines = (folder / "data.csv").read_text().splitlines()
    lines[4] = lines[4].replace("Bonn", "Ulm")
    lines[8] = lines[8].replace(",1,", ",2,")  # of a column that had one value
    (folder / "data.csv").write_text("\n".join(lines) + "\n")


def _edit_texts(folder: Path) -> None:
    lines = (folder / "data.csv").read_text().splitlines()
    for row in (4, 8):
        lines[row] = "other " + lines[row]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")


def _edit_pictures(folder: Path) -> None:
    for file in sorted((folder / "data").rglob("*.png"))[3:5]:
        Image.open(file).rotate(180).save(file)


def _write_arrays(path: Path) -> None:
    data = table(120, noise_rate=0.1)
    ids = [f"row{row}" for row in range(120)]
    np.savez(path, inputs=data.inputs, labels=data.given_labels, ids=ids)


def _edit_arrays(folder: Path) -> None:
    arrays = dict(np.load(folder / "data.npz"))
    arrays["inputs"][[3, 7], 1] += 1
    np.savez(folder / "data.npz", **arrays)


@pytest.mark.parametrize(
    ("name", "write", "edit", "first"),
    [
        ("data.csv", write_table, _edit_table, "row3"),
        ("data.csv", write_texts, _edit_texts, "3"),
        ("data.npz", _write_arrays, _edit_arrays, "row3"),
        ("data", write_pictures, _edit_pictures, "a/"),
        ("data, more than memory holds", write_pictures, _edit_pictures, "a/"),
    ],
)
def test_audit_of_a_run_counts_the_rows_edited_since(name, write, edit, first, tmp_path, monkeypatch):
    if "more" in name:
        monkeypatch.setattr(data_pictures, "MEMORY_BYTES", 100)
    data, run = tmp_path / name.partition(",")[0], tmp_path / "run"
    write(data)
    key = ("--id", "key") if write is write_table else ()
    tolerant("train", data, *key, "--loss", "lq", *AT_ONCE, "--out", run)
    listed = (run / "suspects.csv").read_text()
    tolerant("audit", run)  # warnings are errors: nothing was edited
    edit(tmp_path)
    with pytest.warns(UserWarning, match=rf"2 of the \d+ rows of {data} have been edited .*\(first: {first}"):
        tolerant("audit", run)
    assert (run / "suspects.csv").read_text() == listed
    _drop(run / "audit.safetensors", "input_digests")  # as in a run of before they were stored
    tolerant("audit", run)


def test_a_cell_written_in_another_way_is_not_edited(tmp_path):
    """What counts is what the model is given, not how a spreadsheet writes it, nor what it leaves out."""
    write_table(tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    lines[5] = lines[5].replace("row4", "someone")  # a column that is left out
    command = ("train", tmp_path / "rows.csv", "--ignore", "key", "--loss", "lq", *AT_ONCE)
    tolerant(*command, "--out", tmp_path / "run")
    as_spreadsheet = [",".join(f" {cell}0" if "." in cell else cell for cell in x.split(",")) for x in lines]
    (tmp_path / "rows.csv").write_text("\n".join(f"{line},new" for line in as_spreadsheet) + "\n")
    tolerant("audit", tmp_path / "run")  # warnings are errors


def _edit(run: Path, **changes: Any) -> None:
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: _edit(run, format=99), "has format 99 .*this version reads format 4"),
        (lambda run: (run / "spec.json").unlink(), "not a finished run"),
        (lambda run: (run / "spec.json").write_text("{"), "not a valid JSON"),
        (lambda run: (run / "model.safetensors").write_bytes(b"x"), "cannot be read"),
        (lambda run: (run / "model.safetensors").unlink(), "cannot be read"),
        (lambda run: _edit(run, features={}), "damaged"),
        (lambda run: _edit(run, source={}), "damaged"),
        (lambda run: _edit(run, features={"kind": "table", "shape": []}), "damaged"),
        (lambda run: _edit(run, model_args={"hidden": [3]}), "damaged"),
    ],
)
def test_a_run_folder_that_cannot_be_used(trained, tmp_path, damage, message):
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run)
    damage(run)
    with pytest.raises(ValueError, match=message):
        tolerant("predict", run, trained / "data.csv")


def _drop(path: Path, name: str) -> None:
    tensors = load_file(path)
    del tensors[name]
    with safe_open(path, "pt") as file:
        header = file.metadata()
    save_file(tensors, path, header)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: _edit(run, recipe=None), "run is damaged: TypeError"),
        (lambda run: _drop(run / "audit.safetensors", "kept"), "run is damaged: KeyError"),
        (lambda run: (run / "history.json").write_text("[1]"), r"history\.json does not hold a record"),
    ],
)
def test_a_run_that_cannot_be_audited_keeps_its_list(trained, tmp_path, damage, message):
    shutil.copy(trained / "data.csv", tmp_path)
    shutil.copytree(trained / "run", tmp_path / "run")
    damage(tmp_path / "run")
    (tmp_path / "run" / "suspects.csv").write_text("old")
    with pytest.raises(ValueError, match=message):
        tolerant("audit", tmp_path / "run")
    assert (tmp_path / "run" / "suspects.csv").read_text() == "old"


class _Stop(Callback):
    """Ctrl-C in the final training, after an epoch."""

    def on_epoch_end(self, job: Job, record: Record) -> None:
        if record["epoch"] == 3:
            signal.raise_signal(signal.SIGINT)


class _Starts(Callback):
    def __init__(self) -> None:
        self.records: list[Record | None] = []

    def on_start(self, job: Job, record: Record | None) -> None:
        self.records.append(record)


def test_a_run_that_was_stopped_goes_on_and_another_starts_anew(tmp_path, capsys):
    write_table(tmp_path / "rows.csv")
    rows, settings = Source(str(tmp_path / "rows.csv"), {"id": "key"}), Settings(epochs=6)

    def run(name: str, callback: Callback, settings: Settings = settings) -> dict[str, torch.Tensor]:
        train_over_ranks(rows, tmp_path / name, settings, device="cpu", folds=2, callbacks=[callback])
        assert not (tmp_path / name / "checkpoints").exists()
        return load_file(tmp_path / name / "model.safetensors")

    with pytest.raises(typer.Exit) as stopped:
        run("run", _Stop())
    assert stopped.value.exit_code == 130
    assert (
        f"stopped; the same command resumes from {tmp_path / 'run' / 'checkpoints'}"
        in capsys.readouterr().err
    )
    again, other = _Starts(), _Starts()
    went_on, never_stopped = run("run", again), run("whole", _Starts())
    assert [record and record["epoch"] for record in again.records] == [3]
    assert all(torch.equal(went_on[name], tensor) for name, tensor in never_stopped.items())
    with pytest.raises(typer.Exit):
        run("run", _Stop())
    with pytest.warns(UserWarning, match="earlier-1"):
        run("run", other, replace(settings, lr=0.02))
    assert other.records == [None]


def test_a_run_of_other_settings_is_set_aside_and_the_same_one_written_again(tmp_path):
    write_table(tmp_path / "rows.csv")
    rows, run = Source(str(tmp_path / "rows.csv"), {"id": "key"}), tmp_path / "run"

    def train(seed: int) -> bytes:
        train_over_ranks(rows, run, Settings(epochs=3, seed=seed), device="cpu", folds=0)
        return (run / "model.safetensors").read_bytes()

    first = train(0)
    assert train(0) == first
    assert {path.name for path in run.iterdir()} == RUN_FILES
    (run / "suspects.csv").write_text("marked by hand")
    for number in (1, 2):
        with pytest.warns(UserWarning, match=rf"run of other data or settings.*earlier-{number} now.*--out"):
            train(number)
    assert {path.name for path in run.iterdir()} == RUN_FILES | {"earlier-1", "earlier-2"}
    assert {path.name for path in (run / "earlier-1").iterdir()} == RUN_FILES
    assert (run / "earlier-1" / "model.safetensors").read_bytes() == first
    assert (run / "earlier-1" / "suspects.csv").read_text() == "marked by hand"
    assert "Review them" in tolerant("audit", run / "earlier-2")


def test_audit_does_not_write_over_another_runs_list(trained, tmp_path):
    (tmp_path / "spec.json").write_text("{}")
    result = CliRunner().invoke(make_app(), ["audit", str(trained / "run"), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds another run" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "suspects.csv").exists()


@pytest.mark.parametrize(
    "left", [(), ("model.safetensors", ".report.html.0a1b2c3d"), ("earlier-1/spec.json",)]
)
def test_a_training_that_was_stopped_is_no_folder_of_pictures(tmp_path, left):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in left:  # killed while it wrote its files
        write_atomic(tmp_path / "run" / name, "")
    for command in (("audit", tmp_path / "run"), ("predict", tmp_path / "run", "digits")):
        with pytest.raises(ValueError, match="holds a training that was stopped"):
            tolerant(*command)
    (tmp_path / "run" / "other pictures").mkdir()
    assert not holds_run(tmp_path / "run")


def test_checkpoints_on_another_disk(tmp_path):
    """A link to where there is room: the training ended in an error when all was written."""
    write_table(tmp_path / "rows.csv", num_rows=60)
    disk = tmp_path / "disk"
    write_atomic(disk / "notes" / "own.txt", "")
    write_atomic(disk / ("0" * 16) / "fold" / "checkpoint.json", "of other settings")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(disk)
    tolerant("train", tmp_path / "rows.csv", "--id", "key", "--out", tmp_path / "run", *AT_ONCE)
    assert [path.name for path in disk.iterdir()] == ["notes"]
    assert (disk / "notes" / "own.txt").exists()


@pytest.mark.filterwarnings("ignore:.*corrections have no row_digest")
def test_audit_of_data_trains_and_the_page_has_the_limit_asked_for(tmp_path, monkeypatch):
    """With corrections, too: two labels a person has decided are not listed."""
    write_table(tmp_path / "rows.csv", num_rows=60)
    (tmp_path / "decided.csv").write_text("id,new_label\nrow1,a\nrow2,b\n")
    limits = []
    monkeypatch.setattr(
        "tolerant.own_data.run_folder.save.write_page", lambda *_, limit, **__: limits.append(limit)
    )
    options = ("--labels", tmp_path / "decided.csv", "--out", tmp_path / "run", "--folds", 0, "--limit", 3)
    said = tolerant("audit", tmp_path / "rows.csv", "--id", "key", *options)
    assert "2 reviewed ones are not listed" in said
    assert f"--id key --labels {tmp_path / 'decided.csv'} --labels corrections-2.csv" in said
    assert limits == [3]
    tolerant("audit", tmp_path / "run")
    assert limits == [3, MOST_SHOWN], "the option's default is the page's"


@pytest.mark.parametrize("changed", ["inputs", "labels", "settings", "folds", "reviewed", "groups"])
def test_whatever_a_training_depends_on_is_in_its_fingerprint(changed):
    rows = table(60)

    def fingerprint(changed: str = "") -> str:
        inputs, labels, reviewed = rows.inputs.copy(), rows.given_labels.copy(), np.zeros(60, bool)
        inputs[-1, -1] += changed == "inputs"
        labels[-1] = (labels[-1] + (changed == "labels")) % rows.num_classes
        reviewed[-1] = changed == "reviewed"
        groups = np.arange(60) if changed == "groups" else None
        dataset = replace(rows, inputs=inputs, groups=groups)
        corrected = CorrectedLabels(labels, reviewed, np.zeros(60, bool), np.zeros(60, bool), labels)
        encoder, none = InputEncoder.fit(dataset), np.arange(0)
        data = CorrectedRows(Source("rows.csv"), dataset, encoder, (), corrected, none, "")
        return data.fingerprint(Settings(seed=int(changed == "settings")), 2 + (changed == "folds"))

    assert fingerprint() == fingerprint() != fingerprint(changed)
