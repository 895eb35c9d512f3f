"""`tolerant train`, `predict` and `audit` on every source, as a person runs them; and bad input."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import load_file, save_file
from train_helpers import pictures, table
from typer.testing import CliRunner

from tolerant import __version__, find_suspects
from tolerant.cli import make_app
from tolerant.cli import options as opt
from tolerant.cli.next_command import next_command
from tolerant.cli.over_ranks import train_over_ranks
from tolerant.cli.summary import print_suspects
from tolerant.data import InputEncoder, Source, TextEncoder, load
from tolerant.data.readers import pictures as data_pictures
from tolerant.files import write_atomic
from tolerant.own_data import believed, train_source
from tolerant.own_data.run_folder import save
from tolerant.own_data.settings import Settings
from tolerant.own_data.training_data import TrainingData
from tolerant.review import page
from tolerant.review.corrections import CorrectedLabels
from tolerant.suspects import find, noise_model
from tolerant.train.engine.job import Callback, Job, Record

QUICK = ("--epochs", "15", "--folds", "2")
FILES = {"model.safetensors", "audit.safetensors", "spec.json", "history.json", "suspects.csv", "report.html"}


def tolerant(*arguments: Any) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, *, labels: bool = True, num_rows: int = 200, town: str = "Bonn") -> np.ndarray:
    """Numbers, words and a constant; the label follows from the numbers, a fifth of them wrong."""
    data = table(num_rows, noise_rate=0.2)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "a", "b", "c", "d", "town", "same", *(["label"] if labels else [])])
        for row in range(num_rows):
            place = town if row % 2 else "Ulm"
            cells = [f"row{row}", *data.inputs[row, :4].round(4), place, 1]
            writer.writerow([*cells, *([data.class_names[data.given_labels[row]]] if labels else [])])
    return data.true_labels


def write_texts(path: Path) -> np.ndarray:
    words = (["sun", "rain", "wind", "cloud"], ["goal", "match", "team", "ball"])
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 120)
    given = np.where(rng.random(120) < 0.15, 1 - true, true)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(120):
            writer.writerow([" ".join(rng.choice(words[true[row]], 4)), ("weather", "sport")[given[row]]])
    return true


def write_pictures(folder: Path) -> None:
    data = pictures(80, noise_rate=0.1)
    for row in range(80):
        file = folder / data.class_names[data.given_labels[row]] / f"{row:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.inputs[row]).save(file)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with data.csv and the run trained on it."""
    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "data.csv")
    tolerant(
        "train",
        folder / "data.csv",
        "--out",
        folder / "run",
        "--id",
        "key",
        "--epochs",
        20,
        "--q",
        0.7,
        "--folds",
        3,
    )
    return folder


def test_a_table_from_training_to_predictions(trained, tmp_path):
    run = trained / "run"
    assert {path.name for path in run.iterdir()} == FILES
    suspects = read(run / "suspects.csv")
    assert suspects[0]["id"].startswith("row")
    true = table(200, noise_rate=0.2).true_labels
    hits = [row["suggested_label"] == "abcd"[true[int(row["index"])]] for row in suspects[:20]]
    assert np.mean(hits) > 0.6
    page = (run / "report.html").read_text()
    assert '"features":["a","b","c","d","town","same"]' in page  # the columns as they were, not as encoded
    assert '"Bonn"' in page
    assert len(json.loads((run / "history.json").read_text())) == 20

    true = write_table(tmp_path / "new.csv", labels=False)
    output = tolerant("predict", run, tmp_path / "new.csv", "--id", "key", "--out", tmp_path / "p.csv")
    assert "200 rows labelled" in output
    rows = read(tmp_path / "p.csv")
    assert rows[3]["id"] == "row3"
    assert np.mean(["abcd".index(row["label"]) for row in rows] == true) > 0.6


