"""`tolerant train` and `tolerant predict` on every kind of source, as a person runs them."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest
from own_data_helpers import (
    AT_ONCE,
    QUICK,
    RUN_FILES,
    read,
    tolerant,
    write_pictures,
    write_table,
    write_texts,
)
from PIL import Image
from train_helpers import pictures, table

from tolerant.data import InputEncoder, TextEncoder, load
from tolerant.data.readers import pictures as data_pictures


def test_a_table_from_training_to_predictions(trained, tmp_path):
    run = trained / "run"
    assert {path.name for path in run.iterdir()} == RUN_FILES
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
    """70 towns, whose places are those of the training, in new rows of other frequencies too."""
    lines = ["town,label"]
    for row in range(70):
        lines += [f"t{row:02},{'ab'[row % 2]}"] * (3 if row < 64 else 2)
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=r"the 64 most frequent .*: 'town' \(70\)\. .*--model trees"):
        tolerant("train", tmp_path / "rows.csv", "--loss", "lq", "--out", tmp_path / "run", *QUICK)
    columns = json.loads((tmp_path / "run" / "spec.json").read_text())["features"]["encoder"]["columns"]
    assert columns[0]["categories"] == [f"t{row:02}" for row in range(70)]
    (tmp_path / "new.csv").write_text("town\n" + "t69\n" * 9 + "t65\nnowhere\nt00\n")
    with pytest.warns(UserWarning, match=r"1 of 12 rows have a word .*\(first: 'nowhere'\)"):
        tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    (tmp_path / "again.csv").write_text("town\n" + "t00\n" * 9 + "t69\n")
    tolerant("predict", tmp_path / "run", tmp_path / "again.csv", "--out", tmp_path / "again")
    first, again = read(tmp_path / "p.csv"), read(tmp_path / "again")
    assert first[0] | {"id": ""} == again[-1] | {"id": ""} != again[0] | {"id": ""}


def test_predicting_without_a_column_names_it(trained, tmp_path):
    (tmp_path / "new.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ValueError, match=r"no columns \['d', .*\. Name one so, add it with empty"):
        tolerant("predict", trained / "run", tmp_path / "new.csv")


def test_predicting_for_what_is_not_there_says_so(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv' is not a data set, file or folder"):
        tolerant("predict", trained / "run", tmp_path / "none.csv")


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
    tolerant("train", ".", "--out", tmp_path / "run", *AT_ONCE)
    assert "<title>photos" in (tmp_path / "run" / "report.html").read_text()
    (tmp_path / "new").mkdir()
    for name in ("x.png", "y.png"):
        Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "new" / name)
    (tmp_path / "new" / "._x.png").write_bytes(b"a Mac's notes on x.png")
    with pytest.warns(UserWarning, match=r"1 hidden files \(first: \._x\.png\)"):
        tolerant("predict", tmp_path / "run", tmp_path / "new", "--out", tmp_path / "p.csv")
    assert [row["id"] for row in read(tmp_path / "p.csv")] == ["x.png", "y.png"]
    write_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv has no column 'file'; it has .* Say which with file="):
        tolerant("predict", tmp_path / "run", tmp_path / "t.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no pictures \("):
        tolerant("predict", tmp_path / "run", tmp_path / "empty")


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
    said = tolerant("train", tmp_path / "list.csv", *name, *AT_ONCE, "--out", tmp_path / "run")
    if name:
        assert "list.csv --file photo" in said
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["features"]["kind"] == "image"
    tolerant("predict", tmp_path / "run", tmp_path / "list.csv", "--out", tmp_path / "labels.csv")
    assert read(tmp_path / "labels.csv")[3]["id"] == "3.png"


def test_pictures_that_do_not_fit_in_memory_are_decoded_once_before_training(tmp_path, monkeypatch):
    write_pictures(tmp_path / "data")
    monkeypatch.setattr(data_pictures, "MEMORY_BYTES", 100)
    decoded = []
    decode = data_pictures._decode
    monkeypatch.setattr(data_pictures, "_decode", lambda *args: (decoded.append(args[0]), decode(*args))[1])
    monkeypatch.setattr("tolerant.own_data.train_source.learn", lambda *_, **__: sys.exit("enough"))
    with pytest.raises(AssertionError, match="enough"):
        tolerant("train", tmp_path / "data", "--out", tmp_path / "run")
    assert len(decoded) == 80


def test_arrays_and_a_named_data_set(tmp_path):
    data = table(120, noise_rate=0.1)
    np.savez(tmp_path / "rows.npz", inputs=data.inputs, labels=data.given_labels)
    tolerant("train", tmp_path / "rows.npz", "--out", tmp_path / "run", *AT_ONCE)
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
    out = tmp_path / "run"
    said = tolerant("train", tmp_path / "rows.csv", "--categorical", "postcode", "--out", out, *AT_ONCE)
    command = f"--categorical postcode --labels corrections.csv --out {out} --epochs 2 --folds 0\n"
    assert command in said
    columns = json.loads((out / "spec.json").read_text())["features"]["encoder"]["columns"]
    assert columns[0]["categories"] == ["10000", "10001", "10002"]


def test_a_class_of_one_row_is_let_in_on_request(tmp_path):
    write_table(tmp_path / "data.csv", num_rows=60)
    with (tmp_path / "data.csv").open("a") as file:
        file.write("row60,1,1,1,1,Ulm,1,lonely\n")
    with pytest.raises(ValueError, match=r"label 'lonely' has fewer than the 2 rows .*--min-per-class 1"):
        tolerant("train", tmp_path / "data.csv", "--out", tmp_path / "run")
    tolerant("train", tmp_path / "data.csv", "--min-per-class", 1, "--out", tmp_path / "run", *AT_ONCE)
    assert "lonely" in (tmp_path / "run" / "spec.json").read_text()


def test_a_class_of_two_rows_and_a_hostile_name(tmp_path):
    """Two rows of a class are enough; a label that is markup is shown as text."""
    write_table(tmp_path / "data.csv", num_rows=60)
    lines = (tmp_path / "data.csv").read_text().splitlines()
    odd = ",<b>[red]x</b>"
    lines[1:3] = [line.rsplit(",", 1)[0] + odd for line in lines[1:3]]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    tolerant("train", tmp_path / "data.csv", "--loss", "lq", "--id", "key", "--out", tmp_path / "run", *QUICK)
    assert "<b>[red]x</b>" not in (tmp_path / "run" / "report.html").read_text()


def test_unlabelled_rows_are_left_out_on_request(tmp_path):
    data, run = tmp_path / "data.csv", tmp_path / "run"
    write_table(data, num_rows=60)
    lines = data.read_text().splitlines()
    lines[5] = lines[5].rsplit(",", 1)[0] + ","
    data.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"1 rows have no 'label'.*\(--skip-unlabelled\)"):
        tolerant("train", data, "--id", "key", "--out", run)
    with pytest.warns(UserWarning, match="1 of 60 rows have no 'label' and are left out"):
        said = tolerant("train", data, "--id", "key", "--skip-unlabelled", "--out", run, *AT_ONCE)
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
