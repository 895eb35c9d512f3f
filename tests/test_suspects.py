"""Suspects: the ranking against cleanlab's, the noise rate against the real one, the files."""

from __future__ import annotations

import csv
import subprocess
import sys
from functools import cache
from pathlib import Path

import cleanlab
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import tolerant
from tolerant import find_suspects, noise
from tolerant.csv_cells import unguard
from tolerant.suspects import Suspects

TRANSITIONS = {
    "uniform 0.4": noise.symmetric(10, 0.4),
    "circular 0.3": noise.circular(10, 0.3),
    "uniform 0.1": noise.symmetric(10, 0.1),
}


@cache
def digits(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Given labels, whether each is wrong, and predictions from five folds."""
    inputs, true_labels = load_digits(return_X_y=True)
    given = noise.corrupt(true_labels, TRANSITIONS[kind], seed=0).given_labels
    model = LogisticRegression(C=0.01, tol=1e-2, max_iter=1000)
    probs = cross_val_predict(model, inputs / 16 * 4, given, cv=5, method="predict_proba")
    return given, given != true_labels, probs


def small() -> tuple[np.ndarray, np.ndarray]:
    """60 rows of three classes, rows 0, 1 and 2 with a wrong label, row 1 the worst."""
    true_labels = np.arange(60) % 3
    probs = np.full((60, 3), 0.05)
    probs[np.arange(60), true_labels] = 0.9
    given = true_labels.copy()
    given[:3] = [1, 2, 0]
    probs[1] = [0.02, 0.97, 0.01]
    return given, probs


@pytest.mark.parametrize("kind", TRANSITIONS)
def test_ranking_is_no_worse_than_self_confidence(kind: str) -> None:
    given, wrong, probs = digits(kind)
    ours = average_precision_score(wrong, -find_suspects(given, probs).p_right)
    theirs = average_precision_score(
        wrong, -cleanlab.rank.get_label_quality_scores(given, probs, method="self_confidence")
    )
    assert ours >= theirs
    if kind.startswith("circular"):  # which mistakes are common is worth a lot where it matters
        assert ours > theirs + 0.05


@pytest.mark.parametrize("kind", TRANSITIONS)
def test_noise_rate_lies_in_its_interval(kind: str) -> None:
    given, wrong, probs = digits(kind)
    rate = find_suspects(given, probs).noise_rate
    assert rate.low <= wrong.mean() <= rate.high
    assert rate.low <= rate.estimate <= rate.high
    assert rate.high - rate.low < 0.3


@pytest.mark.parametrize("kind", ["uniform 0.4", "many classes"])
def test_after_a_review_of_the_most_doubtful_the_rest_is_still_counted(kind: str) -> None:
    """The reviewed rows are the surest mistakes: fitted to the others alone, the noise was far too low."""
    if kind == "many classes":
        rng = np.random.default_rng(0)
        true, other = rng.integers(0, 150, (2, 1500))
        given = np.where(rng.random(1500) < 0.3, other, true)
        logits = rng.normal(size=(1500, 150))
        logits[np.arange(1500), true] += rng.normal(6.0, 2.0, 1500)
        wrong, probs = given != true, np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    else:
        given, wrong, probs = digits(kind)
    reviewed = np.zeros(len(given), bool)
    reviewed[find_suspects(given, probs).index[:250]] = True
    corrected = np.where(reviewed & wrong, probs.argmax(axis=1), given)
    left = (wrong & ~reviewed).mean()
    rate = find_suspects(corrected, probs, reviewed=reviewed, original_labels=given).noise_rate
    assert rate.low <= left <= rate.high
    assert abs(rate.estimate - left) < 0.03
    alone = find_suspects(corrected, probs, reviewed=reviewed).noise_rate
    assert abs(rate.estimate - left) < abs(alone.estimate - left)


def test_where_every_row_is_reviewed_none_is_wrong() -> None:
    given, probs = small()
    done = find_suspects(given, probs, reviewed=np.ones(60, bool), original_labels=given)
    assert len(done) == 0
    assert done.noise_rate.high == 0.0


def test_where_nearly_every_row_is_reviewed_the_rate_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those the noise is fitted to may then be reviewed without exception."""
    given, probs = small()
    monkeypatch.setattr("tolerant.suspects.ranking.FIT_ROWS", 10)
    reviewed = np.arange(60) != 7
    rates = [
        find_suspects(given, probs, reviewed=reviewed, original_labels=given, seed=seed).noise_rate
        for seed in range(5)
    ]
    assert all(0.0 <= rate.low <= rate.estimate <= rate.high <= 1 / 60 for rate in rates)


def test_original_labels_are_checked() -> None:
    given, probs = small()
    with pytest.raises(ValueError, match="original_labels must be a vector of 60 labels"):
        find_suspects(given, probs, original_labels=given[:9])


def test_transition_is_close_under_uniform_noise() -> None:
    given, _, probs = digits("uniform 0.4")
    found = find_suspects(given, probs).transition
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found, TRANSITIONS["uniform 0.4"], atol=0.12)