def test_categories_never_seen_count_as_none_and_are_counted(trained, tmp_path):
    write_table(tmp_path / "new.csv", labels=False, num_rows=10, town="Atlantis")
    words = [row["town"] for row in read(tmp_path / "new.csv")]
    said = rf"{words.count('Atlantis')} of 10 rows have a word in the column 'town' .*\(first: 'Atlantis'\)"
    with pytest.warns(UserWarning, match=said):
        tolerant("predict", trained / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert len(read(tmp_path / "p.csv")) == 10


def test_a_column_whose_words_are_all_unknown_is_named(trained, tmp_path):
    """Spelt in another way, or another column: predictions would be guesses that nobody sees."""
    write_table(tmp_path / "new.csv", labels=False, num_rows=10, town="Atlantis")
    (tmp_path / "new.csv").write_text((tmp_path / "new.csv").read_text().replace("Ulm", "ULM"))
    with pytest.warns(UserWarning, match=r"no word in the column 'town' is known from training"):
        tolerant("predict", trained / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")


def test_the_categories_of_a_run_are_those_it_predicts_with(tmp_path):
    """70 towns, of which the six rarest count as one, in new rows of other frequencies too."""
    lines = ["town,label"]
    for row in range(70):
        lines += [f"t{row:02},{'ab'[row % 2]}"] * (3 if row < 64 else 2)
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=r"'town' \(70, the rarer ones in 12 of 204 rows\).*--ignore 'town'"):
        tolerant("train", tmp_path / "rows.csv", "--loss", "lq", "--out", tmp_path / "run", *QUICK)
    columns = json.loads((tmp_path / "run" / "spec.json").read_text())["features"]["encoder"]["columns"]
    assert columns[0]["categories"] == [f"t{row:02}" for row in range(64)]
    (tmp_path / "new.csv").write_text("town\n" + "t69\n" * 9 + "t65\nnowhere\nt00\n")
    tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    rows = [(row["label"], row["confidence"]) for row in read(tmp_path / "p.csv")]
    assert len(set(rows[:-1])) == 1, "rare and unknown ones are the same to the model"
    assert rows[-1] != rows[0]


def test_predicting_without_a_column_names_it(trained, tmp_path):
    (tmp_path / "new.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ValueError, match=r"no columns \['d', .*\. Name one so, add it with empty"):
        tolerant("predict", trained / "run", tmp_path / "new.csv")


def test_predicting_for_what_is_not_there_says_so(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv' is not a data set, file or folder"):
        tolerant("predict", trained / "run", tmp_path / "none.csv")


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
    tolerant("train", data, *key, "--loss", "lq", "--epochs", 2, "--folds", 0, "--out", run)
    listed = (run / "suspects.csv").read_text()
    tolerant("audit", run)  # warnings are errors: nothing was edited
    edit(tmp_path)
    with pytest.warns(UserWarning, match=rf"2 of the \d+ rows of {data} have been edited .*\(first: {first}"):
        tolerant("audit", run)
    assert (run / "suspects.csv").read_text() == listed
    tensors = load_file(run / "audit.safetensors")
    del tensors["input_digests"]  # as in a run of before they were stored
    save_file(tensors, run / "audit.safetensors")
    tolerant("audit", run)


def test_a_cell_written_in_another_way_is_not_edited(tmp_path):
    """What counts is what the model is given, not how a spreadsheet writes it, nor what it leaves out."""
    write_table(tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    lines[5] = lines[5].replace("row4", "someone")  # a column that is left out
    command = ("train", tmp_path / "rows.csv", "--ignore", "key", "--loss", "lq", "--epochs", 2, "--folds", 0)
    tolerant(*command, "--out", tmp_path / "run")
    as_spreadsheet = [",".join(f" {cell}0" if "." in cell else cell for cell in x.split(",")) for x in lines]
    (tmp_path / "rows.csv").write_text("\n".join(f"{line},new" for line in as_spreadsheet) + "\n")
    tolerant("audit", tmp_path / "run")  # warnings are errors


def test_pictures_that_do_not_fit_in_memory_are_decoded_once_before_training(tmp_path, monkeypatch):
    write_pictures(tmp_path / "data")
    monkeypatch.setattr(data_pictures, "MEMORY_BYTES", 100)
    decoded = []
    decode = data_pictures._decode
    monkeypatch.setattr(data_pictures, "_decode", lambda *args: (decoded.append(args[0]), decode(*args))[1])
    monkeypatch.setattr(train_source, "learn", lambda *_, **__: sys.exit("enough"))
    with pytest.raises(AssertionError, match="enough"):
        tolerant("train", tmp_path / "data", "--out", tmp_path / "run")
    assert len(decoded) == 80


def test_corrections_change_the_labels_trained_on(trained, tmp_path):
    first = read(trained / "run" / "suspects.csv")[0]
    corrections = tmp_path / "corrections.csv"
    corrections.write_text(f"id,new_label\n{first['id']},{first['suggested_label']}\n")
    data, run = trained / "data.csv", tmp_path / "run"
    tolerant("train", data, "--id", "key", "--labels", corrections, "--out", run, *QUICK)
    given = {row["id"]: row["given_label"] for row in read(run / "suspects.csv")}
    assert given.get(first["id"]) != first["given_label"]
    assert load_file(run / "audit.safetensors")["given_labels"].tolist() == [
        "abcd".index(first["suggested_label"]) if row == int(first["index"]) else label
        for row, label in enumerate(load_file(trained / "run" / "audit.safetensors")["given_labels"].tolist())
    ]
    corrections.unlink()  # the run has its own copy of them
    assert "1 reviewed ones are not listed" in tolerant("audit", run)


@pytest.mark.filterwarnings("ignore:pruning at k=")
def test_what_a_person_decided_is_not_asked_again(trained, tmp_path):
    """Not by the next training, nor by the one after it, which gets both files of corrections."""
    data = trained / "data.csv"
    listed = read(trained / "run" / "suspects.csv")[:12]
    decided = [row["id"] for row in listed]
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("id,new_label\n" + "".join(f"{row['id']},{row['given_label']}\n" for row in listed))
    run = tmp_path / "run"
    output = tolerant("audit", data, "--id", "key", "--labels", first, "--out", run, "--folds", 2)
    assert "12 reviewed ones are not listed" in output
    assert f"--id key --labels {first} --labels corrections-2.csv" in output
    again = read(run / "suspects.csv")
    assert again
    assert not {row["id"] for row in again} & set(decided)
    new = next(row for row in again)
    second.write_text(
        f"id,given_label,new_label\n{new['id']},{new['given_label']},{new['suggested_label']}\n"
    )
    files = ("--labels", first, "--labels", second)
    tolerant("train", data, "--id", "key", *files, "--out", tmp_path / "run2", *QUICK)
    left = {row["id"] for row in read(tmp_path / "run2" / "suspects.csv")}
    assert not left & {*decided, new["id"]}


def test_corrections_for_a_run_are_refused(trained, tmp_path):
    result = CliRunner().invoke(make_app(), ["audit", str(trained / "run"), "--labels", "x.csv"])
    assert result.exit_code == 2
    assert "train the run again" in result.output


def test_corrections_with_an_unknown_id_are_refused_before_training(trained, tmp_path):
    corrections = tmp_path / "corrections.csv"
    corrections.write_text("id,new_label\nrow7777,a\n")
    with pytest.raises(ValueError, match=r"an id that the data does not have: 'row7777'"):
        tolerant(
            "train", trained / "data.csv", "--id", "key", "--labels", corrections, "--out", tmp_path / "r"
        )
    assert not (tmp_path / "r").exists()


def test_texts(tmp_path):
    true = write_texts(tmp_path / "texts.csv")
    run = tmp_path / "run"
    tolerant("train", tmp_path / "texts.csv", "--out", run, "--epochs", 12, "--folds", 2)
    assert "sun" in json.loads((run / "spec.json").read_text())["features"]["text"]["vocabulary"]
    tolerant("predict", run, tmp_path / "texts.csv", "--out", tmp_path / "p.csv")
    said = [row["label"] for row in read(tmp_path / "p.csv")]
    assert np.mean(np.array(said) == np.array(("weather", "sport"))[true]) > 0.9


def test_texts_without_a_common_word(tmp_path):
    lines = [f"word{i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="no word is in two"):
        tolerant("train", tmp_path / "texts.csv", "--out", tmp_path / "run", *QUICK)


def test_after_a_review_the_noise_is_fitted_to_the_labels_as_they_came(tmp_path, monkeypatch):
    """To train, and to list the run again: both fit it to what the file holds, not to what was corrected."""
    write_table(tmp_path / "x.csv")
    source = (tmp_path / "x.csv", "--id", "key")
    tolerant("train", *source, "--out", tmp_path / "run", *QUICK)
    worst = read(tmp_path / "run" / "suspects.csv")[:10]
    decided = [f"{row['id']},{row['suggested_label']}" for row in worst]
    (tmp_path / "corrections.csv").write_text("\n".join(["id,new_label", *decided]))
    came = load(tmp_path / "x.csv", id="key").given_labels
    fitted = []
    for module in (believed, find):
        monkeypatch.setattr(
            module,
            "fit_noise_model",
            lambda labels, probs: fitted.append(labels) or noise_model.fit_noise_model(labels, probs),
        )
    tolerant("train", *source, "--labels", tmp_path / "corrections.csv", "--out", tmp_path / "again", *QUICK)
    tolerant("audit", tmp_path / "again")
    assert len(fitted) == 3
    assert all(np.array_equal(np.sort(labels), np.sort(came)) for labels in fitted)
    assert np.array_equal(fitted[-1], came)


def test_texts_without_a_known_word_are_counted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = TextEncoder.fit(["a red car", "a blue car", "red bus"])
        features.transform(["red"])
    with pytest.warns(UserWarning, match=r"2 of 3 texts are empty .* \(first: the one with id 1\)"):
        features.transform(["red", "", "\u6211\u559c\u6b22"])


def test_a_text_without_a_known_word_is_named_as_in_the_file(tmp_path):
    """Rows without a label are left out: the second text that is trained on is row 3 of the file."""
    rows = "text,label\nred car,a\nred bus,\nblue car,\n!,b\nred car,a\nblue bus,b\nblue bus,b\n"
    (tmp_path / "texts.csv").write_text(rows)
    with pytest.warns(UserWarning, match="left out"):
        dataset = load(tmp_path / "texts.csv", text="text", skip_unlabelled=True)
    with pytest.warns(UserWarning, match=r"\(first: the one with id 3\)"):
        InputEncoder.fit(dataset).trainable(dataset)


def test_a_folder_of_pictures(tmp_path, monkeypatch):
    write_pictures(tmp_path / "photos")
    monkeypatch.chdir(tmp_path / "photos")
    tolerant("audit", ".", "--out", tmp_path / "run", "--folds", 0)
    assert "<title>photos" in (tmp_path / "run" / "report.html").read_text()
    (tmp_path / "new").mkdir()
    for name in ("x.png", "y.png"):
        Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "new" / name)
    (tmp_path / "new" / "._x.png").write_bytes(b"a Mac's notes on x.png")
    tolerant("predict", tmp_path / "run", tmp_path / "new", "--out", tmp_path / "p.csv")
    assert [row["id"] for row in read(tmp_path / "p.csv")] == ["x.png", "y.png"]
    write_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv has no column 'file'; it has .* Say which with file="):
        tolerant("predict", tmp_path / "run", tmp_path / "t.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no pictures \("):
        tolerant("predict", tmp_path / "run", tmp_path / "empty")


def test_arrays_and_a_named_data_set(tmp_path):
    data = table(120, noise_rate=0.1)
    np.savez(tmp_path / "rows.npz", inputs=data.inputs, labels=data.given_labels)
    tolerant("train", tmp_path / "rows.npz", "--out", tmp_path / "run", *QUICK)
    np.savez(tmp_path / "new.npz", inputs=data.inputs[:7])
    tolerant("predict", tmp_path / "run", tmp_path / "new.npz", "--out", tmp_path / "p.csv")
    assert len(read(tmp_path / "p.csv")) == 7
    np.savez(tmp_path / "wide.npz", inputs=np.zeros((3, 9)))
    with pytest.raises(ValueError, match=r"rows of shape \(9,\); the model was trained on \(6,\)"):
        tolerant("predict", tmp_path / "run", tmp_path / "wide.npz")
    with pytest.raises(ValueError, match="the model was trained on"):
        tolerant("predict", tmp_path / "run", "digits", "--split", "test")
    write_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv does not hold rows of the kind .* \(table\)"):
        tolerant("predict", tmp_path / "run", tmp_path / "t.csv")


def test_codes_that_look_like_numbers(tmp_path):
    rows = "".join(
        f"{10_000 + row % 3},{45_000 + 111_111 * (row % 2)},{'ab'[row % 3 == 0]}\n" for row in range(60)
    )
    (tmp_path / "rows.csv").write_text(f"postcode,income,label\n{rows}")
    said = tolerant(
        "train", tmp_path / "rows.csv", "--categorical", "postcode", "--out", tmp_path / "run", *QUICK
    )
    out = tmp_path / "run"
    command = f"--categorical postcode --labels corrections.csv --out {out} --epochs 15 --folds 2\n"
    assert command in said
    columns = json.loads((tmp_path / "run" / "spec.json").read_text())["features"]["encoder"]["columns"]
    assert columns[0]["categories"] == ["10000", "10001", "10002"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: _edit(run, format=99), "has format 99 .*this version reads format 2"),
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
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: _edit(run, recipe=None), "run is damaged: TypeError"),
        (lambda run: _drop(run / "audit.safetensors", "kept"), "run is damaged: KeyError"),
        (lambda run: (run / "history.json").write_text("[1]"), r"history\.json does not hold a record"),
    ],
)
def test_a_run_that_cannot_be_audited_keeps_its_list(trained, tmp_path, damage, message):
    shutil.copytree(trained / "run", tmp_path / "run")
    damage(tmp_path / "run")
    (tmp_path / "run" / "suspects.csv").write_text("old")
    with pytest.raises(ValueError, match=message):
        tolerant("audit", tmp_path / "run")
    assert (tmp_path / "run" / "suspects.csv").read_text() == "old"


def _edit(run: Path, **changes: Any) -> None:
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, **changes}))


