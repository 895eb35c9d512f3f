"""Rows that belong together, such as the pictures of a patient: never on both sides of a split."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from own_data_helpers import tolerant
from PIL import Image
from safetensors.torch import load_file
from train_helpers import table

from tolerant import NoisyLabelClassifier, find_suspects
from tolerant.data import NoisyDataset, load, split_validation
from tolerant.files import read_json
from tolerant.own_data import Settings, make_job
from tolerant.own_data.folds import choose_folds, connected_rows, deal_folds, most_frequent_labels


def patients(number: int = 60, pictures: int = 5) -> tuple[Any, Any, Any, Any]:
    """X, given labels, true ones, groups; patients look different, and a sixth of them have a wrong label."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(number), pictures)
    true = (np.arange(number) % 2)[who]
    given = np.where(rng.permutation(number) < number // 6, 1 - np.arange(number) % 2, np.arange(number) % 2)[
        who
    ]
    look = rng.normal(size=(number, 20))[who]
    signs = 2 * true[:, None] + rng.normal(size=(len(who), 4)) / 2
    return np.hstack([look, signs]), given, true, who


def grouped(num_rows: int, groups: Any, seed: int = 0, copies: int = 0) -> NoisyDataset:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, 2)).astype(np.float32)
    labels = rng.integers(3, size=num_rows)
    if copies:
        x[-copies:], labels[-copies:] = x[:copies], labels[:copies]
    return NoisyDataset(x, labels, None, ("a", "b", "c"), groups=groups)


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_in_one_fold_and_folds_are_alike(seed):
    rng = np.random.default_rng(seed)
    rows = grouped(600, np.sort(rng.integers(100, size=600)), seed)
    fold = choose_folds(rows, 5, seed)
    assert all(len(np.unique(fold[rows.groups == group])) == 1 for group in np.unique(rows.groups))
    assert np.ptp(np.bincount(fold, minlength=5)) < 40  # of 120
    counts = np.array([np.bincount(rows.given_labels[fold == f], minlength=3) for f in range(5)])
    assert counts.min() > 20  # of 40


@pytest.mark.parametrize("seed", range(5))
def test_large_groups_are_dealt_first(seed):
    """Four of fifty rows among eighty single ones: each fold has one of them."""
    groups = np.concatenate([np.repeat(np.arange(4), 50), np.arange(4, 84)])
    rows = grouped(280, groups).with_given_labels(np.zeros(280, int))
    assert np.bincount(choose_folds(rows, 4, seed)).tolist() == [70] * 4


def test_copies_bring_their_groups_together():
    """Row 0 of the first group has a copy in the last: all rows of both are in one fold."""
    rows = grouped(40, np.repeat(np.arange(8), 5), copies=1)
    for seed in range(10):
        fold = choose_folds(rows, 4, seed)
        assert len({*fold[:5], *fold[-5:]}) == 1
        assert len(np.unique(fold)) == 4


