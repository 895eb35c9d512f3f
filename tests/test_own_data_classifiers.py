"""Classifiers of scikit-learn's kind: by name, a user's own, together; on disk; unequal classes; L_q."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import sklearn.utils.parallel
import torch
from own_data_helpers import page_data, read, tolerant
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_blobs, make_classification
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import average_precision_score, recall_score
from sklearn.naive_bayes import ComplementNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from tolerant import NoisyLabelClassifier
from tolerant.cli import make_app
from tolerant.data import TableEncoder, load
from tolerant.data.dataset import LazySubset, NoisyDataset
from tolerant.own_data import Settings, load_run
from tolerant.own_data.classifiers import cards, discriminant, taught, trial
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.choose import choose, members_for
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant
from tolerant.own_data.classifiers.disk import read_classifiers, write_classifiers
from tolerant.own_data.classifiers.kept_scores import KeptScores
from tolerant.own_data.classifiers.reweigh import fit_lq
from tolerant.own_data.classifiers.rows import columns, take
from tolerant.own_data.classifiers.score import Scored, score_member
from tolerant.own_data.classifiers.side_by_side import side_by_side
from tolerant.own_data.classifiers.taught import teach
from tolerant.own_data.classifiers.temper import agreement, choose_tau, error_of_difference, temper
from tolerant.own_data.doubts import find_doubts
from tolerant.own_data.learn import learn
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.own_data.task import Task

LINEAR = ["linear", "linear-1", "linear-10"]
TABLE = [*LINEAR, "trees", "forest", "extra-trees"]
NOT_TRIED = ["larger-trees", "discriminant", "lightgbm", "xgboost"]


def customers(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """A seventh has cancelled ("yes"): those who pay much, mostly in one town; ages have gaps."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["Bonn", "Ulm", "Jena"], rows)
    pays = rng.normal(50, 15, rows) + 8 * (town == "Ulm")
    true = np.where(pays > np.quantile(pays, 0.86), "yes", "no")
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.integers(18, 80, rows))
    given = np.where((true == "yes") & (rng.random(rows) < 0.3), "no", true)
    given = np.where((true == "no") & (rng.random(rows) < 0.03), "yes", given)
    return pd.DataFrame({"age": age, "pays": pays, "town": town, "label": given, "true": true})


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, true = make_blobs(240, centers=3, cluster_std=1.5, random_state=0)
    rng = np.random.default_rng(0)
    given = np.where(rng.random(len(true)) < 0.2, (true + rng.integers(1, 3, len(true))) % 3, true)
    return X, given, true


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("auto")
    customers().drop(columns="true").to_csv(folder / "rows.csv", index=False)
    said = tolerant("train", folder / "rows.csv", "--out", folder / "run", "--folds", 3)
    return folder, said


def test_auto_says_what_it_tries_and_why_it_chose(trained):
    _, said = trained
    assert f"Models: {', '.join(TABLE)}, in 3 folds; at most about" in said
    assert said.count("(chosen)") == 1
    assert all(f"│ {name}" in said for name in TABLE)


def test_a_rare_class_is_predicted(trained):
    folder, _ = trained
    new = customers(seed=1)
    new.drop(columns=["true", "label"]).to_csv(folder / "new.csv", index=False)
    tolerant("predict", folder / "run", folder / "new.csv", "--out", folder / "p.csv")
    found = np.array([row["label"] for row in read(folder / "p.csv")])
    assert (found == new.true)[new.true == "yes"].mean() > 0.75
    assert (found == new.true).mean() > 0.85


def test_a_class_that_is_never_predicted_is_named_and_the_advice_helps(tmp_path):
    """A network that has hardly learnt names the frequent class alone; with the advice both."""
    frame = customers(600)
    frame[["age", "pays", "label"]].assign(age=30).to_csv(tmp_path / "rows.csv", index=False)
    new = ("predict", tmp_path / "run", tmp_path / "rows.csv", "--out", tmp_path / "p.csv")
    network = ("train", tmp_path / "rows.csv", "--out", tmp_path / "run", "--epochs", 3, "--folds", 2)
    with pytest.warns(UserWarning, match=r"hardly recognises 'yes'.*Unless.*--class-weight balanced"):
        tolerant(*network)
    with pytest.warns(UserWarning, match=r"no row is labelled 'yes' \(1\d% .*--class-weight balanced"):
        tolerant(*new)
    with pytest.warns(UserWarning, match="which is in"):
        tolerant(*network, "--class-weight", "balanced")
    tolerant(*new)
    found = np.array([row["label"] for row in read(tmp_path / "p.csv")])
    assert (found == "yes")[frame.true == "yes"].mean() > 0.7


def test_the_list_is_the_same_from_the_stored_run(trained):
    folder, _ = trained
    before = (folder / "run" / "suspects.csv").read_text()
    assert "1 reviewed" not in tolerant("audit", folder / "run")
    assert (folder / "run" / "suspects.csv").read_text() == before
    lost = (customers().label != customers().true).to_numpy()
    first = [int(row["index"]) for row in read(folder / "run" / "suspects.csv")][:20]
    assert lost[first].mean() > 0.5


@pytest.mark.filterwarnings("ignore:.*corrections have no row_digest")
def test_corrections_are_trained_on_and_not_asked_again(trained, tmp_path):
    folder, _ = trained
    row = read(folder / "run" / "suspects.csv")[0]
    (tmp_path / "c.csv").write_text(
        f"id,given_label,new_label\n{row['id']},{row['given_label']},{row['given_label']}\n"
    )
    said = tolerant(
        "train", folder / "rows.csv", "--labels", tmp_path / "c.csv", "--model", "linear",
        "--out", tmp_path / "run", "--folds", 3,
    )  # fmt: skip
    assert "1 reviewed ones are not listed" in said
    assert row["id"] not in [other["id"] for other in read(tmp_path / "run" / "suspects.csv")]