def test_a_class_of_one_row_is_let_in_on_request(tmp_path):
    write_table(tmp_path / "data.csv", num_rows=60)
    with (tmp_path / "data.csv").open("a") as file:
        file.write("row60,1,1,1,1,Ulm,1,lonely\n")
    with pytest.raises(ValueError, match=r"label 'lonely' has fewer than the 2 rows .*--min-per-class 1"):
        tolerant("train", tmp_path / "data.csv", "--out", tmp_path / "run")
    tolerant("train", tmp_path / "data.csv", "--min-per-class", 1, "--out", tmp_path / "run", *QUICK)
    assert "lonely" in (tmp_path / "run" / "spec.json").read_text()


def test_unlabelled_rows_are_left_out_on_request(tmp_path):
    data, run = tmp_path / "data.csv", tmp_path / "run"
    write_table(data, num_rows=60)
    lines = data.read_text().splitlines()
    lines[5] = lines[5].rsplit(",", 1)[0] + ","
    data.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"1 rows have no 'label'.*\(--skip-unlabelled\)"):
        tolerant("train", data, "--id", "key", "--out", run)
    with pytest.warns(UserWarning, match="1 of 60 rows have no 'label' and are left out"):
        said = tolerant("train", data, "--id", "key", "--skip-unlabelled", "--out", run, *QUICK)
    assert "of 59 rows" in said
    assert "--id key --skip-unlabelled --labels corrections.csv" in said
    with pytest.warns(UserWarning, match="left out"):
        assert "59 rows, " in tolerant("audit", run)


