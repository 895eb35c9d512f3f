"""A review's corrections in the next training: labels change, and nobody is asked twice."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from own_data_helpers import AT_ONCE, QUICK, read, tolerant, write_pictures, write_table, write_texts
from safetensors.torch import load_file

from tolerant.data import load
from tolerant.data.digest import content_digests
from tolerant.suspects.noise_model import fit_noise_model

by_hand = pytest.mark.filterwarnings("ignore:.*corrections have no row_digest")


@by_hand
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


@by_hand
@pytest.mark.filterwarnings("ignore:pruning at k=")
def test_what_a_person_decided_is_not_asked_again(trained, tmp_path):
    """Not by the next training, nor by the one after it, which gets both files of corrections."""
    data = trained / "data.csv"
    listed = read(trained / "run" / "suspects.csv")[:12]
    decided = [row["id"] for row in listed]
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("id,new_label\n" + "".join(f"{row['id']},{row['given_label']}\n" for row in listed))
    run = tmp_path / "run"
    output = tolerant("train", data, "--id", "key", "--labels", first, "--out", run, *QUICK)
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


def test_corrections_with_an_unknown_id_are_refused_before_training(trained, tmp_path):
    corrections = tmp_path / "corrections.csv"
    corrections.write_text("id,new_label\nrow7777,a\n")
    with pytest.raises(ValueError, match=r"an id that the data does not have: 'row7777'"):
        tolerant(
            "train", trained / "data.csv", "--id", "key", "--labels", corrections, "--out", tmp_path / "r"
        )
    assert not (tmp_path / "r").exists()


def test_corrections_that_are_still_among_the_downloads_are_said_so_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tolerant.data.Source.load", None)  # nothing is read
    with pytest.raises(FileNotFoundError, match=r"there is no .* browser saves its downloads"):
        tolerant("train", "digits", "--labels", tmp_path / "corrections.csv", "--out", tmp_path / "r")
    assert not (tmp_path / "r").exists()


@by_hand
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
    for module in ("own_data.believed", "suspects.ranking"):
        monkeypatch.setattr(
            f"tolerant.{module}.fit_noise_model",
            lambda labels, probs: fitted.append(labels) or fit_noise_model(labels, probs),
        )
    tolerant("train", *source, "--labels", tmp_path / "corrections.csv", "--out", tmp_path / "again", *QUICK)
    tolerant("audit", tmp_path / "again")
    assert len(fitted) == 3
    assert all(np.array_equal(np.sort(labels), np.sort(came)) for labels in fitted)
    assert np.array_equal(fitted[-1], came)


def _decide(run: Path, corrections: Path) -> int:
    """All that the page of a run shows, decided for the given label, as the page exports it."""
    (text,) = re.findall(r'id="data">(.*?)</script>', (run / "report.html").read_text(), re.DOTALL)
    shown = json.loads(text)
    lines = [
        f"{row},{shown['classes'][given]},keep,{shown['classes'][given]},{digest}\n"
        for row, given, digest in zip(shown["ids"], shown["given"], shown["digests"], strict=True)
    ]
    corrections.write_text("id,given_label,decision,new_label,row_digest\n" + "".join(lines))
    return len(lines)


@pytest.mark.filterwarnings("ignore:nearly every row")
@pytest.mark.parametrize("kind", ["table", "texts", "pictures"])
def test_rows_that_moved_are_not_given_the_decisions_of_others(kind, tmp_path):
    """With row numbers for ids, a first row that was deleted moved every decision by one."""
    data, run, corrections = (
        tmp_path / ("data" if kind == "pictures" else "data.csv"),
        tmp_path / "run",
        tmp_path / "c.csv",
    )
    {"table": write_table, "texts": write_texts, "pictures": write_pictures}[kind](data)
    nameless = ("--ignore", "key") if kind == "table" else ()  # a column of names would be recognised
    tolerant("train", data, *AT_ONCE, "--loss", "lq", *nameless, "--out", run)
    number = _decide(run, corrections)
    assert number > 3
    again = ("--labels", corrections, "--out", tmp_path / "again", *AT_ONCE, "--loss", "lq", *nameless)
    assert f"{number:,} reviewed" in tolerant("train", data, *again)
    if kind == "pictures":  # another picture under an old name
        first, last = (sorted(data.rglob("*.png"))[row] for row in (0, -1))
        names = [line.partition(",")[0] for line in corrections.read_text().splitlines()[1:]]
        shutil.copy(last if names[0] == str(first.relative_to(data)) else first, data / names[0])
    else:
        lines = data.read_text().splitlines(keepends=True)
        data.write_text("".join([lines[0], *lines[2:], lines[1]]))
    with pytest.raises(ValueError, match=rf"of {number} corrections were made for rows that hold something"):
        tolerant("train", data, *again)


def test_a_digest_is_of_the_row_alone(tmp_path):
    """Not of how a spreadsheet writes its numbers, of the other rows, nor of columns that are left out."""
    write_table(tmp_path / "x.csv")
    before = load(tmp_path / "x.csv", id="key")
    digests = content_digests(before, range(200))
    assert len(set(digests)) == 200
    lines = (tmp_path / "x.csv").read_text().splitlines(keepends=True)
    respelt = [",".join(f" {cell}0" if "." in cell else cell for cell in line.split(",")) for line in lines]
    (tmp_path / "x.csv").write_text("".join([respelt[0], *respelt[2:]]))
    after = load(tmp_path / "x.csv", id="key", ignore=["town", "b"])
    assert content_digests(after, range(199)) == digests[1:]
    assert content_digests(after, [7, 3]) == [digests[8], digests[4]]


@by_hand
def test_a_dropped_row_is_in_nothing(trained, tmp_path):
    first = read(trained / "run" / "suspects.csv")[0]
    corrections = tmp_path / "corrections.csv"
    corrections.write_text(f"id,given_label,decision,new_label\n{first['id']},{first['given_label']},drop,\n")
    source = (trained / "data.csv", "--id", "key")
    tolerant("train", *source, "--labels", corrections, "--out", tmp_path / "run", "--model", "linear")
    before = (tmp_path / "run" / "suspects.csv").read_text()
    assert first["id"] not in [row["id"] for row in read(tmp_path / "run" / "suspects.csv")]
    corrections.unlink()
    assert "\n199 rows, 4 classes" in tolerant("audit", tmp_path / "run")
    assert (tmp_path / "run" / "suspects.csv").read_text() == before
    rows = [f"{row['key']},drop," for row in read(trained / "data.csv")]
    corrections.write_text("\n".join(["id,decision,new_label", *rows]))
    with pytest.raises(ValueError, match=r"drop 200 of 200 rows, and leave fewer than two classes"):
        tolerant("train", *source, "--labels", corrections, "--out", tmp_path / "run", "--model", "linear")


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_what_noise_writes_is_trained_on(trained, tmp_path, suffix):
    source, out = (trained / "data.csv", "--id", "key"), tmp_path / f"noisy{suffix}"
    tolerant("noise", *source, "--rate", 0.3, "--out", out)
    said = tolerant("train", *source, "--labels", out, "--out", tmp_path / "run", "--model", "linear")
    assert "reviewed" not in said
    stored = load_file(tmp_path / "run" / "audit.safetensors")
    came = load(trained / "data.csv", id="key").given_labels
    assert 0.1 < (stored["given_labels"].numpy() != came).mean() < 0.4
    before = (tmp_path / "run" / "suspects.csv").read_text()
    out.unlink()  # the run has its own copy of them
    tolerant("audit", tmp_path / "run")
    assert (tmp_path / "run" / "suspects.csv").read_text() == before
