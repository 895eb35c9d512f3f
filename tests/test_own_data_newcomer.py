"""What a newcomer stumbles over: unnamed columns, pictures of many sizes, how long it takes, all rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from own_data_helpers import AT_ONCE, read, tolerant, write_pictures, write_table, write_texts
from PIL import Image
from typer.testing import CliRunner

from tolerant import find_suspects
from tolerant.cli import make_app
from tolerant.data import NoisyDataset, Source, load
from tolerant.data.encoders.inputs import InputEncoder
from tolerant.data.readers.row_files import read_frame
from tolerant.own_data import Settings, load_run
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.classifiers.choose import members_for
from tolerant.own_data.out_of_fold import _trainings
from tolerant.own_data.reasons import find_reasons
from tolerant.own_data.train_source import train_source
from tolerant.own_data.warn_of_classes import warn_of_missing_classes
from tolerant.own_data.whole_time import WholeTime


def roles(frame: pd.DataFrame, tmp_path: Path, **options: object) -> tuple[dict[str, object], str]:
    frame.to_csv(tmp_path / "rows.csv", index=False)
    said: list[str] = []
    found = Source(str(tmp_path / "rows.csv"), options).with_roles(said.append)
    return dict(found.options), " ".join(said)


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    words = np.array(["late", "kind", "slow", "box", "good", "back", "never", "again", "fine", "broken"])
    return pd.DataFrame(
        {
            "customer": [f"C-{number:05d}" for number in rng.permutation(200)],
            "nr": np.arange(200),
            "comment": [" ".join(rng.choice(words, 6)) for _ in range(200)],
            "age": rng.integers(18, 80, 200),
            "paid": [f"${number:,}" for number in rng.integers(1000, 9999, 200)],
            "label": rng.choice(["a", "b"], 200),
        }
    )


def test_texts_are_read_beside_columns_and_names_are_left_out(frame, tmp_path):
    found, said = roles(frame, tmp_path)
    assert found == {"id": "customer", "text": ["comment"], "ignore": ["nr"]}
    assert "Column 'customer' names the rows: --id customer" in said
    assert "Text: 'comment' (--text comment); columns beside it: 'age', 'paid'" in said
    assert "nearly every row has something else there: 'nr'" in said
    assert "To learn from one all the same: --categorical nr" in said
    _, said = roles(frame.drop(columns="nr"), tmp_path)
    assert "--categorical" not in said, "of a text it would know the 64 most frequent ones"
    found, said = roles(frame.assign(answer=frame["comment"][::-1].to_numpy()), tmp_path)
    assert found["text"] == ["comment", "answer"]
    assert "Text: 'comment', 'answer' (--text comment --text answer)" in said


def test_half_of_the_comments_that_are_there_must_differ(frame, tmp_path):
    rare = frame["comment"].where(np.arange(200) < 70, "")
    assert roles(frame.assign(comment=rare), tmp_path)[0]["text"] == ["comment"]
    assert "text" not in roles(frame.assign(comment=frame["comment"][0]), tmp_path)[0]


def test_sentences_without_a_word_in_common_are_names(frame, tmp_path):
    frame["comment"] = [f"{number}x {number}y {number}z" for number in range(200)]
    assert roles(frame.drop(columns=["nr"]), tmp_path)[0] == {"id": "customer", "ignore": ["comment"]}


def test_a_text_is_trained_on_where_nothing_else_is(frame, tmp_path):
    found, said = roles(frame.drop(columns=["age", "paid"]).assign(gone=""), tmp_path)
    assert found == {"id": "customer", "text": ["comment"], "ignore": ["nr"]}
    assert "Column 'comment' holds texts, and is trained on: --text comment" in said
    assert load(tmp_path / "rows.csv", **found).kind == "text", "in an empty column is nothing to read"
    found, _ = roles(frame[["nr", "customer", "label"]], tmp_path)  # names alone are better than nothing
    assert found == {"id": "nr", "text": ["customer"]}


def test_what_somebody_has_said_stays(frame, tmp_path):
    found, said = roles(frame, tmp_path, ignore=["comment", "nr"], id="nr", categorical=["customer"])
    assert found == {"ignore": ["comment", "nr"], "id": "nr", "categorical": ["customer"]}
    assert said == ""
    coded = frame[["customer", "age", "label"]]
    assert roles(coded, tmp_path, categorical=["age"])[0] == {"categorical": ["age"], "id": "customer"}
    assert roles(frame, tmp_path, text="comment")[0] == {
        "text": ["comment"],
        "id": "customer",
        "ignore": ["nr"],
    }
    two = frame.assign(answer=frame["comment"][::-1].to_numpy())
    assert roles(two, tmp_path, text=["comment"])[0]["ignore"] == ["nr", "answer"], "who names one has chosen"
    assert roles(frame.drop(columns=["customer", "nr", "comment"]), tmp_path) == ({}, "")


def test_numbers_that_differ_in_every_row_are_learnt_from(frame, tmp_path):
    frame["weight"] = np.random.default_rng(1).permutation(200) * 7
    numbers = frame[["weight", "age", "label"]]
    assert roles(numbers, tmp_path) == ({}, "")
    called_ids = numbers.rename(columns={"weight": "customer_id"})
    assert roles(called_ids, tmp_path)[0] == {"id": "customer_id"}
    assert roles(called_ids.head(19), tmp_path) == ({}, ""), "of few rows all may differ by chance"


def test_ids_of_few_rows_are_ids_too(frame, tmp_path):
    """Of a table that is sorted by class they tell the class."""
    few = frame[["age", "label"]][:40].assign(rownames=np.random.default_rng(0).permutation(40))
    assert roles(few, tmp_path)[0] == {"id": "rownames"}
    assert roles(few[:19], tmp_path)[0] == {}
    assert roles(few.rename(columns={"rownames": "points"}), tmp_path)[0] == {}


@pytest.mark.parametrize("name", ["PassengerId", "userID", "rownames", "row number", "subject.id"])
def test_numbers_called_like_names_of_rows_name_them(frame, tmp_path, name):
    """Of rows that were drawn from a larger table, so that they do not count."""
    frame = frame[["age", "label"]].assign(**{name: np.random.default_rng(1).permutation(900)[:200]})
    assert roles(frame, tmp_path)[0] == {"id": name}


def test_the_index_that_pandas_wrote_names_the_rows(frame, tmp_path):
    frame[["age", "label"]].sample(150, random_state=0).to_csv(tmp_path / "drawn.csv")
    found = Source(str(tmp_path / "drawn.csv")).with_roles(lambda line: None)
    assert found.options == {"id": "Unnamed: 0"}


def test_a_word_of_many_rows_is_no_name_of_them(frame, tmp_path):
    frame = frame[["age", "label"]].assign(paid=np.arange(200) * 3, PassengerId=np.arange(200) // 2)
    assert roles(frame, tmp_path) == ({}, "")


def test_a_file_that_is_not_there_is_looked_for(tmp_path):
    write_table(tmp_path / "customers.csv")
    for name, hint in (
        ("custmers.csv", "Did you mean 'customers.csv'?"),
        ("nothing.parquet", f"There is no nothing.parquet in {tmp_path}"),
        ("none/customers.csv", f"There is no folder {tmp_path / 'none'}"),
    ):
        with pytest.raises(FileNotFoundError) as refused:
            tolerant("train", tmp_path / name)
        assert str(refused.value).endswith(f"is not a data set, file or folder. {hint}")


def test_a_name_without_a_file_may_be_a_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, hint in (
        ("digit", r"Did you mean 'digits'\?"),
        ("date", r"Did you mean 'data'\?"),  # as of a run folder that is to be audited
        ("something", "The named ones are fashion-mnist"),
        ("someone/mails", "On the Hugging Face hub"),
        ("data/mails", "There is no mails in"),
    ):
        with pytest.raises(FileNotFoundError, match=hint):
            tolerant("train", name)


def test_the_text_that_excel_writes_is_read(tmp_path):
    write_table(tmp_path / "rows.csv")
    frame = pd.read_csv(tmp_path / "rows.csv")
    frame.to_csv(tmp_path / "rows.txt", sep="\t", encoding="utf-16", index=False)
    assert read_frame(tmp_path / "rows.txt").equals(read_frame(tmp_path / "rows.csv"))


def test_a_table_with_a_column_of_names_is_trained_and_listed_again(tmp_path):
    write_table(tmp_path / "rows.csv")
    said = tolerant(
        "train", tmp_path / "rows.csv", "--out", tmp_path / "run", "--model", "linear", "--all-rows"
    )
    assert "Column 'key' names the rows" in said
    assert read(tmp_path / "run" / "suspects.csv")[0]["id"].startswith("row")
    before = (tmp_path / "run" / "rows.csv").read_text()
    rows = read(tmp_path / "run" / "rows.csv")
    listed = {row["id"]: row for row in read(tmp_path / "run" / "suspects.csv")}
    assert len(rows) == 200
    assert {row["id"] for row in rows if row["suspect"] == "yes"} == set(listed)
    for row in rows:
        known = listed.get(row["id"], {"suggested_label": row["given_label"], "p_right": row["p_right"]})
        assert row["predicted_label"] == known["suggested_label"]
        assert row["p_right"] == known["p_right"]
    assert sum(row["kept"] == "yes" for row in rows) == load_run(tmp_path / "run").audit["kept"].sum()
    (tmp_path / "run" / "rows.csv").unlink()
    tolerant("audit", tmp_path / "run", "--all-rows")
    assert (tmp_path / "run" / "rows.csv").read_text() == before


def test_texts_with_a_column_of_names_are_read_as_texts(tmp_path):
    write_texts(tmp_path / "texts.csv")
    frame = pd.read_csv(tmp_path / "texts.csv")
    rng = np.random.default_rng(0)
    frame["text"] = [f"{text} {' '.join(rng.choice(list('xyzuvw'), 5))}" for text in frame.text]
    frame.insert(0, "id", [f"t{number}" for number in range(len(frame))])
    frame.to_csv(tmp_path / "texts.csv", index=False)
    tolerant("train", tmp_path / "texts.csv", "--out", tmp_path / "run", "--features", "none", "--folds", 2)
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["source"]["options"] == {"id": "id", "text": ["text"]}
    frame[["text"]].head(3).to_csv(tmp_path / "new.csv", index=False)
    tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert len(read(tmp_path / "p.csv")) == 3


def test_pictures_of_many_sizes_train(tmp_path):
    write_pictures(tmp_path / "pictures")
    for number, path in enumerate(sorted((tmp_path / "pictures").rglob("*.png"))):
        if number % 3:
            Image.open(path).resize((20 + number % 5, 16)).save(path)
    with pytest.warns(UserWarning, match=r"pictures differ in size .*: all become \d+ x \d+"):
        tolerant("train", tmp_path / "pictures", "--out", tmp_path / "run", "--features", "none", *AT_ONCE)
    tolerant("predict", tmp_path / "run", tmp_path / "pictures", "--out", tmp_path / "p.csv")
    assert len(read(tmp_path / "p.csv")) == 80


def test_the_time_of_all_trainings_is_said_once_and_only_if_long(monkeypatch):
    class Job:
        class recipe:
            epochs = 100

    clock = iter([0.0, *(3.0 * epoch for epoch in range(1, 50))])
    monkeypatch.setattr("tolerant.own_data.whole_time.time.perf_counter", lambda: next(clock))
    said: list[str] = []
    watch = WholeTime(said.append, 6.25)
    watch.on_start(Job, None)
    for _ in range(10):
        watch.on_epoch_end(Job, {})
    assert said == ["About 31 min for all trainings together."]
    clock = iter([0.0, *(0.001 * epoch for epoch in range(1, 200))])
    quick = WholeTime(said.append, 6.25)
    quick.on_start(Job, None)
    for _ in range(100):
        quick.on_epoch_end(Job, {})
    assert len(said) == 1


@pytest.mark.parametrize(("device", "trainings"), [("cpu", 5 + 5 / 4), ("cuda", 1 + 5 / 4)])
def test_the_time_of_all_trainings_counts_the_folds_and_the_final_one(device, trainings):
    """Which has five fourths of the rows of a fold's; a GPU trains the folds side by side."""
    candidate = NetworkCandidate(Settings(), torch.device(device))
    assert _trainings(5, candidate) == trainings