def test_labels_that_cannot_be_trained_on(tmp_path):
    (tmp_path / "one.csv").write_text("a,label\n" + "1,x\n" * 30)
    with pytest.raises(ValueError, match="at least two classes are needed"):
        tolerant("train", tmp_path / "one.csv", "--out", tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="Did you mean 'digits'"):
        tolerant("train", "digts", "--out", tmp_path / "run")


def test_a_class_of_two_rows_and_a_hostile_name(tmp_path):
    """Two rows of a class are enough; a label that is markup is shown as text."""
    write_table(tmp_path / "data.csv", num_rows=60)
    lines = (tmp_path / "data.csv").read_text().splitlines()
    odd = ",<b>[red]x</b>"
    lines[1:3] = [line.rsplit(",", 1)[0] + odd for line in lines[1:3]]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    tolerant("train", tmp_path / "data.csv", "--loss", "lq", "--id", "key", "--out", tmp_path / "run", *QUICK)
    assert "<b>[red]x</b>" not in (tmp_path / "run" / "report.html").read_text()


def test_k_must_be_a_number_or_auto(tmp_path):
    result = CliRunner().invoke(make_app(), ["train", "digits", "--k", "often"])
    assert result.exit_code == 2
    assert "a number or auto" in result.output


@pytest.fixture
def untrained(monkeypatch):
    """Fails the test if anything is trained."""

    def learn(*_: Any, **__: Any) -> None:
        raise AssertionError("trained before the refusal")

    monkeypatch.setattr(train_source, "learn", learn)