def test_no_noise_gives_an_interval_from_zero_that_is_not_empty() -> None:
    true_labels = np.arange(200) % 2
    probs = np.where(np.eye(2)[true_labels] > 0, 0.99, 0.01)
    suspects = find_suspects(true_labels, probs)
    assert len(suspects) == 0
    assert suspects.noise_rate.low == 0.0
    assert 3 / 200 <= suspects.noise_rate.high < 0.05


@pytest.mark.parametrize(("num_rows", "low"), [(6, 0.0), (30, 1 - 3 / 30)])  # 6 may agree by chance
def test_nothing_but_wrong_labels_gives_an_interval_that_is_not_empty(num_rows: int, low: float) -> None:
    """Every resample of them is like every other: that is no proof that no row is right."""
    given = np.arange(num_rows) % 2
    rate = find_suspects(given, np.eye(2)[1 - given]).noise_rate
    assert rate.estimate > 0.99
    assert rate.low == pytest.approx(low, abs=1e-6)
    assert rate.high == 1.0


def test_suspects_are_the_rows_the_model_would_label_otherwise() -> None:
    given, probs = small()
    suspects = find_suspects(given, probs, class_names=("a", "b", "c"))
    assert suspects.index.tolist()[0] == 1
    assert sorted(suspects.index.tolist()) == [0, 1, 2]
    assert suspects.is_suspect.sum() == 3
    assert (suspects.suggested_labels != suspects.given_labels).all()
    assert suspects.suggested_labels[0] == 1
    assert suspects.p_y[0] == pytest.approx(0.01)
    assert suspects.confidence[0] == pytest.approx(0.97)
    assert (np.diff(suspects.p_right[suspects.index]) >= 0).all()


def test_all_rows_suspect_and_one_label_only() -> None:
    probs = np.tile([0.1, 0.9], (20, 1))
    suspects = find_suspects(np.zeros(20, dtype=int), probs)
    assert len(suspects) == 20
    assert np.isfinite(suspects.p_right).all()
    assert np.isfinite(suspects.transition).all()


def test_reviewed_rows_are_right_and_not_listed() -> None:
    given, probs = small()
    reviewed = np.zeros(60, dtype=bool)
    reviewed[[1, 5]] = True
    suspects = find_suspects(given, probs, reviewed=reviewed)
    assert sorted(suspects.index.tolist()) == [0, 2]
    assert suspects.num_reviewed == 2
    assert suspects.p_right[1] == 1.0
    everything = find_suspects(given, probs, reviewed=np.ones(60, dtype=bool))
    assert len(everything) == 0
    assert everything.noise_rate.high == 0.0


def test_the_rate_counts_reviewed_rows_as_right() -> None:
    given, wrong, probs = digits("uniform 0.4")
    reviewed = np.arange(len(given)) % 2 == 0
    given = np.where(reviewed & wrong, load_digits().target, given)
    rate = find_suspects(given, probs, reviewed=reviewed).noise_rate
    assert rate.low <= (wrong & ~reviewed).mean() <= rate.high
    assert abs(rate.estimate - (wrong & ~reviewed).mean()) < 0.05