def test_a_class_is_missed_only_if_some_of_its_rows_were_to_be_expected(recwarn):
    """With a twentieth of the training rows, ten of 200 new ones would be of the class."""
    trained = np.array([95, 5])
    warn_of_missing_classes(("no", "yes"), trained, np.array([199, 0]))
    warn_of_missing_classes(("no", "yes"), trained, np.array([400, 1]))
    warn_of_missing_classes(("no", "yes"), np.array([50, 50]), np.array([400, 0]))  # no rare one
    assert not recwarn
    with pytest.warns(UserWarning, match=r"no row is labelled 'yes' \(5% of the training rows\)"):
        warn_of_missing_classes(("no", "yes"), trained, np.array([200, 0]))


def test_a_column_that_changes_hardly_anything_is_no_reason():
    """Log-odds of the suggestion follow the first column, and the second by less than a tenth."""
    given = np.arange(40) % 2
    inputs = np.stack([2.0 * given - 1, 2.0 * given - 1], 1).astype(np.float32)
    given[0] = 1 - given[0]
    rows = NoisyDataset(inputs, given, None, ("no", "yes"))

    def probs(asked):
        odds = np.asarray(asked.inputs) @ np.array([1.0, 0.04])
        return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], 1)

    suspects = find_suspects(given, probs(rows))
    (reasons,) = find_reasons(probs, rows, InputEncoder.fit(rows), suspects)
    assert [name for name, _ in reasons] == ["feature 1"]