def test_what_cannot_be_written_is_refused_before_training(untrained, tmp_path):
    write_table(tmp_path / "data.csv")
    (tmp_path / "a file").write_text("")
    with pytest.raises(FileExistsError, match=r"cannot write to the folder .*a file: it is a file"):
        tolerant("train", tmp_path / "data.csv", "--ignore", "key", "--out", tmp_path / "a file")


def test_rows_with_one_name_are_refused_before_training(untrained, tmp_path):
    write_table(tmp_path / "data.csv")
    with pytest.raises(ValueError, match=r"ids must all be different.*got 'Ulm' twice"):
        tolerant("train", tmp_path / "data.csv", "--id", "town", "--ignore", "key", "--out", tmp_path / "r")


def test_the_demo_needs_a_folder_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr("tolerant.cli.demo._train", lambda *_: pytest.fail("it trains"))
    (tmp_path / "demo").write_text("")
    with pytest.raises(OSError, match="demo: it is a file"):
        tolerant("demo", "--out", tmp_path / "demo")


def test_a_device_nobody_knows(tmp_path):
    write_table(tmp_path / "data.csv")
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu' or 'cuda'; got 'gpu'"):
        tolerant("train", tmp_path / "data.csv", "--id", "key", "--device", "gpu", "--out", tmp_path / "r")


