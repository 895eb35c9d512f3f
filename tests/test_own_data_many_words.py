"""Tables with columns of very many words, such as towns: what their rows' labels say of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_data_helpers import page_data, read, tolerant
from sklearn.dummy import DummyClassifier

from tolerant.data import InputEncoder, TableEncoder
from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.classifiers.by_word import ByWord
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.disk import read_classifiers, write_classifiers
from tolerant.own_data.classifiers.member import all_probs, named_member
from tolerant.own_data.classifiers.rows import columns, of_many_words, of_table, take, with_words

TOWNS = 200
NAMED = ["linear", "linear-1", "trees", "larger-trees", "forest", "extra-trees", "lightgbm", "xgboost"]


def towns(rows: int, seed: int, *, classes: int = 2) -> tuple[pd.DataFrame, np.ndarray]:
    """Each town has a class of its own, which nine in ten of its rows have; a number says a little more."""
    rng = np.random.default_rng(seed)
    of_town = np.random.default_rng(99).integers(0, classes, TOWNS)
    town = rng.integers(0, TOWNS, rows)
    label = np.where(rng.random(rows) < 0.9, of_town[town], rng.integers(0, classes, rows))
    names = np.array([f"town {number}" for number in range(TOWNS)])[town].astype(object)
    names[rng.random(rows) < 0.02] = None
    return pd.DataFrame({"town": names, "size": rng.normal(size=rows) + 0.3 * label}), label


def as_rows(frame: pd.DataFrame, labels: np.ndarray, encoder: TableEncoder | None = None) -> NoisyDataset:
    encoder = encoder or TableEncoder.fit(frame)
    names = tuple(map(str, range(labels.max() + 1)))
    return NoisyDataset(encoder.transform(frame), labels, None, names, kind="table", encoder=encoder)


def test_the_columns_that_name_words_are_found_in_what_each_classifier_is_given():
    frame, labels = towns(1000, 0)
    data = as_rows(frame, labels)
    for given, place in ((columns, 0), (of_table, 64), (with_words, 64)):
        assert of_many_words(data, given) == [place]
        assert len(np.unique(given(data)[:, place])) == frame.town.nunique() + 1, (
            "the missing ones are one more"
        )
    few = as_rows(pd.DataFrame({"town": ["Ulm", "Bonn"] * 10, "size": np.arange(20.0)}), np.arange(20) % 2)
    assert of_many_words(few, columns) == of_many_words(few, of_table) == []
    assert type(named_member("trees").make(few, 0)).__name__ == "HistGradientBoostingClassifier"


def test_beside_texts_a_linear_model_is_not_given_the_places():
    """Which it could not be told of: its columns are brought to the length that words have."""
    frame, labels = towns(1000, 0)
    texts = np.array([f"it is {word} here" for word in np.where(labels, "warm", "cold")], object)
    data = replace(as_rows(frame, labels), texts=texts)
    rows = InputEncoder.fit(data).trainable(data)
    assert of_many_words(rows, with_words) == []
    assert of_many_words(rows, of_table) == [64]
    assert with_words(rows).shape[1] == rows.inputs.shape[1] - 1
    columns_of_row = with_words(rows)[:, : of_table(rows).shape[1] - 1].power(2).sum(axis=1)
    np.testing.assert_allclose(columns_of_row, 1, rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", NAMED)
def test_each_classifier_tells_rare_towns_apart_and_is_stored(tmp_path, name, classes):
    pytest.importorskip(CLASSIFIERS[name].package)
    data = as_rows(*towns(3000, 0, classes=classes))
    new = as_rows(*towns(1000, 1, classes=classes), data.encoder)
    member = named_member(name)
    X, X_new = member.rows(data), member.rows(new)
    fitted = member.fit(X, data.given_labels, None, lambda: member.make(data, 0))
    probs = all_probs(fitted, X_new, classes)
    rare = columns(new)[:, 0] >= 64
    alone = CLASSIFIERS[name].make(data, 0).fit(X, data.given_labels)
    gain = (probs.argmax(1) == new.given_labels)[rare].mean() - (
        all_probs(alone, X_new, classes).argmax(1) == new.given_labels
    )[rare].mean()
    assert (probs.argmax(1) == new.given_labels)[rare].mean() > 0.85
    assert gain > 0.02, "trees alone split the list of towns where its order happens to help"
    write_classifiers(tmp_path / "models", {name: fitted}, "digest")
    again, _ = read_classifiers(tmp_path / "models")
    assert np.array_equal(all_probs(again[name], X_new, classes), probs)


def test_words_that_say_nothing_are_not_told():
    """Towns of a few rows whose labels are drawn, and towns that all have the same labels."""
    rng = np.random.default_rng(0)
    for X, labels in (
        (rng.integers(0, 1000, (3000, 1)), rng.integers(0, 2, 3000)),
        (np.repeat(np.arange(300), 10)[:, None], np.arange(3000) % 2),
    ):
        fitted = ByWord(Kept(), [0]).fit(X.astype(np.float32), labels)
        assert fitted.model.X.shape == (3000, 1)
        assert fitted.predict_proba(X).shape == (3000, 2)


def test_a_row_is_not_told_its_own_label():
    """Of towns with two rows each says what the other is; who were told itself would always be right."""
    rng = np.random.default_rng(0)
    town, of_town = np.repeat(np.arange(1000), 2), np.repeat(rng.integers(0, 2, 1000), 2)
    labels = np.where(rng.random(2000) < 0.8, of_town, 1 - of_town)
    told = ByWord(Kept(), [0]).fit(town[:, None].astype(np.float32), labels).model.X[:, 1]
    other = labels.reshape(-1, 2)[:, ::-1].ravel()
    assert set(np.sign(told[other == 1])) <= {0.0, 1.0}, "0 where both are in one fold"
    assert set(np.sign(told[other == 0])) <= {0.0, -1.0}


class Kept(DummyClassifier):
    """Keeps what it is fitted to."""

    def fit(self, X, y, sample_weight=None):
        self.X = X
        return super().fit(X, y, sample_weight)


def test_what_is_told_is_the_log_of_shares_with_rows_added():
    """One town of label 1 alone among many rows of either: counted by hand, with weights."""
    X = np.r_[np.zeros(400), np.ones(100), np.full(500, np.nan)][:, None].astype(np.float32)
    labels = np.r_[np.arange(400) % 2, np.ones(100, int), np.zeros(500, int)]
    weight = np.r_[np.ones(500), np.full(500, 0.5)]
    fitted = ByWord(Kept(), [0]).fit(X, labels, weight)
    added = 1.0  # towns differ so much that more makes the labels less likely
    prior = np.array([200 + 250 + 1, 200 + 100 + 1]) / 752
    for place, counts in enumerate(([200, 200], [0, 100], [250, 0])):
        shares = (np.array(counts) + added * prior) / (sum(counts) + added)
        np.testing.assert_allclose(fitted.told_[0][2][place], np.log(shares / prior), rtol=1e-12)
    told = fitted.model.X[:, 1]
    assert fitted.model.X.shape == (1000, 2), "of two classes one says it all"
    assert len(np.unique(told[labels == 1])) > len(np.unique(X[labels == 1])), "each fold has its own"
    fitted.predict_proba(np.array([[5.0], [np.nan]], np.float32))


def test_of_three_classes_each_is_told():
    frame, labels = towns(1000, 0, classes=3)
    fitted = ByWord(Kept(), [0]).fit(columns(as_rows(frame, labels)), labels)
    assert fitted.model.X.shape == (1000, 2 + 3)


def test_a_word_that_no_row_had_says_nothing():
    data = as_rows(*towns(1000, 0))
    fitted = ByWord(Kept(), [0]).fit(columns(data), data.given_labels)
    new = columns(
        as_rows(pd.DataFrame({"town": ["Atlantis", "town 3", None], "size": 0.0}), np.arange(3), data.encoder)
    )
    seen = []
    fitted.model.predict_proba = lambda X: seen.append(X) or np.zeros((len(X), 2))
    fitted.predict_proba(new)
    assert seen[0][0, -1] == 0
    assert seen[0][1, -1] != 0


@pytest.mark.parametrize("features", [(), ("--ignore", "size")])
def test_a_table_of_towns_from_file_to_predictions(tmp_path: Path, features):
    frame, labels = towns(1500, 0)
    frame.assign(label=np.array(["no", "yes"])[labels]).to_csv(tmp_path / "rows.csv", index=False)
    new, true = towns(500, 1)
    new.to_csv(tmp_path / "new.csv", index=False)
    said = tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", "--folds", 3, *features)
    assert "count as one" not in said
    tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    answers = np.array([row["label"] == "yes" for row in read(tmp_path / "p.csv")])
    assert (answers == true).mean() > 0.85
    reasons = page_data(tmp_path / "run" / "report.html")["reasons"]
    assert sum("town" in [name for name, _ in each][:1] for each in reasons) > len(reasons) / 2


def test_folds_take_whole_rows_of_words():
    data = as_rows(*towns(600, 0))
    member = named_member("trees")
    some = np.arange(0, 600, 2)
    fitted = member.fit(
        take(member.rows(data), some), data.given_labels[some], None, lambda: member.make(data, 0)
    )
    assert all_probs(fitted, member.rows(data), 2).shape == (600, 2)