def test_the_console_and_the_page_count_the_same_kept_rows(tmp_path):
    write_table(tmp_path / "rows.csv")
    said = tolerant(
        "train", tmp_path / "rows.csv", "--id", "key", "--out", tmp_path / "run", "--epochs", 20, "--folds", 2
    )
    page = (tmp_path / "run" / "report.html").read_text()
    kept = int(load_run(tmp_path / "run").audit["kept"].sum())
    assert f"<dd><strong>{kept}</strong><small>of 200 rows" in page
    assert f"on {kept} of 200 rows" in said or f"of which it kept {kept} to the end" in said


def test_a_report_without_rows_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(make_app(), ["report", "table1"])
    assert done.exit_code == 2
    assert "or your own, which `tolerant reproduce` writes" in " ".join(done.output.split())


def test_rows_named_by_long_numbers_are_told_by_their_digits(frame, tmp_path):
    frame["tweet_id"] = [f"{10**17 + number}" for number in np.random.default_rng(1).permutation(200)]
    found, _ = roles(frame.drop(columns="customer"), tmp_path, ignore=["nr", "comment"])
    assert len(set(frame["tweet_id"].astype(float))) < 200  # as numbers some are the same
    assert found["id"] == "tweet_id"


def test_columns_of_numbers_are_not_read_as_words_to_learn_what_they_are(frame, tmp_path, monkeypatch):
    frame = frame[["age", "label"]].assign(x=np.random.default_rng(0).normal(size=200))
    monkeypatch.setattr("tolerant.data.column_roles.as_words", None)
    assert roles(frame, tmp_path) == ({}, "")