def test_the_command_says_what_it_is_for():
    assert "labels that are partly wrong" in tolerant("--help")
    assert tolerant("--version") == f"tolerant {__version__}\n"


@pytest.mark.parametrize("column", ["file", "photo"])
def test_a_list_of_pictures_with_other_columns(column, tmp_path):
    """Beside its file a picture often has a date or a split, which do not make it a row of a table."""
    rows = pictures(60, noise_rate=0.1)
    lines = [f"{column},taken,label"]
    for row, (pixels, label) in enumerate(zip(rows.inputs, rows.given_labels, strict=True)):
        Image.fromarray(pixels.squeeze()).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,2020-01-{1 + row % 28},{rows.class_names[label]}")
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    name = () if column == "file" else ("--file", column)
    said = tolerant("train", tmp_path / "list.csv", *name, *QUICK, "--folds", "0", "--out", tmp_path / "run")
    if name:
        assert "list.csv --file photo" in said
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["features"]["kind"] == "image"
    tolerant("predict", tmp_path / "run", tmp_path / "list.csv", "--out", tmp_path / "labels.csv")
    assert read(tmp_path / "labels.csv")[3]["id"] == "3.png"


def test_how_data_is_read_is_not_asked_of_a_run(trained):
    result = CliRunner().invoke(make_app(), ["audit", str(trained / "run"), "--label", "town"])
    assert result.exit_code == 2
    assert "--label" in result.output
    assert "is for data" in result.output


