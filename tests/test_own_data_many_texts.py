"""Many texts: encoded in blocks, words known from some of them, characters left out, fits row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from own_data_helpers import tolerant
from sklearn.linear_model import LogisticRegression

from tolerant import NoisyLabelClassifier
from tolerant.data import InputEncoder, TableEncoder
from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders import sparse
from tolerant.data.encoders import text as encoders
from tolerant.data.encoders.sparse import SparseRows
from tolerant.data.encoders.text import CharacterEncoder, TextEncoder
from tolerant.data.features.extractor import Identity
from tolerant.own_data import text_features
from tolerant.own_data.classifiers import cards
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.choose import expected_seconds
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.member import named_member, quietly
from tolerant.own_data.reasons import find_reasons
from tolerant.suspects import find_suspects

TOPICS = {
    "sport": ["goal", "team", "match", "coach", "race"],
    "food": ["soup", "bread", "salt", "cook", "race"],
    "sea": ["ship", "wave", "salt", "sail", "team"],
}


def made_up_texts(rows: int, classes: int = 3, wrong: float = 0.2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    true = rng.integers(0, classes, rows)
    words = list(TOPICS.values())
    texts = [" ".join(rng.choice([*words[label], "the", "a", "today"], 6)) for label in true]
    given = np.where(rng.random(rows) < wrong, rng.integers(0, classes, rows), true)
    names = np.array(list(TOPICS))
    return pd.DataFrame({"text": texts, "label": names[given], "true": names[true]})


def test_texts_are_the_same_encoded_in_blocks(monkeypatch):
    texts = made_up_texts(50).text.to_numpy(object)
    words, characters = TextEncoder.fit(texts), CharacterEncoder.fit(texts)
    whole = words.transform(texts, characters=characters)
    monkeypatch.setattr(encoders, "_BLOCK", 7)
    found = words.transform(texts, characters=characters)
    assert (found.matrix != whole.matrix).nnz == 0
    assert found.parts == ("words", "characters")
    assert found.shape == (50, len(words.vocabulary) + len(characters.columns))
    assert np.array_equal(found[np.arange(50)], whole.matrix.toarray())


def test_words_are_known_from_some_of_many_texts(monkeypatch):
    texts = np.array(["red car"] * 100 + ["blue bus"] * 3, object)
    assert TextEncoder.fit(texts).vocabulary == ("blue", "blue bus", "bus", "car", "red", "red car")
    monkeypatch.setattr(encoders, "_MOST_TO_FIT", 20)
    found = TextEncoder.fit(texts)
    assert {"car", "red"} < set(found.vocabulary)
    assert found.idf[found.vocabulary.index("car")] < 1.2  # in nearly all of those looked at
    assert CharacterEncoder.fit(texts).idf == pytest.approx(CharacterEncoder.fit(texts[:20]).idf, abs=0.3)


def test_a_matrix_that_is_encoded_stays_as_it_was():
    matrix = scipy.sparse.csr_matrix(([0.0, 1.0, 2.0], [1, 0, 0], [0, 3]), (1, 2), np.float32)
    assert SparseRows(matrix, 1.0)[np.arange(1)].tolist() == [[3.0, 0.0]]
    assert matrix.nnz == 3


def test_digests_are_the_same_made_in_blocks(monkeypatch):
    texts = made_up_texts(50).text.to_numpy(object)
    rows = TextEncoder.fit(texts).transform(texts, characters=CharacterEncoder.fit(texts))
    whole = rows.digests
    monkeypatch.setattr(sparse, "_BLOCK", 7)
    assert np.array_equal(rows.digests, whole)
    assert len(set(whole.tolist())) == len(set(texts)), "equal texts alone are alike"


@pytest.mark.parametrize("classes", [2, 3])
def test_a_few_passes_learn_what_a_fit_of_all_rows_learns(classes):
    frame = made_up_texts(4000, classes)
    inputs = TextEncoder.fit(frame.text).transform(frame.text)
    names = sorted(set(frame.label))
    given, true = (frame[name].map(names.index).to_numpy() for name in ("label", "true"))
    rows, X = NoisyDataset(inputs, given, None, tuple(names)), inputs.part("words")
    model = cards.CLASSIFIERS["words"].make(rows, 0)
    assert model.max_iter == 10
    with quietly():
        steps, whole = (
            each.fit(X[:2000], given[:2000]).predict_proba(X[2000:]) for each in (model, LogisticRegression())
        )
    assert np.abs(whole - steps).max() < 0.02
    assert (steps.argmax(1) == true[2000:]).mean() > 0.9


def test_many_texts_are_trained_on_by_their_words(tmp_path, monkeypatch):
    frame = made_up_texts(300)
    frame[["text", "label"]].to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(text_features, "MOST_CHARACTERS", 1_000)
    options = ("--folds", 2, "--features", "none")
    said = tolerant("train", tmp_path / "t.csv", "--out", tmp_path / "run", *options)
    assert "Trained on words:" in said
    assert "Models: words, bayes, in 2 folds; at most about" in said
    said = tolerant("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert (pd.read_csv(tmp_path / "p.csv").label == frame.true).mean() > 0.9
    said = tolerant("train", tmp_path / "t.csv", "--out", tmp_path / "2", *options, "--model", "characters")
    assert "Trained on words:" not in said
    fitted = NoisyLabelClassifier(folds=2, random_state=0).fit(frame.text, frame.label)
    assert not any("characters" in tried.name for tried in fitted.tried_)


@pytest.mark.parametrize(("most", "auto"), [(10, False), (1_000, True)])
def test_whether_characters_are_read_is_decided_by_what_is_wanted_and_by_how_many(most, auto, monkeypatch):
    monkeypatch.setattr(text_features, "MOST_CHARACTERS", most)
    said: list[str] = []
    texts = np.array(["a red fox", "a blue one"], object)
    rows = NoisyDataset(texts, [0, 1], None, ("a", "b"), None, "text")
    table = NoisyDataset(np.zeros((2, 1), np.float32), [0, 1], None, ("a", "b"))
    for wanted, found in ((True, True), (False, False), ("auto", auto)):
        assert text_features.reads_characters(rows, wanted, said.append) is found
        assert text_features.reads_characters(table, wanted, said.append) is False
    assert len(said) == (not auto)


def test_the_time_is_that_of_the_columns_a_model_is_given():
    texts = made_up_texts(50).text.to_numpy(object)
    inputs = TextEncoder.fit(texts).transform(texts, characters=CharacterEncoder.fit(texts))
    rows = NoisyDataset(inputs, np.arange(50) % 2, None, ("a", "b"))
    words, characters = (
        expected_seconds([named_member(name)], rows, 1)[name] - 0.1 for name in ("words", "characters")
    )
    cells = [inputs.part(name).nnz for name in inputs.parts]
    assert words / characters == pytest.approx(cells[0] / cells[1])


def test_trees_are_given_a_column_for_all_its_categories():
    frame = pd.DataFrame({"place": [f"place {row % 40}" for row in range(200)], "size": np.arange(200) % 7})
    encoder, inputs = TableEncoder.fit_transform(frame)
    rows = NoisyDataset(inputs, np.arange(200) % 2, None, ("a", "b"), encoder=encoder)
    taken = expected_seconds([named_member("trees")], rows, 0)["trees"]
    assert taken == CLASSIFIERS["trees"].seconds(200, 2 * 200, 2)


def test_texts_trained_on_words_and_features_have_reasons_by_their_words():
    """No feature of a changed text is computed for them, and who sees features alone is not asked."""
    frame = made_up_texts(300, wrong=0.0)
    names = sorted(set(frame.label))
    given = frame.label.map(names.index).to_numpy()
    rows = NoisyDataset(frame.text.to_numpy(object), given, None, tuple(names), kind="text")
    fitted = InputEncoder.fit(rows, with_characters=True)
    inputs = fitted.trainable(rows).inputs
    words = named_member("words")
    with quietly():
        model = words.make(fitted.trainable(rows), 0).fit(inputs.part("words"), given)
    seen = {"words": words.rows, "meaning": named_member("meaning").rows}
    prior = np.full(3, 1 / 3)
    committee = Committee({"words": model, "meaning": None}, seen, prior, 0.0)
    wrong = given.copy()
    wrong[0] = (given[0] + 1) % 3
    suspects = find_suspects(wrong, np.eye(3)[given] * 0.8 + 0.2 / 3)
    both = replace(fitted, extractor=Identity("minilm", "1", "0", "mean"))
    (first, *_) = find_reasons(committee.probs, rows, both, suspects)
    assert {word for word, _ in first} <= set(TOPICS[names[given[0]]])
    assert first
    alone = Committee({"meaning": None}, seen, prior, 0.0)
    assert not any(find_reasons(alone.probs, rows, both, suspects))