@pytest.mark.parametrize("seed", range(20))
def test_what_stays_together_is_what_copies_and_groups_connect(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(12, size=30)
    first = np.arange(30)
    for copy in np.sort(rng.permutation(np.arange(1, 30))[:8]):
        first[copy] = first[rng.integers(copy)]
    expected = np.arange(30)  # by joining pairs until nothing moves
    for _ in range(30):
        for row, other in product(range(30), repeat=2):
            if groups[row] == groups[other] or first[row] == first[other]:
                expected[row] = expected[other] = min(expected[row], expected[other])
    np.testing.assert_array_equal(connected_rows(first, groups), expected)


def test_a_group_is_dealt_by_its_most_frequent_label():
    labels = np.array([2, 0, 0, 1, 1, 1, 0])
    together = np.array([0, 0, 0, 3, 3, 3, 3])
    assert most_frequent_labels(labels, together)[[0, 3]].tolist() == [0, 1]
    # The first picture of every patient has the same label, so the others must decide.
    rows = grouped(400, np.repeat(np.arange(40), 10))
    label = np.arange(40) // 20
    rows = rows.with_given_labels(np.where(np.arange(400) % 10 == 0, 2, np.repeat(label, 10)))
    fold = choose_folds(rows, 4, 0)
    for number in range(4):
        assert np.bincount(rows.given_labels[fold == number]).tolist() == [45, 45, 10]


def test_without_groups_folds_are_as_they_were():
    rows = grouped(200, None)
    np.testing.assert_array_equal(choose_folds(rows, 5, 3), deal_folds(rows.given_labels, 5, 3))


@pytest.mark.parametrize("words", [True, False])
def test_validation_rows_share_no_group_with_training(words):
    groups = np.random.default_rng(0).integers(50, size=300)
    named = np.array([f"patient {group}" for group in groups]) if words else groups
    rows = grouped(300, named)
    train, held_out = split_validation(300, 0.1, 0, rows.groups)
    assert sorted([*train, *held_out]) == list(range(300))
    assert not {*groups[train]} & {*groups[held_out]}
    assert 20 <= len(held_out) <= 30
    job = make_job(rows, Settings(epochs=1), torch.device("cpu"), k=0.5)
    assert not {*groups[job.split()[0]]} & {*groups[job.split()[1]]}


def test_groups_too_large_to_validate():
    groups = np.repeat([0, 1, 2], [40, 25, 35])
    assert split_validation(100, 0.1, 0, groups)[1].tolist() == list(range(40, 65)), "the smallest"
    train, held_out = split_validation(100, 0.1, 0, np.zeros(100, int))
    assert (len(train), len(held_out)) == (90, 10), "a single one is split"


def test_a_patient_who_is_mislabelled_throughout_is_found_by_groups_only():
    X, given, true, who = patients()
    options = {"epochs": 12, "batch_size": 16, "folds": 3, "loss": "lq", "lr": 0.01, "random_state": 0}
    apart = NoisyLabelClassifier(**options).fit(X, given)
    together = NoisyLabelClassifier(**options).fit(X, given, groups=who)
    wrong = given != true
    found = [(model.p_y_[wrong] < 0.5).mean() for model in (apart, together)]
    assert found[0] < 0.3
    assert found[1] > 0.6


def test_the_estimator_takes_words_and_refuses_what_is_no_group():
    X, given, _, who = patients(12)
    quick = NoisyLabelClassifier(epochs=1, folds=2, random_state=0)
    names = pandas.Series([f"p{number}" for number in who], index=who + 7)
    by_words = quick.fit(X, given, groups=names).p_y_
    np.testing.assert_array_equal(by_words, quick.fit(X, given, groups=torch.tensor(who)).p_y_)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick.fit(X, given, groups=who[1:])
    with pytest.raises(
        ValueError, match=r"groups must have a value for every row; 5 are missing .* in row 15\)"
    ):
        quick.fit(X, given, groups=names.where(names != "p3"))
    with pytest.raises(ValueError, match="groups contains NaN"):
        quick.fit(X, given, groups=np.where(who == 3, np.nan, who))
    with pytest.raises(ValueError, match=r"at least two groups; got one.*\(--group\)"):
        quick.fit(X, given, groups=np.zeros(len(X)))
    assert quick.set_params(folds=0).fit(X, given, groups=np.zeros(len(X))).p_y_.shape == (len(X),)


def test_more_folds_than_groups():
    X, given, _, who = patients(3, pictures=30)
    model = NoisyLabelClassifier(epochs=1, folds=5, random_state=0).fit(X, given, groups=who)
    assert np.isfinite(model.p_y_).all()


def test_a_checkpoint_of_other_groups_is_another_run():
    rows = grouped(60, np.arange(60) // 3)
    identities = []
    for groups in (None, rows.groups, rows.groups // 2):
        job = make_job(replace(rows, groups=groups), Settings(epochs=1), torch.device("cpu"), k=0.5)
        identities.append(job.identity(job.build_loss()))
    assert "groups" not in identities[0]
    assert identities[1]["groups"] != identities[2]["groups"]


def test_a_data_set_keeps_its_groups_through_subsets():
    rows = grouped(4, ["x", "y", "x", "z"])
    assert rows.groups.tolist() == [0, 1, 0, 2]
    assert rows.subset([2, 3]).groups.tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"groups must have shape \(4,\); got \(3,\)"):
        grouped(4, ["x", "y", "z"])


def write(path: Path, **columns: Any) -> Path:
    pandas.DataFrame(columns).to_csv(path, index=False)
    return path


def test_tables_texts_and_arrays_have_groups(tmp_path):
    ward = ["A", "", "B", "A", "", "B"]
    labels = ["sick", "well"] * 3
    path = write(tmp_path / "rows.csv", ward=ward, size=range(6), note=list("uvwxyz"), label=labels)
    rows = load(path, group="ward", ignore=["note"])
    assert rows.encoder.feature_names == ("size",)
    assert list(rows.cells) == ["size", "ward", "note"], "a person sees it"
    assert [rows.groups[0] == group for group in rows.groups] == [True, False, False, True, False, False]
    assert rows.groups[1] != rows.groups[4], "rows without a group are alone"
    texts = load(path, group="ward", text="note")
    np.testing.assert_array_equal(texts.groups, rows.groups)
    assert (
        load(write(tmp_path / "t.csv", text=list("abcdef"), ward=ward, label=labels), group="ward").kind
        == "text"
    )
    np.savez(tmp_path / "x.npz", x=rows.inputs, y=labels, groups=ward)
    assert len(np.unique(load(tmp_path / "x.npz").groups)) == 3
    with pytest.raises(ValueError, match=r"no column 'room'.*Say which with group=\.\.\. \(--group\)"):
        load(path, group="room")
    with pytest.raises(ValueError, match=r"group \(--group\) names 'label', the column of labels"):
        load(path, group="label")


def test_lists_of_pictures_have_groups_and_folders_say_how(tmp_path):
    for row in range(6):
        Image.new("L", (4, 4), 40 * row).save(tmp_path / f"{row}.png")
    (tmp_path / "2.png").write_bytes(b"no picture")
    files, labels = [f"{row}.png" for row in range(6)], ["sick", "well"] * 3
    path = write(tmp_path / "list.csv", file=files, label=labels, patient=list("ppqqrr"))
    with pytest.warns(UserWarning, match="1 of 6 pictures left out"):
        rows = load(path, group="patient")
    assert rows.groups.tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(
        ValueError, match=r"folder, which does not say which pictures belong together.*--group"
    ):
        load(tmp_path, group="patient")


def test_the_command_learns_no_group_and_scores_by_it(tmp_path):
    data = table(200, noise_rate=0.2)
    features = {f"x{place}": column for place, column in enumerate(data.inputs.T)}
    labels = np.array(data.class_names)[data.given_labels]
    path = write(tmp_path / "rows.csv", **features, patient=np.arange(200) // 4, label=labels)
    runs, rates = [], []
    for out, group in (("together", ["--group", "patient"]), ("apart", ["--ignore", "patient"])):
        said = tolerant("train", path, "--out", tmp_path / out, "--epochs", 5, "--folds", 2, *group)
        assert " ".join(group) in said, "in the next command, too"
        assert [
            c["name"] for c in read_json(tmp_path / out / "spec.json")["features"]["encoder"]["columns"]
        ] == [*features]
        runs.append(load_file(tmp_path / out / "audit.safetensors")["probs"])
        rates += re.findall(r"[Bb]etween \S+ % and \S+ %", said)
    assert not torch.equal(*runs)
    specs = [read_json(tmp_path / out / "spec.json")["fingerprint"] for out in ("together", "apart")]
    assert specs[0] != specs[1]
    assert rates[0] in tolerant("audit", tmp_path / "together"), "an interval of groups, too"
    tolerant("predict", tmp_path / "together", path, "--out", tmp_path / "p.csv")


def patients_and_probs(seed, patients=60, pictures=20, classes=4, rate=0.15):
    """Labels given to patients, `rate` of them wrong, and predictions that are right about the pictures."""
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=patients)
    other = (true + rng.integers(1, classes, size=patients)) % classes
    given = np.where(rng.random(patients) < rate, other, true)
    patient = np.repeat(np.arange(patients), pictures)
    logits = rng.normal(size=(len(patient), classes))
    logits[np.arange(len(patient)), true[patient]] += 3.0
    odds = np.exp(logits)
    return given[patient], odds / odds.sum(1, keepdims=True), patient, (given != true).mean()


def test_the_interval_knows_that_a_patient_is_one_label():
    """Sixty patients tell less of the estimate's error than 1,200 rows that have nothing in common would."""
    for seed in range(12):
        given, probs, patient, wrong = patients_and_probs(seed)
        of_rows, of_patients = (
            find_suspects(given, probs, groups=groups).noise_rate for groups in (None, patient)
        )
        assert of_patients.low <= wrong <= of_patients.high
        assert of_patients.high - of_patients.low > 1.2 * (of_rows.high - of_rows.low)


def test_without_a_doubt_the_interval_is_the_rule_of_three_of_the_groups():
    given = np.arange(600) % 3
    probs = np.where(np.eye(3)[given] > 0, 1 - 2e-9, 1e-9)
    rate = find_suspects(given, probs, groups=np.arange(600) // 20).noise_rate
    assert (rate.low, rate.high) == (0.0, pytest.approx(3 / 30, abs=1e-3))


def test_the_width_does_not_depend_on_how_many_rows_are_resampled(monkeypatch):
    """A fifth of the rows errs 2.2 times as much as all; taken for theirs, widths were 1.4 times as large."""
    widths = []
    for rows in (4000, 800):
        monkeypatch.setattr("tolerant.suspects.rate._RESAMPLE_ROWS", rows)
        for seed in range(5):
            given, probs, patient, _ = patients_and_probs(seed, patients=400, pictures=10)
            rate = find_suspects(given, probs, groups=patient).noise_rate
            widths.append(rate.high - rate.low)
    assert np.mean(widths[5:]) == pytest.approx(np.mean(widths[:5]), rel=0.2)


def test_the_estimator_counts_groups():
    X, given, _, who = patients()
    options = {"epochs": 5, "folds": 3, "loss": "lq", "lr": 0.01, "random_state": 0}
    model = NoisyLabelClassifier(**options).fit(X, given, groups=who)
    low, high = model.noise_rate_interval_
    assert high >= model.noise_rate_ + 3 / 60, "60 patients, not 300 pictures"
    assert low <= max(0.0, model.noise_rate_ - 3 / 60)


def test_groups_of_one_row_change_no_interval():
    given, probs, patient, _ = patients_and_probs(0)
    alone = find_suspects(given, probs, groups=[f"p{number}" for number in range(len(given))])
    assert alone.noise_rate.estimate == find_suspects(given, probs).noise_rate.estimate
    assert alone.noise_rate.high == pytest.approx(find_suspects(given, probs).noise_rate.high, abs=0.01)
    with pytest.raises(ValueError, match=r"groups must have a value for each of 1200 rows; got shape"):
        find_suspects(given, probs, groups=np.unique(patient))