class _Stop(Callback):
    """Ctrl-C in the final training, after an epoch."""

    def on_epoch_end(self, job: Job, record: Record) -> None:
        if record["epoch"] == 7:
            signal.raise_signal(signal.SIGINT)


class _Starts(Callback):
    def __init__(self) -> None:
        self.records: list[Record | None] = []

    def on_start(self, job: Job, record: Record | None) -> None:
        self.records.append(record)


def test_a_run_that_was_stopped_goes_on_and_another_starts_anew(tmp_path, capsys):
    write_table(tmp_path / "rows.csv")
    rows, settings = opt.make_source(str(tmp_path / "rows.csv"), {"id": "key"}), Settings(epochs=15)

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
    assert [record and record["epoch"] for record in again.records] == [7]
    assert all(torch.equal(went_on[name], tensor) for name, tensor in never_stopped.items())
    with pytest.raises(typer.Exit):
        run("run", _Stop())
    with pytest.warns(UserWarning, match="earlier-1"):
        run("run", other, replace(settings, lr=0.02))
    assert other.records == [None]


def test_a_run_of_other_settings_is_set_aside_and_the_same_one_written_again(tmp_path):
    write_table(tmp_path / "rows.csv")
    rows, run = opt.make_source(str(tmp_path / "rows.csv"), {"id": "key"}), tmp_path / "run"

    def train(seed: int) -> bytes:
        train_over_ranks(rows, run, Settings(epochs=3, seed=seed), device="cpu", folds=0)
        return (run / "model.safetensors").read_bytes()

    first = train(0)
    assert train(0) == first
    assert {path.name for path in run.iterdir()} == FILES
    (run / "suspects.csv").write_text("marked by hand")
    for number in (1, 2):
        with pytest.warns(UserWarning, match=rf"run of other data or settings.*earlier-{number} now.*--out"):
            train(number)
    assert {path.name for path in run.iterdir()} == FILES | {"earlier-1", "earlier-2"}
    assert {path.name for path in (run / "earlier-1").iterdir()} == FILES
    assert (run / "earlier-1" / "model.safetensors").read_bytes() == first
    assert (run / "earlier-1" / "suspects.csv").read_text() == "marked by hand"
    assert "Review them" in tolerant("audit", run / "earlier-2")