def test_classifiers_of_an_earlier_version_are_told(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained[0] / "run", run)
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps(spec | {"format": 3}))
    with pytest.raises(ValueError, match=r"form of an earlier version \(format 3\).*Train again"):
        load_run(run)


def test_a_stored_model_with_other_things_in_it_is_refused(tmp_path):
    path = tmp_path / "model.classifiers"
    with pytest.raises(ValueError, match=r"it holds pathlib\.\w*Path, which none of our models has"):
        write_classifiers(path, {"linear": Path("/")}, "")
    for what in ("pathlib.PosixPath", "subprocess.Popen", "sklearn.svm._classes.SVC"):
        head = json.dumps({"digest": "", "fitted": ["object", [what, ["list", []], None]]}).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head)
        with pytest.raises(ValueError, match=rf"model.classifiers cannot be read: it holds {what}.*Train"):
            read_classifiers(path)
    array = io.BytesIO()
    np.lib.format.write_array(array, np.array([Path("/")], object))  # a pickle inside
    head = b'{"digest": "", "fitted": ["array", 0]}'
    path.write_bytes(len(head).to_bytes(8, "little") + head + array.getvalue())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_classifiers(path)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_what_is_read_back_says_the_same(tmp_path, blobs, name, num_classes):
    pytest.importorskip(CLASSIFIERS[name].package)
    X, labels = np.abs(blobs[0]).astype(np.float32), blobs[1] % num_classes
    rows = NoisyDataset(X, labels, None, tuple("abc"[:num_classes]))
    fitted = CLASSIFIERS[name].make(rows, 0).fit(X, labels)
    write_classifiers(tmp_path / "model", {name: fitted}, "of this run")
    found, digest = read_classifiers(tmp_path / "model")
    assert digest == "of this run"
    assert found[name].classes_.tolist() == list(range(num_classes))
    assert np.array_equal(found[name].predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("name", [*TABLE, *NOT_TRIED])
def test_each_alone_is_stored_and_read_back(trained, tmp_path, name):
    pytest.importorskip(CLASSIFIERS[name].package)
    folder, _ = trained
    said = tolerant("train", folder / "rows.csv", "--model", name, "--out", tmp_path, "--folds", 2)
    assert f"Trained {name} on" in said
    assert json.loads((tmp_path / "spec.json").read_text())["classifiers"] == [name]
    tolerant("predict", tmp_path, folder / "rows.csv", "--out", tmp_path / "p.csv")
    assert len({row["confidence"] for row in read(tmp_path / "p.csv")}) > 9


def test_a_model_that_cannot_be_is_refused_before_the_data_is_read(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"got 'tree'. Did you mean 'trees'\?"):
        tolerant("train", tmp_path / "not there.csv", "--model", "tree", "--out", tmp_path / "run")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ModuleNotFoundError, match="model 'lightgbm' needs lightgbm: pip install lightgbm"):
        tolerant("train", tmp_path / "not there.csv", "--model", "lightgbm", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_training_that_was_cut_off_goes_on(trained, tmp_path, monkeypatch):
    folder, _ = trained
    scored = []

    def until(most: int) -> None:
        def score(member, *arguments, **options):
            if len(scored) == most:
                raise KeyboardInterrupt
            scored.append((member.name, options.get("believed") is not None))
            return score_member(member, *arguments, **options)

        for room in ("learn_committee", "trial"):
            monkeypatch.setattr(f"tolerant.own_data.classifiers.{room}.score_member", score)

    command = ["train", folder / "rows.csv", "--out", tmp_path / "run", "--folds", 3]
    for most, why in ((2, "resumes from"), (3, "resumes from"), (99, None)):
        until(most)
        done = CliRunner().invoke(make_app(), [str(word) for word in command])
        assert done.exit_code == (130 if why else 0)
        assert (why or "Trained") in done.output
    assert scored[:3] == [(name, False) for name in TABLE[:3]]
    assert len(scored) == len(set(scored)) > 3  # nothing was done twice
    assert (tmp_path / "run" / "suspects.csv").read_text() == (folder / "run" / "suspects.csv").read_text()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_scores_that_cannot_be_read_are_made_again(tmp_path):
    made = Scored("linear", OutOfFold(np.eye(2, dtype=np.float32), np.ones(2, bool)), 1.0)
    kept = KeptScores(tmp_path, 2)
    assert kept.get("linear", lambda: made) is made
    again = kept.get("linear", lambda: pytest.fail("made again"))
    assert np.array_equal(again.out_of_fold.probs, made.out_of_fold.probs)
    (tmp_path / "linear.npz").write_bytes((tmp_path / "linear.npz").read_bytes()[:100])
    assert kept.get("linear", lambda: made) is made
    assert KeptScores(tmp_path, 3).get("linear", lambda: made) is made  # of other rows


def test_columns_that_say_nearly_the_same_get_large_coefficients():
    """The species differ by a tenth of what a shell's width varies with its age."""
    rng = np.random.default_rng(0)
    true, size = np.arange(300) % 2, rng.normal(size=300)
    measures = [
        size + 0.1 * (true if number == 0 else 0) + 0.02 * rng.normal(size=300) for number in range(4)
    ]
    given = np.where(rng.random(300) < 0.2, 1 - true, true)
    X = np.stack(measures, axis=1)
    model = NoisyLabelClassifier(model="auto", random_state=0).fit(X[:200], given[:200])
    assert model.score(X[200:], true[200:]) > 0.9


def test_of_members_that_stand_in_for_each_other_one_is_taken():
    given, sure = np.arange(40) % 2, np.eye(2)[np.arange(40) % 2] * 0.8 + 0.1
    names = ["linear", "linear-10", "forest"]
    best, alone = choose(
        given, dict(zip(names, (sure / 2 + 0.25, sure, sure), strict=True)), np.full(2, 0.5), "auto"
    )
    assert best.names == ("linear-10", "forest")
    assert list(alone) == names


def test_fewer_members_are_taken_only_where_they_agree_clearly_better():
    """Three of five rows may be chance among 20, and are not among 200."""
    given = np.arange(1000) % 2
    for differ, names in ((20, ("better", "surer")), (200, ("better",))):
        better, surer = given.copy(), given.copy()
        surer[: differ * 3 // 5] = 1 - surer[: differ * 3 // 5]
        better[differ * 3 // 5 : differ] = 1 - better[differ * 3 // 5 : differ]
        probs = {"better": np.eye(2)[better] * 0.8 + 0.1, "surer": np.eye(2)[surer]}
        assert choose(given, probs, np.full(2, 0.5), "auto")[0].names == names


def test_a_difference_between_agreements_errs_as_much_as_is_said():
    rng = np.random.default_rng(0)
    given, differ = np.repeat([0, 1], [900, 100]), rng.random(1000) < 0.2
    gains = []
    for _ in range(2000):  # where they differ, one of the two is right by chance
        one = np.where(differ & (rng.random(1000) < 0.5), 1 - given, given)
        other = np.where(differ & (one == given), 1 - given, given)
        gains.append(agreement(given, one, 2) - agreement(given, other, 2))
    assert np.std(gains) == pytest.approx(error_of_difference(given, differ, 2), rel=0.05)


def test_of_many_rows_some_choose_which_models_are_fitted_to_all(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "_ENOUGH_TO_CHOOSE", 200)
    monkeypatch.setattr(trial, "_MANY", 400)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    true = (X[:, 0] * X[:, 1] > 0).astype(int)  # which no plane tells
    given = np.where(rng.random(600) < 0.1, 1 - true, true)
    said: list[str] = []
    learned = learn(
        NoisyDataset(X, given, None, ("a", "b")),
        Settings(),
        folds=3,
        progress="quiet",
        checkpoints=tmp_path,
        say=said.append,
    )
    assert said[0] == "First on 200 of the 600 rows, to see which models suit them:"
    assert said[1].startswith(f"Models: {', '.join(TABLE)}, in 3 folds")
    rest = said[2].removeprefix("Models: ").split(", in 3 folds")[0].split(", ")
    assert rest
    assert not {*rest} & {*LINEAR}
    names = [tried.name for tried in learned.tried]
    assert names[: len(TABLE)] == [f"{name}, 200 rows" for name in TABLE]
    assert [name for name in names if name in TABLE] == rest
    assert {*learned.fitted.fitted} <= {*rest}
    assert len(learned.probs) == 600
    assert (learned.predict(NoisyDataset(X, given, None, ("a", "b"))).argmax(1) == true).mean() > 0.8
    assert {path.stem for path in (tmp_path / "some").iterdir()} == {*TABLE}


def test_forests_side_by_side_leave_the_filters_of_warnings_alone(blobs):
    """They are those of all threads: set by two at a time, they were lost, and every tree warned."""
    X, given, _ = blobs
    seen: list[bool] = []

    class Probe(DecisionTreeClassifier):
        def fit(self, *arguments, **options):
            seen.append(warnings.filters is shared)
            return super().fit(*arguments, **options)

    def fit(seed):
        nonlocal shared
        shared = warnings.filters
        return BaggingClassifier(Probe(), 3, random_state=seed).fit(X, given)

    shared = None
    (fitted,) = side_by_side(fit, [0])
    assert seen == [True] * 3
    assert fitted.predict_proba(X).shape == (len(X), 3)
    assert sklearn.utils.parallel.warnings is warnings


def test_a_task_of_some_rows_knows_of_them_what_is_known_of_all():
    X, given = np.arange(8, dtype=np.float32)[:, None], np.arange(8) % 2
    known = {
        "sample_weight": np.linspace(0, 1, 8),
        "reviewed": np.arange(8) > 5,
        "original_labels": 1 - given,
    }
    task = Task(NoisyDataset(X, given, None, ("a", "b"), groups=np.arange(8) // 2), Settings(), 3, **known)
    some = task.of(np.arange(8) % 3 == 0)
    assert some.dataset.inputs[np.arange(3), 0].tolist() == [0, 3, 6]
    assert some.dataset.groups.tolist() == [0, 1, 3]
    for name, values in known.items():
        assert getattr(some, name).tolist() == values[[0, 3, 6]].tolist()
    assert (some.folds, some.settings) == (task.folds, task.settings)


@pytest.mark.parametrize("of_two", [0, 1])
def test_larger_trees_stand_in_for_smaller_ones_where_rows_are_many(blobs, monkeypatch, of_two):
    X, given, _ = blobs
    rows = NoisyDataset(np.float32([*X] * 2), [*given] * 2, None, tuple("abc"))
    monkeypatch.setattr(cards, "_LEAST_ROWS_OF_LARGER_TREES", len(rows) + of_two)
    names = [member.name for member in members_for(rows, Settings())]
    assert ("larger-trees" in names) is (not of_two)
    small, large = (CLASSIFIERS[name].make(rows, 0).fit(X, given) for name in ("trees", "larger-trees"))
    assert large.learning_rate > small.learning_rate
    assert large.max_leaf_nodes > small.max_leaf_nodes


def test_several_on_a_table_leave_rows_out_only_where_they_agree_clearly_better_without(blobs, monkeypatch):
    X, given, _ = blobs

    def kept(model: str) -> int:
        return NoisyLabelClassifier(model=model, folds=3, random_state=0).fit(X, given).kept_.sum()

    assert kept("auto") < len(X)
    asked = "tolerant.own_data.classifiers.learn_committee.choose_tau"
    monkeypatch.setattr(asked, lambda *arguments: (0.0, 0.0))  # without them they agree with no label
    assert kept("forest") < kept("auto") == len(X)


def test_labels_that_were_lost_one_way_are_reckoned_with():
    """Two fifths of a class's labels are another's: given labels ask for fewer of it than there are."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=4000)
    of_rare = 1 / (1 + np.exp(-1.5 * (score - 0.8)))
    true = (rng.random(4000) < of_rare).astype(int)
    given = np.where(rng.random(4000) < 0.4, 0, true)
    probs = np.stack([1 - 0.6 * of_rare, 0.6 * of_rare], axis=1)  # calibrated, of given labels
    prior = np.bincount(given) / 4000

    def truly(transition: np.ndarray | None) -> tuple[float, float]:
        tau, _ = choose_tau(given, probs, prior, "auto", transition)
        return tau, agreement(true, temper(probs, prior, tau).argmax(1), 2)

    plain, reckoned = truly(None), truly(np.array([[1.0, 0.0], [0.4, 0.6]]))
    assert reckoned[0] > plain[0]
    assert reckoned[1] > plain[1] + 0.01


def test_what_a_class_has_lost_is_found_from_what_the_folds_say():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    true = (X[:, 0] + 0.3 * rng.normal(size=600) > 0.8).astype(int)
    given = np.where(rng.random(600) < 0.4, 0, true)
    model = NoisyLabelClassifier(model="linear", random_state=0).fit(X, given)
    plain = NoisyLabelClassifier(model="linear", random_state=0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "tolerant.own_data.classifiers.learn_committee.has_whole_matrix", lambda *counts: False
        )
        plain.fit(X, given)
    assert model._predictor.tau >= plain._predictor.tau
    assert recall_score(true, model.predict(X)) >= recall_score(true, plain.predict(X))


@pytest.mark.parametrize("seed", [1, 3])
def test_a_class_of_two_rows_takes_none_from_the_others(seed):
    """What is said of these two is chance; a tenth of the other rows was predicted to be like them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(242, 4))
    true = np.array([*(np.arange(240) % 3), 3, 3])
    X[:240, :2] += 4 * np.eye(3)[true[:240], :2]
    given = np.where(rng.random(242) < 0.24, rng.integers(0, 3, 242), true)
    given[240:] = 3
    model = NoisyLabelClassifier(model="forest", folds=3, random_state=0).fit(X, given)
    assert (model.predict(X[:240]) == 3).sum() <= 2


def test_balanced_does_not_give_all_rows_to_a_class_of_a_few():
    """Naive Bayes takes classes for nearly alike, and was divided by how frequent the labels are."""
    rng = np.random.default_rng(0)

    def texts(*counts: int) -> tuple[list[str], np.ndarray]:
        labels = np.repeat(np.arange(len(counts)), counts)
        common = [" ".join(f"common{each}" for each in rng.integers(60, size=12)) for _ in labels]
        own = [f"w{label}x{rng.integers(40)} w{label}x{rng.integers(40)}" for label in labels]
        return [f"{one} {two}" for one, two in zip(common, own, strict=True)], labels

    model = make_pipeline(TfidfVectorizer(), ComplementNB(alpha=0.3))
    model = NoisyLabelClassifier(model=model, class_weight="balanced", folds=3, random_state=0)
    new, true = texts(100, 100, 5)
    predicted = model.fit(*texts(300, 300, 4)).predict(new)
    assert (predicted == true).mean() > 0.9  # of the larger two hardly any is in the third


def test_a_long_training_says_which_models_are_done(blobs, monkeypatch):
    X, given, _ = blobs
    rows = NoisyDataset(np.float32(X), given, None, tuple("abc"))

    def said() -> list[str]:
        lines: list[str] = []
        learn(rows, Settings(), folds=2, device="cpu", progress="quiet", say=lines.append)
        return [line.split(",")[0] for line in lines if " of " in line]

    assert said() == []
    monkeypatch.setattr("tolerant.own_data.classifiers.trial._WORTH_SAYING_S", 0)
    names = [member.name for member in members_for(rows, Settings())]
    assert said() == [f"  {number} of {len(names)}: {name}" for number, name in enumerate(names, 1)]


def test_loops_of_classifiers_have_one_thread_in_folds_at_last_and_to_predict():
    """OpenMP counts threads for each thread; in a process of its own, since the tests have but one."""
    code = """
import numpy as np, sklearn.ensemble
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info
from tolerant import NoisyLabelClassifier

def threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "openmp"}

found = []

class Probe(LogisticRegression):
    def fit(self, *arguments, **options):
        found.append(threads())
        return super().fit(*arguments, **options)

    def predict_proba(self, X):
        found.append(threads())
        return super().predict_proba(X)

assert 3 in threads(), threads()
X = np.random.default_rng(0).normal(size=(200, 3))
model = NoisyLabelClassifier(model=Probe(), folds=3).fit(X, (X[:, 0] > 0).astype(int))
assert len(found) >= 7, found
model.predict(X)
assert all(each == {1} for each in found), found
assert 3 in threads(), threads()
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_few_rows_are_tried_without_boosting(blobs):
    X, given, _ = blobs
    for times, names in ((2, TABLE), (1, [*LINEAR, "forest", "extra-trees"])):
        rows = NoisyDataset(np.float32([*X] * times), [*given] * times, None, tuple("abc"))
        assert [member.name for member in members_for(rows, Settings())] == names


@pytest.mark.parametrize("name", ["trees", "lightgbm"])
def test_boosting_learns_from_few_rows(blobs, name):
    """With 40 rows in each leaf there is nothing to split, and a third is right by chance."""
    pytest.importorskip(CLASSIFIERS[name].package)
    X, given, true = blobs
    model = NoisyLabelClassifier(model=name, folds=3, random_state=0).fit(X[:75], given[:75])
    assert model.score(X[75:], true[75:]) > 0.6


def test_texts_are_words_and_characters(tmp_path):
    rng = np.random.default_rng(0)
    parts = {"fruit": ["apple", "apples", "plum", "plums"], "car": ["wheel", "wheels", "brake", "brakes"]}
    rows = []
    for number in range(160):
        true = ("fruit", "car")[number % 2]
        words = " ".join(rng.choice(parts[true], 2)) + " " + " ".join(rng.choice(["the", "a", "of"], 4))
        rows.append((words, true if rng.random() > 0.15 else ("car", "fruit")[number % 2], true))
    frame = pd.DataFrame(rows, columns=["text", "label", "true"])
    frame[["text", "label"]].to_csv(tmp_path / "t.csv", index=False)
    said = tolerant("train", tmp_path / "t.csv", "--out", tmp_path / "run", "--folds", 3)
    assert "Models: words, characters, bayes" in said
    (tmp_path / "new.csv").write_text("text\nan appple\nwheell of a\n")  # only characters know these
    tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    found = [row["label"] for row in read(tmp_path / "p.csv")]
    wrong = (frame.label != frame.true).to_numpy()
    listed = [int(row["index"]) for row in read(tmp_path / "run" / "suspects.csv")]
    assert wrong[listed[: wrong.sum()]].mean() > 0.9
    assert found == ["fruit", "car"]


def test_the_page_names_the_words_that_speak_for_a_suggestion(tmp_path):
    texts = [
        "the red apple",
        "a green apple",
        "the ripe apple",
        "the fast car",
        "a red car",
        "the slow car",
    ] * 12
    given = (["fruit"] * 3 + ["drive"] * 3) * 12
    given[0] = "drive"
    pd.DataFrame({"text": texts, "label": given}).to_csv(tmp_path / "t.csv", index=False)
    tolerant("train", tmp_path / "t.csv", "--out", tmp_path / "run", "--folds", 3, "--features", "none")
    data = page_data(tmp_path / "run" / "report.html")
    assert data["ids"][0] == "0"
    assert data["reasons"][0][0] == ["apple", ""]


def test_the_page_names_the_columns_that_speak_for_a_suggestion(trained):
    folder, _ = trained
    data = page_data(folder / "run" / "report.html")
    named = [[name for name, _ in reasons] for reasons in data["reasons"][:20]]
    assert sum("pays" in names[:1] for names in named) > 15  # from which the label follows
    row = next(row for row, reasons in enumerate(data["reasons"]) if reasons)
    name, value = data["reasons"][row][0]
    assert value == data["values"][row][data["features"].index(name)]


def test_trees_get_categories_as_one_column_and_gaps_as_gaps():
    frame = pd.DataFrame({"age": [20, None, 40], "town": ["Ulm", "Bonn", "Ulm"]})
    encoder = TableEncoder.fit(frame)
    rows = NoisyDataset(encoder.transform(frame), [0, 1, 0], None, ("a", "b"), encoder=encoder)
    assert columns(rows)[:, 1].tolist() == [0, 1, 0]
    assert np.isnan(columns(rows)[:, 0]).tolist() == [False, True, False]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["trees", "auto"])
def test_a_column_that_is_nearly_empty_is_borne(name, weighted):
    """Folds without its one value have nothing in it; nor has the last fit, where that row weighs nothing."""
    X, true = make_blobs(n_samples=400, centers=2, random_state=0)
    row = np.arange(len(X))
    table = pd.DataFrame(X, columns=["a", "b"]).assign(
        note=np.where(row == 3, 1.0, np.nan), town=np.where(row == 5, "Ulm", None)
    )
    weight = np.where(np.isin(row, (3, 5)), 0.0, 1.0) if weighted else None
    model = NoisyLabelClassifier(model=name, folds=3, random_state=0).fit(table, true, weight)
    assert model.score(table, true) > 0.9
    assert name == "trees" or "trees" in [tried.name for tried in model.tried_]


@pytest.mark.parametrize(
    "model",
    [
        "linear",
        "forest",
        LogisticRegression(),
        DecisionTreeClassifier(min_samples_leaf=10),
        make_pipeline(SimpleImputer(), LogisticRegression()),
        KNeighborsClassifier(20),  # takes no weights
    ],
    ids=str,
)
def test_any_classifier_finds_wrong_labels(blobs, model):
    X, given, true = blobs
    fitted = NoisyLabelClassifier(model=model, folds=3, random_state=0).fit(X, given)
    assert fitted.score(X, true) > 0.8
    assert average_precision_score(given != true, 1 - fitted.suspects_.p_right) > 0.65
    assert not fitted.kept_.all()
    assert fitted.predict_proba(X).shape == (240, 3)


def test_a_pipeline_gets_the_frame_as_it_is():
    frame = customers()
    words = make_pipeline(OneHotEncoder(handle_unknown="ignore", min_frequency=20), LogisticRegression())
    model = NoisyLabelClassifier(model=words, folds=2, class_weight="balanced", random_state=0)
    model.fit(frame[["town", "age"]], frame.label)
    assert set(model.predict(frame[["town", "age"]])) <= {"no", "yes"}
    assert model.suspects_.ids.tolist() == frame.index[model.suspects_.index].tolist()


class KeepsACopy(LogisticRegression):
    """As CatBoost keeps one of its list of columns, which scikit-learn's `clone` takes for a change."""

    def __init__(self, columns=()):
        super().__init__()
        self.columns = list(columns)


def test_a_classifier_that_copies_its_arguments_is_copied_for_each_fit(blobs):
    X, given, true = blobs
    own = KeepsACopy([0, 1])
    model = NoisyLabelClassifier(model=own, folds=2, random_state=0).fit(X, given)
    assert model.score(X, true) > 0.8
    assert model.model_ is not own
    assert not hasattr(own, "coef_")


def test_a_pipeline_gets_texts_as_they_are():
    texts = ["red apple", "green apple", "red plum", "fast car", "red car", "slow car"] * 10
    given = np.array((["fruit"] * 3 + ["car"] * 3) * 10)
    given[:2] = "car"
    model = NoisyLabelClassifier(
        model=make_pipeline(TfidfVectorizer(), LogisticRegression()), folds=3, random_state=0
    ).fit(texts, given)
    assert model.predict(["an apple", "a car"]).tolist() == ["fruit", "car"]
    assert set(model.suspects_.index[:2]) == {0, 1}


def test_weights_and_groups_reach_the_classifier(blobs):
    X, given, _ = blobs

    class Spy(ClassifierMixin, BaseEstimator):
        seen: ClassVar[list[Any]] = []

        def fit(self, X, y, sample_weight=None):
            self.classes_ = np.unique(y)
            Spy.seen.append((len(X), None if sample_weight is None else float(np.min(sample_weight))))
            return self

        def predict_proba(self, X):
            return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

    weight = np.where(np.arange(240) < 40, 0.0, 2.0)
    groups = np.arange(240) // 120
    model = NoisyLabelClassifier(model=Spy(), folds=2, class_weight=None, random_state=0)
    model.fit(X, given, sample_weight=weight, groups=groups)
    assert sorted(Spy.seen[:2]) == [(80, 2.0), (120, 2.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": LinearSVC()}, "LinearSVC has none. Wrap it: sklearn.calibration.CalibratedClassifierCV"),
        ({"model": LinearRegression()}, "must be a classifier; LinearRegression is a regressor"),
        ({"model": LogisticRegression}, r"not its class; write LogisticRegression\(\)"),
        ({"model": "linear", "epochs": 3}, "epochs is for networks"),
        ({"model": "linear", "loss": "mae"}, "loss must be one of"),
        ({"model": "words"}, r"model 'words' .* does not suit these rows; these do: linear, linear-1"),
        ({"model": "linaer"}, "Did you mean 'linear'"),
        ({"class_weight": "even"}, "class_weight must be 'auto', 'balanced' or 'none'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(blobs, options, message):
    X, given, _ = blobs
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(**options).fit(X, given)


def test_a_classifier_that_fails_is_named_with_the_fold(blobs):
    X, given, _ = blobs
    X = X.copy()
    X[3, 0] = np.nan
    message = r"classifier LogisticRegression failed on fold \d of 2: (?s:.)*NaN(?s:.)*put an imputer"
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(model=make_pipeline(LogisticRegression()), folds=2).fit(X, given)
    with pytest.raises(ValueError, match="contains NaN") as failed:
        NoisyLabelClassifier(folds=2).fit(X, given)
    assert "put an imputer" in failed.value.__notes__[0]


class RunsOut(LogisticRegression):
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RunsOut:
        raise MemoryError("no room for the rows.")


def test_whatever_a_classifier_fails_with_the_fold_is_said_and_no_advice_on_gaps(blobs):
    X, given, _ = blobs
    with pytest.raises(MemoryError, match=r"no room for the rows\.") as failed:
        NoisyLabelClassifier(model=RunsOut(), folds=2).fit(X, given)
    assert re.fullmatch(r"The classifier RunsOut failed on fold \d of 2\.", failed.value.__notes__[0])
    with pytest.raises(
        ValueError, match=r"KNeighborsClassifier failed .*sample_weight\. Leave.* that does\.$"
    ):
        NoisyLabelClassifier(model=KNeighborsClassifier(), loss="lq", folds=2).fit(X, given)


def test_class_weight_moves_predictions_towards_the_rare_class():
    X, y = make_classification(600, weights=[0.9], class_sep=0.7, flip_y=0.02, random_state=0)
    none, auto, balanced = (
        NoisyLabelClassifier(model="linear", class_weight=weight, folds=3, random_state=0)
        .fit(X, y)
        .predict(X)
        for weight in (None, "auto", "balanced")
    )
    assert none.mean() < auto.mean() <= balanced.mean()


def test_the_noise_rate_is_that_of_the_predictions_before_they_were_moved():
    """All labels are right. Moved towards the rare class, rows where both overlap would seem wrong."""
    rng = np.random.default_rng(0)
    y = rng.choice(2, size=1500, p=[0.9, 0.1])
    X = rng.normal(size=(1500, 4))
    X[np.arange(1500), y] += 1.5
    model = NoisyLabelClassifier(model="linear", class_weight="balanced", folds=3, random_state=0).fit(X, y)
    assert model.noise_rate_interval_[0] < 0.01
    assert model.noise_rate_ < 0.05


@pytest.fixture(scope="module")
def features() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three classes in 100 columns of unlike scales; 40 % of the labels drawn anew."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 1500)
    X = (rng.normal(size=(1500, 100)) + rng.normal(size=(3, 100))[true] * 0.35) * np.linspace(0.1, 5, 100) + 7
    given = np.where(rng.random(1500) < 0.4, rng.integers(0, 3, 1500), true)
    return X.astype(np.float32), given, true


def test_the_discriminant_forgives_wrong_labels_and_is_as_sure_as_it_is_right(features):
    X, given, true = features
    model = RoundDiscriminant().fit(X[:500], given[:500])
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:500], given[:500])
    probs = model.predict_proba(X[500:])
    right = (probs.argmax(1) == true[500:]).mean()
    assert right > scaled.score(X[500:], true[500:]) + 0.05
    assert probs.max(1).mean() == pytest.approx(right, abs=0.1)


def test_the_discriminant_makes_use_of_rows_that_are_mislabelled(features):
    """One in three classes is called the next one, by four in ten: T tells, and rows are not lost."""
    X, _, true = features
    flipped = np.where((true == 0) & (np.random.default_rng(1).random(1500) < 0.4), 1, true)
    probs = RoundDiscriminant().fit(X[:900], flipped[:900]).predict_proba(X[900:])
    plain = RoundDiscriminant().fit(X[:900], flipped[:900], trusted=np.ones(900, bool)).predict_proba(X[900:])
    of_class_0 = true[900:] == 0
    told, without = ((found.argmax(1) == 0)[of_class_0].mean() for found in (probs, plain))
    assert told > without + 0.05


def test_the_discriminant_bears_columns_that_a_single_row_differs_in():
    """Without the part of that row they are constant but for rounding, as features of few pictures are."""
    rng = np.random.default_rng(1)
    label = np.arange(60) % 3
    X = np.full((60, 150), 0.1, np.float32)
    X[rng.integers(0, 60, 100), np.arange(50, 150)] += 7 * rng.random(100)
    X[:, :50] = rng.normal(size=(60, 50)) + 2 * np.eye(50)[label]
    probs = RoundDiscriminant().fit(X, label).predict_proba(X)
    assert (probs.argmax(1) == label).mean() > 0.9  # 0.38, in many times the time


def test_the_discriminant_keeps_given_labels_that_it_would_only_spoil():
    """A hundred classes in twenty heaps, all labels right: what a first fit makes of them is often wrong."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 100, 2000)
    centres = rng.normal(size=(20, 40))[np.arange(100) // 5] + 0.6 * rng.normal(size=(100, 40))
    X = (rng.normal(size=(2000, 40)) * rng.gamma(2, 0.5, size=(2000, 1)) + 0.3 * centres[label]).astype("f4")
    found, plain = (RoundDiscriminant().fit(X, label, trusted=who) for who in (None, np.ones(2000, bool)))
    np.testing.assert_allclose(found.coef_, plain.coef_)


def test_the_rate_of_models_that_relabel_ends_where_the_given_labels_allow():
    """Hard rows are mislabelled more often, as by people: how sure of true classes to be is not known."""
    rng = np.random.default_rng(0)
    sure, choice = rng.uniform(0.5, 1, 2000), rng.integers(0, 5, 2000)
    probs = np.where(np.eye(5, dtype=bool)[choice], sure[:, None], (1 - sure[:, None]) / 4)
    true = (probs.cumsum(1) > rng.random((2000, 1))).argmax(1)
    wrong = rng.random(2000) < 1.6 * (1 - sure)
    given = np.where(wrong, (true + rng.integers(1, 5, 2000)) % 5, true)
    surer = (probs**2 / (probs**2).sum(axis=1, keepdims=True)).astype(np.float32)
    plain, relabelled = (
        find_doubts(given, surer, None, 0.0, of_true=how).noise_rate for how in (False, True)
    )
    assert (plain.estimate, plain.low) == (relabelled.estimate, relabelled.low)
    assert relabelled.high > plain.high + 0.03
    assert relabelled.low < wrong.mean() < relabelled.high


def test_what_a_person_has_reviewed_is_not_relabelled(features):
    """Two hundred rows that look like class 0 are of class 1, and somebody has said so."""
    X, _, true = features
    odd = np.flatnonzero(true[:1000] == 0)[:200]
    given = true[:1000].copy()
    given[odd] = 1
    rows = NoisyDataset(X[:1000], given, None, ("a", "b", "c"))
    settings = Settings(model="discriminant", seed=0)
    reviewed = np.isin(np.arange(1000), odd)
    doubted, known = (
        learn(rows, settings, folds=3, reviewed=who, device="cpu", progress="quiet")
        for who in (None, reviewed)
    )
    assert doubted.kept.all()
    more = (known.predict(rows) - doubted.predict(rows))[odd, 1]
    assert more.mean() > 0.05


def test_a_network_learns_from_the_discriminant_of_features_and_answers_beside_it(tmp_path):
    seen, others = load("digits"), load("digits", split="test")
    X, unseen = (each.inputs.reshape(len(each), -1).astype(np.float32) for each in (seen, others))
    rng = np.random.default_rng(1)
    given = np.where(rng.random(len(seen)) < 0.3, rng.integers(0, 10, len(seen)), seen.given_labels)
    rows = NoisyDataset(X, given, None, seen.class_names)
    settings = Settings(model="discriminant", pretrained=True, seed=0)
    learned, again, at_once = (
        learn(rows, settings, folds=folds, device="cpu", progress="quiet") for folds in (3, 3, 0)
    )
    pair = learned.fitted.fitted["discriminant"]
    alone, both = (
        (found.predict_proba(unseen).argmax(1) == others.given_labels).mean()
        for found in (pair.teacher, pair)
    )
    assert both > alone + 0.005
    np.testing.assert_allclose(pair.predict_proba(unseen).sum(1), 1.0, atol=1e-6)
    assert np.array_equal(again.predict(rows), learned.predict(rows))
    write_classifiers(tmp_path / "model.classifiers", learned.fitted.fitted, "digest")
    stored, _ = read_classifiers(tmp_path / "model.classifiers")
    assert np.array_equal(stored["discriminant"].predict_proba(unseen), pair.predict_proba(unseen))
    # Without folds there is nothing to learn from but labels that the discriminant has seen.
    assert isinstance(at_once.fitted.fitted["discriminant"], RoundDiscriminant)
    of_columns = learn(rows, replace(settings, pretrained=False), folds=3, device="cpu", progress="quiet")
    assert isinstance(of_columns.fitted.fitted["discriminant"], RoundDiscriminant)


def test_networks_are_taught_by_a_half_each_and_doubt_the_other():
    rows = load("digits")
    X = rows.inputs.reshape(len(rows), -1).astype(np.float32)
    rng = np.random.default_rng(1)
    given = np.where(rng.random(len(rows)) < 0.3, rng.integers(0, 10, len(rows)), rows.given_labels)
    settings = Settings(model="discriminant", pretrained=True, seed=0)
    dataset = NoisyDataset(X, given, None, rows.class_names)
    learned, alone = (
        learn(dataset, each, folds=3, device="cpu", progress="quiet")
        for each in (settings, replace(settings, pretrained=False))
    )
    networks, said = teach(OutOfFold(alone.probs, np.ones(len(X), bool)), Task(dataset, settings, 3))
    assert said.held_out.all()
    halves = [
        np.flatnonzero(np.isclose(taught.say(one, X), said.probs, atol=1e-5).all(axis=1)) for one in networks
    ]
    assert sorted(np.concatenate(halves)) == list(range(len(X)))
    assert all(0.4 < len(half) / len(X) < 0.6 for half in halves)
    np.testing.assert_allclose(learned.probs, (alone.probs + said.probs) / 2, atol=1e-5)
    wrong = given != rows.given_labels
    ranked, before = (average_precision_score(wrong, -each.suspects.p_right) for each in (learned, alone))
    assert ranked > before
    # How many are wrong is still told by the classifier.
    assert learned.suspects.noise_rate == alone.suspects.noise_rate
    np.testing.assert_array_equal(learned.rate_probs, alone.probs)


def test_few_rows_of_many_classes_are_doubted_by_networks_but_not_answered():
    rows = load("digits").subset(np.arange(450))
    X = rows.inputs.reshape(len(rows), -1).astype(np.float32)
    dataset = NoisyDataset(X, rows.given_labels, None, rows.class_names)
    settings = Settings(model="discriminant", pretrained=True, seed=0)
    learned = learn(dataset, settings, folds=2, device="cpu", progress="quiet")
    assert learned.rate_probs is not None
    assert isinstance(learned.fitted.fitted["discriminant"], RoundDiscriminant)


def test_taught_networks_doubt_as_if_no_row_had_weighed_more(monkeypatch):
    class Said(OutOfFold):
        def unweighted(self, given_labels, sample_weight):
            assert sample_weight is weight
            return OutOfFold(np.full_like(self.probs, 0.5), self.held_out)

    monkeypatch.setattr(taught, "OutOfFold", Said)
    rng = np.random.default_rng(0)
    X, given, weight = rng.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 2, np.ones(60)
    task = Task(NoisyDataset(X, given, None, ("a", "b")), Settings(seed=0), 2, weight)
    _, said = teach(OutOfFold(np.full((60, 2), 0.5, np.float32), np.ones(60, bool)), task)
    assert (said.probs == 0.5).all()


def test_a_half_of_one_class_teaches_nothing():
    rng = np.random.default_rng(0)
    X, given = rng.normal(size=(60, 5)).astype(np.float32), np.zeros(60, np.int64)
    given[0] = 1
    scored = OutOfFold(np.full((60, 2), 0.5, np.float32), np.ones(60, bool))
    networks, said = teach(scored, Task(NoisyDataset(X, given, None, ("a", "b")), Settings(seed=0), 2))
    assert networks == []
    assert not said.held_out.any()


def test_a_taught_network_sees_no_more_rows_than_fit_in_memory(monkeypatch):
    rows = load("digits")
    X = rows.inputs.reshape(len(rows), -1).astype(np.float32)
    monkeypatch.setattr(taught, "_MOST_CELLS", 200 * X.shape[1])
    seen: list[int] = []
    run_one = taught.Fleet.run_one

    def spied(fleet: Any, job: Any) -> Any:
        seen.append(len(job.dataset))
        return run_one(fleet, job)

    monkeypatch.setattr(taught.Fleet, "run_one", spied)
    whole = Task(NoisyDataset(X, rows.given_labels, None, rows.class_names), Settings(seed=0), 3)
    for task in (whole.of(np.arange(len(X)) < 300), whole):
        num_rows = len(task.dataset)
        teach(OutOfFold(np.full((num_rows, 10), 0.1, np.float32), np.ones(num_rows, bool)), task)
    assert sum(seen[:2]) == 300
    assert seen[2:] == [200, 200]


def test_a_taught_network_takes_labels_that_a_person_has_reviewed_for_right():
    rows = load("digits")
    X = rows.inputs.reshape(len(rows), -1).astype(np.float32)
    given = rows.given_labels.copy()
    odd = np.flatnonzero(given == 3)[:60]
    given[odd] = 8
    scored = OutOfFold(np.full((len(X), 10), 0.004, np.float32), np.ones(len(X), bool))
    scored.probs[np.arange(len(X)), rows.given_labels] = 0.964
    task = Task(NoisyDataset(X, given, None, rows.class_names), Settings(seed=0), 3)
    told = [
        np.mean([taught.say(one, X)[odd, 8].mean() for one in teach(scored, replace(task, reviewed=who))[0]])
        for who in (None, np.isin(np.arange(len(X)), odd))
    ]
    assert told[1] > told[0] + 0.1


def test_the_discriminant_reads_rows_block_by_block(features, tmp_path, monkeypatch):
    X, given, _ = features
    whole = RoundDiscriminant().fit(X[:500], given[:500]).predict_proba(X)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr(discriminant, "BLOCK", 300)  # of which the last is not full
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    some = take(rows, np.arange(500))
    assert isinstance(some, LazySubset)
    assert np.abs(RoundDiscriminant().fit(some, given[:500]).predict_proba(rows) - whole).max() < 0.05


def test_a_row_without_weight_tells_the_discriminant_nothing(features):
    X, given, _ = features
    weight = np.repeat([1.0, 0.0], 250)
    strange = np.where(np.arange(500)[:, None] < 250, X[:500], -X[:500])
    first, second = (RoundDiscriminant().fit(rows, given[:500], weight) for rows in (X[:500], strange))
    assert np.abs(first.predict_proba(X) - second.predict_proba(X)).max() < 1e-3


@pytest.mark.parametrize("q", [0.3, 0.7])
def test_reweighting_lowers_lq_from_fit_to_fit(blobs, q):
    X, given, _ = blobs

    def fit(weight: np.ndarray) -> LogisticRegression:
        return LogisticRegression(C=1e4, max_iter=5000, tol=1e-8).fit(X, given, sample_weight=weight)

    model, losses = fit_lq(fit, lambda model: model.predict_proba(X), given, None, q)
    assert len(losses) >= 3
    assert all(after < before for before, after in pairwise(losses))
    p_y = model.predict_proba(X)[np.arange(len(given)), given]
    assert np.mean((1 - p_y**q) / q) == pytest.approx(losses[-1], rel=1e-6)


def test_lq_of_a_classifier_is_another_model_than_cross_entropy(blobs):
    X, given, _ = blobs
    plain, robust = (
        NoisyLabelClassifier(model=LogisticRegression(), loss=loss, folds=0, class_weight=None).fit(X, given)
        for loss in ("cce", "lq")
    )
    assert robust.predict_proba(X).max(1).mean() > plain.predict_proba(X).max(1).mean() + 0.05


def test_small_networks_train_with_one_thread_and_give_the_others_back(blobs):
    X, given, _ = blobs
    seen = []

    def network(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        layer = torch.nn.Linear(shape[0], num_classes)
        layer.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
        return layer

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        NoisyLabelClassifier(model=network, epochs=1, folds=0, random_state=0).fit(X, given)
        assert seen[0] == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
