"""Rounds on people's own rows: under which label each trained, in the model, the list and the run folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from own_data_helpers import QUICK, read, tolerant, write_table
from sklearn.linear_model import LogisticRegression
from train_helpers import CLASSES, table

from tolerant import NoisyLabelClassifier
from tolerant.own_data import Settings
from tolerant.own_data.learn import learn
from tolerant.train import Relabel

SETTINGS = Settings(model="mlp", method="rounds", epochs=12, batch_size=32, lr=0.01)


@pytest.mark.parametrize("folds", [0, 2])
def test_wrong_labels_train_under_the_right_ones(folds):
    rows = table(600, 0.3)
    learned = learn(rows, SETTINGS, folds=folds, progress="quiet")
    right = learned.trained_as == rows.true_labels
    assert (rows.given_labels == rows.true_labels).mean() < 0.75
    assert right[learned.kept].mean() > 0.95
    assert learned.kept.mean() > 0.9
    listed = learned.suspects
    assert np.array_equal(listed.trained_as, learned.trained_as[listed.index])
    assert (listed.trained_as == listed.suggested_labels).mean() > 0.9


def test_labels_that_a_person_has_decided_stay():
    rows = table(600, 0.3)
    reviewed = np.arange(600) % 3 == 0
    learned = learn(rows, SETTINGS, folds=2, reviewed=reviewed, progress="quiet")
    assert np.array_equal(learned.trained_as[reviewed], rows.given_labels[reviewed])
    assert learned.kept[reviewed].all()
    assert (learned.trained_as != rows.given_labels).any()


def test_the_list_says_under_which_label_a_row_was_trained(tmp_path):
    source, run = tmp_path / "rows.csv", tmp_path / "run"
    write_table(source, num_rows=400)
    before = source.read_bytes()
    tolerant("train", source, "--label", "label", "--id", "key", "--method", "rounds", *QUICK, "--out", run)
    assert source.read_bytes() == before
    found = read(run / "suspects.csv")
    assert {row["trained_as"] for row in found} <= {*CLASSES, ""}
    assert sum(row["trained_as"] == row["suggested_label"] for row in found) > 0.8 * len(found)
    first = (run / "suspects.csv").read_bytes()
    tolerant("audit", run)
    assert (run / "suspects.csv").read_bytes() == first


def test_of_a_table_no_row_is_left_out_and_of_features_those_that_are_not_sure():
    learned = [
        learn(table(200, 0.3), replace(SETTINGS, epochs=2, pretrained=features), folds=2, progress="quiet")
        for features in (False, True)
    ]
    assert [each.training.relabel.sure for each in learned] == [0.0, Relabel().sure]
    assert learned[0].kept.all()
    assert not learned[1].kept.all()


def test_what_does_not_go_with_rounds_is_refused():
    with pytest.raises(ValueError, match="method 'rounds' has losses of its own; got loss 'mae'"):
        replace(SETTINGS, loss="mae")
    with pytest.raises(ValueError, match="method must be one of prune, rounds; got 'round'"):
        replace(SETTINGS, method="round")
    rows = table(100)
    with pytest.raises(ValueError, match="method is for networks"):
        NoisyLabelClassifier(model=LogisticRegression(), method="rounds").fit(rows.inputs, rows.given_labels)