def test_audit_does_not_write_over_another_runs_list(trained, tmp_path):
    (tmp_path / "spec.json").write_text("{}")
    result = CliRunner().invoke(make_app(), ["audit", str(trained / "run"), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds another run" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "suspects.csv").exists()


def test_the_next_command_goes_to_the_folder_that_was_given(trained, tmp_path, monkeypatch):
    said = tolerant("audit", trained / "run").replace("\n", " ")
    assert f"--labels corrections.csv --out {trained / 'run'}" in said
    monkeypatch.chdir(trained)
    assert "--out" not in tolerant("audit", "run"), "the default of train"


def test_the_next_command_keeps_what_was_chosen(tmp_path):
    write_table(tmp_path / "rows.csv", num_rows=60)
    options = ("--loss", "lq", "--epochs", "2", "--folds", "0")
    said = tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", *options)
    command = said.replace("\n", " ").split("corrections: ")[1]
    assert f"--out {tmp_path / 'run'} --loss lq --epochs 2 --folds 0 Label new rows" in command
    assert "--seed" not in command


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


def test_checkpoints_on_another_disk(tmp_path):
    """A link to where there is room: the training ended in an error when all was written."""
    write_table(tmp_path / "rows.csv", num_rows=60)
    disk = tmp_path / "disk"
    write_atomic(disk / "notes" / "own.txt", "")
    write_atomic(disk / ("0" * 16) / "fold" / "checkpoint.json", "of other settings")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(disk)
    tolerant("train", tmp_path / "rows.csv", "--id", "key", "--out", tmp_path / "run", "--folds", 0)
    assert [path.name for path in disk.iterdir()] == ["notes"]
    assert (disk / "notes" / "own.txt").exists()


def test_any_label_can_be_printed_and_nobody_need_listen(tmp_path):
    """A terminal of another encoding, and a scheduler that closes standard error."""
    with (tmp_path / "rows.csv").open("w", encoding="utf-8") as file:
        file.write("a,label\n")
        file.writelines(f"{row},{'猫' if (row < 30) ^ (row % 9 == 0) else 'dog'}\n" for row in range(60))
    words = [sys.executable, "-m", "tolerant", "train", "rows.csv", "--epochs", "2", "--folds", "0"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert b"\\u732b" in done.stdout


def test_the_page_is_written_once_with_the_limit_asked_for(tmp_path, monkeypatch):
    write_table(tmp_path / "rows.csv", num_rows=60)
    limits = []
    write_page = save.write_page
    monkeypatch.setattr(
        save,
        "write_page",
        lambda *args, limit, **rest: (limits.append(limit), write_page(*args, limit=limit, **rest)),
    )
    common = (tmp_path / "rows.csv", "--id", "key", "--out", tmp_path / "run", "--folds", 0)
    tolerant("audit", *common, "--limit", 3)
    assert limits == [3]
    tolerant("audit", tmp_path / "run")
    assert limits == [3, page.MOST_SHOWN], "the option's default is the page's"


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
        corrected = CorrectedLabels(labels, reviewed, np.zeros(60, bool))
        data = TrainingData(Source("rows.csv"), dataset, InputEncoder.fit(dataset), (), corrected)
        return data.fingerprint(Settings(seed=int(changed == "settings")), 2 + (changed == "folds"))

    assert fingerprint() == fingerprint() != fingerprint(changed)


@pytest.mark.parametrize(("num_rows", "said"), [(30, True), (60, False)])
def test_few_rows_are_no_evidence(num_rows, said, tmp_path):
    write_table(tmp_path / "data.csv", num_rows=num_rows)
    output = tolerant("train", tmp_path / "data.csv", "--out", tmp_path / "run", *QUICK)
    assert ("no evidence yet" in output) is said


def test_a_model_that_doubts_most_labels_is_called_weak(tmp_path, capsys):
    source = opt.make_source("rows.csv", {})
    for wrong, weak in ((30, False), (31, True)):
        probs = np.tile([0.9, 0.1], (60, 1))
        suspects = find_suspects((np.arange(60) < wrong).astype(int), probs)
        print_suspects(suspects, tmp_path, next_command(source, ()))
        assert ("too weak to judge" in capsys.readouterr().out) is weak


@pytest.mark.parametrize(
    "command", [("train", "digits"), ("audit", "digits"), ("noise", "digits"), ("demo",)]
)
def test_a_negative_seed_is_refused_by_the_name_of_its_option(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(make_app(), [*command, "--seed", "-1"])
    assert result.exit_code == 2
    assert "'--seed'" in result.output