def test_certain_and_half_precision_predictions() -> None:
    given, probs = small()
    certain = np.eye(3, dtype=np.float32)[probs.argmax(axis=1)]
    suspects = find_suspects(given, certain)
    assert sorted(suspects.index.tolist()) == [0, 1, 2]
    assert (suspects.p_right[:3] < 0.5).all()
    assert (suspects.p_right[3:] > 0.5).all()


def test_a_class_without_rows_keeps_its_label() -> None:
    given, probs = small()
    wider = np.hstack([probs, np.zeros((60, 1))])
    assert find_suspects(given, wider).transition[3, 3] > 0.9


def test_more_rows_than_the_fit_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    given, wrong, probs = digits("uniform 0.4")
    whole = find_suspects(given, probs)
    monkeypatch.setattr("tolerant.suspects.ranking.FIT_ROWS", 900)
    monkeypatch.setattr("tolerant.suspects.rate._RESAMPLE_ROWS", 300)
    part = find_suspects(given, probs)
    assert part.index.tolist() != []
    assert sorted(part.index) == sorted(whole.index)
    assert part.noise_rate.low <= wrong.mean() <= part.noise_rate.high


def test_same_seed_same_answer() -> None:
    given, _, probs = digits("uniform 0.1")
    assert find_suspects(given, probs).noise_rate == find_suspects(given, probs).noise_rate


def awkward() -> Suspects:
    given, probs = small()
    ids = np.array(['=HYPERLINK("x")', "-3", "'quoted'", *map(str, range(57))], dtype=object)
    kept = np.ones(60, dtype=bool)
    kept[:2] = False
    pruned_at = np.full(60, -1)
    pruned_at[:2] = 40
    names = ('+a, "b"', "new\nline", "日本")
    return find_suspects(given, probs, ids=ids, class_names=names, kept=kept, pruned_at=pruned_at)