def test_a_file_is_read_once(tmp_path, monkeypatch):
    write_table(tmp_path / "rows.csv", num_rows=60)
    times = []
    monkeypatch.setattr(
        "tolerant.data.source.read_frame", lambda *a, **k: times.append(a) or read_frame(*a, **k)
    )
    rows = Source(str(tmp_path / "rows.csv"), {"id": "key"})
    train_source(rows, tmp_path / "run", Settings(model="linear"), folds=2, device="cpu")
    assert len(times) == 1


def test_of_very_many_columns_no_model_is_asked_and_no_boosting_is_tried():
    inputs = np.random.default_rng(0).normal(size=(400, 10_001)).astype(np.float32)
    rows = NoisyDataset(inputs, np.arange(400) % 2, None, ("a", "b"))
    few = NoisyDataset(inputs[:, :50], np.arange(400) % 2, None, ("a", "b"))
    assert "trees" in [member.name for member in members_for(few, Settings())]
    assert [member.name for member in members_for(rows, Settings())] == [
        "linear",
        "linear-1",
        "linear-10",
        "forest",
        "extra-trees",
    ]
    suspects = find_suspects(rows.given_labels, np.tile([0.1, 0.9], (400, 1)))
    assert len(suspects)
    # Each of the rows without each column in turn would be 10,002 rows of 10,001 numbers.
    assert find_reasons(lambda rows: pytest.fail("asked"), rows, InputEncoder.fit(rows), suspects) == []


def test_names_of_people_and_places_are_names(frame, tmp_path):
    """The 64 most frequent of them tell nothing of the others."""
    rng = np.random.default_rng(2)
    parts = ["".join(rng.choice(list("abcdefgh"), 6)).title() for _ in range(400)]
    frame["town of birth"] = [f"{a} {b}" for a, b in zip(parts[::2], parts[1::2], strict=True)]
    frame["disk"] = [f"{number} GB" for number in rng.permutation(200)]  # to be rewritten as a number
    found, said = roles(frame[["town of birth", "disk", "age", "label"]], tmp_path)
    assert found == {"id": "town of birth"}
    assert "--id 'town of birth'" in said
    frame.loc[0, "town of birth"] = frame.loc[1, "town of birth"]
    found, said = roles(frame[["town of birth", "customer", "age", "label"]], tmp_path)
    assert found == {"id": "customer", "ignore": ["town of birth"]}
    assert said.endswith("--categorical 'town of birth'")


def test_predictions_name_rows_as_the_training_did(tmp_path):
    write_table(tmp_path / "rows.csv")
    tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", "--model", "linear")
    new = pd.read_csv(tmp_path / "rows.csv").drop(columns="label").head(3)
    for columns, first in (([], "row0"), (["key"], "0")):  # later rows may have no such column
        new.drop(columns=columns).to_csv(tmp_path / "new.csv", index=False)
        tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "labels.csv")
        assert read(tmp_path / "labels.csv")[0]["id"] == first