def test_csv_reads_back_whole(tmp_path: Path) -> None:
    suspects = awkward()
    suspects.to_csv(tmp_path / "suspects.csv")
    with open(tmp_path / "suspects.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [unguard(row["id"]) for row in rows] == [str(row_id) for row_id in suspects.ids]
    assert [unguard(row["given_label"]) for row in rows] == [
        suspects.class_names[label] for label in suspects.given_labels
    ]
    assert {row["id"]: (row["kept"], row["pruned_at"]) for row in rows} == {
        '\'=HYPERLINK("x")': ("no", "40"),
        "-3": ("no", "40"),
        "''quoted'": ("yes", ""),
    }
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_the_pandas_line_and_the_frame_agree(tmp_path: Path) -> None:
    suspects = awkward()
    suspects.to_csv(tmp_path / "suspects.csv")
    read = pd.read_csv(tmp_path / "suspects.csv", dtype={"id": str})
    frame = suspects.to_frame()
    assert list(read.columns) == list(frame.columns)
    assert read["index"].tolist() == frame["index"].tolist() == suspects.index.tolist()
    np.testing.assert_allclose(read["p_right"], frame["p_right"], rtol=1e-3)
    assert frame["kept"].tolist() == suspects.kept.tolist()
    assert frame.query("p_right < 0.9")["rank"].tolist() == [1, 2, 3]
    assert frame["pruned_at"].isna().sum() == 1


def test_frame_without_pruning_says_nothing_of_it() -> None:
    given, probs = small()
    frame = find_suspects(given, probs).to_frame()
    assert frame["kept"].isna().all()
    assert frame["pruned_at"].isna().all()


def test_the_cleanlab_line() -> None:
    given, _, probs = digits("uniform 0.1")
    inputs = load_digits().data / 16 * 4
    suspects = find_suspects(given, probs)
    learner = cleanlab.classification.CleanLearning(LogisticRegression(C=0.01, tol=1e-2, max_iter=1000))
    learner.fit(inputs, given, label_issues=suspects.is_suspect)
    true_labels = load_digits().target
    assert (learner.predict(inputs) == true_labels).mean() > 0.9


def test_head_keeps_what_is_said_of_all_rows() -> None:
    suspects = awkward()
    assert len(suspects.head(0)) == 0
    first = suspects.head(1)
    assert len(first) == len(first.ids) == len(first.kept) == 1
    assert first.num_rows == 60
    assert first.kept_share == suspects.kept_share == pytest.approx(58 / 60)
    pd.testing.assert_frame_equal(first.to_frame(), suspects.to_frame().head(1))


def test_a_row_pruned_before_training_was_pruned_at_0() -> None:
    given, probs = small()
    epochs = find_suspects(given, probs, pruned_at=np.where(np.arange(60) == 1, 0, -1)).prune_epochs()
    assert epochs == [0, None, None]


def _known(num_rows: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Labels, predictions that are always right, and the share that is wrong."""
    rng = np.random.default_rng(0)
    true_labels, wrong = rng.integers(0, 4, num_rows), rng.random(num_rows) < 0.3
    given = np.where(wrong, (true_labels + 1) % 4, true_labels)
    probs = np.where(np.eye(4)[true_labels] > 0, 1 - 3e-9, 1e-9)  # both readings of it are the same
    return given, probs, float(wrong.mean())


def test_the_rate_of_these_labels_is_known_where_every_row_is() -> None:
    """It is no rate of a population, from which these rows were drawn."""
    given, probs, wrong = _known(20_000)
    rate = find_suspects(given, probs).noise_rate
    assert rate.low < wrong < rate.high
    assert rate.high - rate.low == pytest.approx(6 / 20_000)


def test_of_many_rows_some_are_looked_at_which_is_a_sample() -> None:
    given, probs, wrong = _known(80_000)
    rate = find_suspects(given, probs).noise_rate
    expected = 1.96 * np.sqrt(0.3 * 0.7 / 20_000 * (1 - 20_000 / 80_000))
    assert rate.low < wrong < rate.high
    assert 0.9 * expected < rate.estimate - rate.low < 1.1 * expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given_labels": [0] * 59}, "given_labels must be a vector of 60 labels, one for each row"),
        ({"given_labels": [7] * 60}, "given_labels must be in 0 to 2"),
        ({"probs": np.ones((60, 3))}, "probs must be probabilities"),
        ({"probs": np.full((60, 3), np.nan)}, "probs must be probabilities"),
        ({"ids": ["a"] * 60}, "ids must all be different.*'a' twice"),
        ({"ids": [1, "1", *range(2, 60)]}, "ids must all be different"),
        ({"ids": ["a"]}, "ids must name 60 rows"),
        ({"class_names": ("a", "b")}, "class_names must be 3 different names"),
        ({"class_names": ("a", "a", "b")}, "class_names must be 3 different names"),
        ({"class_names": ("a", "", "b")}, "none empty"),
        ({"kept": np.ones(59, dtype=bool)}, "kept must be bool"),
        ({"kept": np.ones(60)}, "kept must be bool"),
        ({"pruned_at": np.ones(60)}, "pruned_at must be int64"),
    ],
)
def test_bad_input_is_refused(change: dict, message: str) -> None:
    given, probs = small()
    arguments = {"given_labels": given, "probs": probs} | change
    with pytest.raises(ValueError, match=message):
        find_suspects(**arguments)


def test_head_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="count must be at least 0; got -1"):
        awkward().head(-1)


@pytest.mark.parametrize("kind", ["uniform", "pair"])
def test_many_classes_with_few_rows_each_share_one_noise_rate(kind: str) -> None:
    """A whole matrix would have 15 entries a row, and put hard rows down to noise."""
    num_rows, num_classes = 1500, 150
    rng = np.random.default_rng(0)
    true = rng.integers(0, num_classes, num_rows)
    other = rng.integers(0, num_classes, num_rows) if kind == "uniform" else (true + 1) % num_classes
    given = np.where(rng.random(num_rows) < 0.2, other, true)
    logits = rng.normal(size=(num_rows, num_classes))
    logits[np.arange(num_rows), true] += rng.normal(6.0, 2.0, num_rows)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    suspects = find_suspects(given, probs)
    off = suspects.transition[~np.eye(num_classes, dtype=bool)]
    assert np.ptp(off) == 0
    assert abs(suspects.noise_rate.estimate - (given != true).mean()) < 0.02
    assert suspects.noise_rate.low < (given != true).mean() < suspects.noise_rate.high
    worst = suspects.index[:200]
    assert (given != true)[worst].mean() > 0.95


def test_columns_of_a_frame_go_by_their_names() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.95, 0.05]])
    words, numbers = ["cat", "dog", "cat", "cat"], [0, 1, 0, 0]
    for labels, names in ((words, ["cat", "dog"]), (numbers, [0, 1]), (numbers, ["0", "1"])):
        for order in ([0, 1], [1, 0]):
            frame = pd.DataFrame(probs, columns=names)[[names[column] for column in order]]
            suspects = find_suspects(labels, frame)
            assert suspects.index.tolist() == [2]
            assert suspects.p_y.tolist() == [0.1]
            assert suspects.class_names[suspects.suggested_labels[0]] == str(names[1])
            told = find_suspects(labels, frame, class_names=np.array(["cat", "dog"]))
            assert (told.index.tolist(), told.p_y.tolist()) == ([2], [0.1])
    other = pd.DataFrame(probs, columns=["p of cat", "p of dog"])
    assert find_suspects(words, other).index.tolist() == [2], "names that are no labels say nothing"


def test_frames_whose_rows_are_ordered_otherwise_are_refused() -> None:
    probs = pd.DataFrame([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]], index=[7, 8, 9])
    labels = pd.Series([0, 1, 0], index=[7, 8, 9])
    assert find_suspects(labels, probs).index.tolist() == [2]
    assert find_suspects(labels.reset_index(drop=True), probs).index.tolist() == [2]
    with pytest.raises(ValueError, match=r"same rows in another order.*probs.loc\[given_labels.index\]"):
        find_suspects(labels.sort_values(), probs)
    with pytest.raises(ValueError, match="same rows in another order"):
        find_suspects(labels.sort_values(), probs, class_names=("cat", "dog"))


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA])
def test_a_missing_label_is_no_class(nothing: object) -> None:
    probs = np.full((4, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"given_labels must have a value .*; 1 are missing .* in row 2"):
        find_suspects(np.array(["a", "b", nothing, "a"], object), probs)


def test_labels_may_be_the_words_of_class_names() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.95, 0.05]])
    words = find_suspects(np.array(["cat", "dog", "cat", "cat"], object), probs, class_names=("cat", "dog"))
    assert words.index.tolist() == find_suspects([0, 1, 0, 0], probs).index.tolist() == [2]
    with pytest.raises(ValueError, match=r"among class_names \('cat', 'dog'\); got 'cow' in row 1"):
        find_suspects(["cat", "cow", "cat", "cat"], probs, class_names=("cat", "dog"))
    without = find_suspects(["cat", "dog", "cat", "cat"], probs)
    assert (without.index.tolist(), without.class_names) == ([2], ("cat", "dog"))
    with pytest.raises(ValueError, match=r"one for each of the 2 columns .* classes_; got 1 words \('cat' "):
        find_suspects(np.array(["cat"] * 4, object), probs)


def test_tensors_as_a_loop_has_them() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 4.0], [3.0, 0.0]], requires_grad=True)
    assert find_suspects(torch.tensor([0, 1, 0, 0]), logits.softmax(1)).index.tolist() == [2]


def test_it_is_shown_in_one_line() -> None:
    shown = repr(find_suspects(np.zeros(500, int), np.full((500, 2), 0.5)))
    assert shown.startswith("Suspects(0 of 500 rows, noise rate 0.")
    assert len(shown) < 120


def test_it_needs_no_torch_and_no_training() -> None:
    """Tried without the package's own first line, which loads the losses and with them torch."""
    code = f"""
import sys, types
tolerant = types.ModuleType("tolerant")
tolerant.__path__ = [{tolerant.__path__[0]!r}]
sys.modules |= {{"tolerant": tolerant, "torch": None}}
from tolerant.suspects import find_suspects
print(find_suspects([0, 1, 0], [[0.9, 0.1], [0.1, 0.9], [0.2, 0.8]]).index)
print(*sorted({{name.split(".")[1] for name in sys.modules if name.startswith("tolerant.")}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, rooms = done.stdout.splitlines()
    assert found == "[2]"
    assert not {"data", "losses", "train"} & set(rooms.split())
