"""The noise rate: near the drawn one whether a model predicts true classes or given labels, and its range."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import cleanlab.count
import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict

from tolerant import find_suspects
from tolerant.suspects import RateInterval, anchors, blocks
from tolerant.suspects.anchors import _by_surest, fit_anchors

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
with patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):  # beside what it imports
    bench = runpy.run_path(str(BENCHMARKS / "bench_rate.py"))
FAMILIES = bench["FAMILIES"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("overlap", ["apart", "near"])
def test_probabilities_of_given_labels_lead_to_the_rate(family: str, overlap: str) -> None:
    """The likelihood of the labels is best without any noise, and said so: 0.0001 for 0.396."""
    matrix, distances = FAMILIES[family]
    _, true, given, exact = bench["simulate"](matrix, distances[overlap], 2000, 77)
    found, wrong = find_suspects(given, exact), (given != true).mean()
    rate = found.noise_rate
    assert abs(rate.estimate - wrong) < 0.03
    assert rate.low < wrong < rate.high
    assert not rate.vague
    np.testing.assert_allclose(found.transition.diagonal(), matrix.diagonal(), atol=0.11)
    assert np.abs(found.transition.diagonal() - matrix.diagonal()).mean() < 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_so_do_probabilities_of_true_classes(family: str) -> None:
    matrix, distances = FAMILIES[family]
    _, true, given, _ = bench["simulate"](matrix, distances["near"], 2000, 78)
    _, _, _, exact_true = bench["simulate"](np.eye(len(matrix)), distances["near"], 2000, 78)
    rate, wrong = find_suspects(given, exact_true).noise_rate, (given != true).mean()
    assert abs(rate.estimate - wrong) < 0.05
    assert rate.low < wrong < rate.high


@pytest.mark.parametrize("family", ["pair flips", "one way", "asymmetric"])
def test_logistic_regression_comes_nearer_than_the_confident_joint(family: str) -> None:
    matrix, distances = FAMILIES[family]
    inputs, true, given, _ = bench["simulate"](matrix, distances["apart"], 2000, 79)
    probs = cross_val_predict(bench["logistic"](), inputs, given, cv=5, method="predict_proba")
    rate, wrong = find_suspects(given, probs).noise_rate, (given != true).mean()
    theirs = 1.0 - np.trace(cleanlab.count.estimate_joint(given, probs))
    assert abs(rate.estimate - wrong) < 0.05
    assert abs(rate.estimate - wrong) < abs(theirs - wrong)
    assert rate.low < wrong < rate.high


def test_hard_rows_are_not_wrong_labels() -> None:
    """Two overlapping classes without any wrong label: of the rows 11 % look like the other class."""
    _, true, given, exact = bench["simulate"](np.eye(2), 2.4, 4000, 80)
    assert (exact.argmax(axis=1) != true).mean() > 0.1
    rate = find_suspects(given, exact).noise_rate
    assert rate.estimate < 0.02
    assert rate.low == 0.0


def test_a_weak_model_gives_a_range() -> None:
    _, _, given, exact = bench["simulate"](np.eye(2), 0.8, 1000, 81)
    rate = find_suspects(given, exact).noise_rate
    assert rate.vague
    assert rate.low == 0.0


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_a_model_that_is_never_sure_cannot_tell_that_labels_are_wrong(num_classes: int) -> None:
    """No label is wrong, but the lines have nothing to go up to: of ten classes it said 41 to 73 %."""
    for seed in range(4):
        inputs, _, given, _ = bench["simulate"](np.eye(num_classes), 1.2, 600, seed)
        probs = cross_val_predict(bench["logistic"](), inputs, given, cv=5, method="predict_proba")
        rate = find_suspects(given, probs).noise_rate
        assert rate.vague
        assert rate.low == 0.0


def test_a_model_too_sure_of_itself_gives_room_below() -> None:
    for seed in range(4):
        _, _, given, exact = bench["simulate"](np.eye(3), 2.5, 1000, 90 + seed)
        sharp = exact**2 / (exact**2).sum(axis=1, keepdims=True)
        assert find_suspects(given, sharp).noise_rate.low < 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_where_classes_are_apart_the_interval_is_narrow(family: str) -> None:
    """The simulated rates lie within 0.6 points; sampling labels from a population adds 4."""
    matrix, distances = FAMILIES[family]
    for seed in range(86, 90):
        _, true, given, exact = bench["simulate"](matrix, distances["apart"], 2000, seed)
        rate = find_suspects(given, exact).noise_rate
        assert rate.low <= (given != true).mean() <= rate.high
        assert rate.high - rate.low < 0.025


def test_hard_rows_give_more_room_above_than_below() -> None:
    """People err on them; that they were counted as wrong labels, nothing says here."""
    matrix, distances = FAMILIES["asymmetric"]
    above, below = [], []
    for seed in range(90, 95):
        _, _, given, exact = bench["simulate"](matrix, distances["near"], 2000, seed)
        rate = find_suspects(given, exact).noise_rate
        above.append(rate.high - rate.estimate)
        below.append(rate.estimate - rate.low)
    assert np.mean(below) < np.mean(above)


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_intervals_are_at_most_twice_as_wide_as_needed(family: str) -> None:
    """As docs/howto/noise-rate.md says: needed is what just holds 95 % of the rates."""
    lines = (BENCHMARKS.parent / "results" / "bench" / "rate_families.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["family"] == family]
    assert len(rows) == 60
    assert np.mean([row["low"] <= row["realised"] <= row["high"] for row in rows]) > 0.95
    needed = 2 * np.quantile([abs(row["estimate"] - row["realised"]) for row in rows], 0.95)
    assert np.mean([row["high"] - row["low"] for row in rows]) < 2 * needed


def test_the_probability_of_a_right_label_tells_the_same_rate() -> None:
    matrix, distances = FAMILIES["pair flips"]
    _, _, given, exact = bench["simulate"](matrix, distances["apart"], 1000, 82)
    found = find_suspects(given, exact)
    assert 1.0 - found.p_right.mean() == pytest.approx(found.noise_rate.estimate, abs=1e-6)
    reviewed = np.arange(1000) < 300
    left = find_suspects(given, exact, reviewed=reviewed, original_labels=given)
    assert 1.0 - left.p_right[~reviewed].mean() == pytest.approx(left.noise_rate.estimate / 0.7, abs=1e-6)


def test_labels_found_wrong_in_a_review_are_no_longer_counted() -> None:
    matrix, distances = FAMILIES["uniform"]
    _, true, given, exact = bench["simulate"](matrix, distances["apart"], 1000, 83)
    whole = find_suspects(given, exact)
    reviewed = np.zeros(1000, bool)
    reviewed[whole.index[:100]] = True
    corrected = np.where(reviewed, true, given)
    after = find_suspects(corrected, exact, reviewed=reviewed, original_labels=given)
    found = int((given != corrected).sum())
    assert found > 90
    assert after.noise_rate.estimate == pytest.approx(whole.noise_rate.estimate - found / 1000, abs=1e-9)


def test_a_resample_of_all_rows_has_the_rate_of_all() -> None:
    matrix, distances = FAMILIES["asymmetric"]
    _, _, given, exact = bench["simulate"](matrix, distances["near"], 1000, 84)
    found = fit_anchors(given, exact)
    assert found.refit(np.arange(1000)) == pytest.approx(found.rate, abs=1e-3)
    assert found.transition.sum(axis=1) == pytest.approx(np.ones(3))


@pytest.mark.parametrize("block", [1, 30])
def test_unmixing_is_the_same_in_any_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, distances = FAMILIES["pair flips"]
    rng = np.random.default_rng(85)
    _, true, _, exact = bench["simulate"](matrix, distances["apart"], 500, 85)
    unsure = exact + 0.3 * rng.random(exact.shape)
    unsure /= unsure.sum(axis=1, keepdims=True)
    choice, sure = anchors._unmix(unsure, matrix + 1e-7)
    assert (choice == true).mean() > (unsure.argmax(axis=1) == true).mean() + 0.01
    monkeypatch.setattr(blocks, "NUMBERS", block)
    again, as_sure = anchors._unmix(unsure, matrix + 1e-7)
    assert (again == choice).all()
    np.testing.assert_allclose(as_sure, sure)


@pytest.mark.parametrize(("low", "high", "vague"), [(0.0, 0.19, False), (0.1, 0.31, True)])
def test_a_wide_interval_is_vague(low: float, high: float, vague: bool) -> None:
    assert RateInterval(0.15, low, high).vague is vague


def test_labels_of_a_class_that_the_model_never_names_may_all_be_right():
    """They look wrong, every one; the interval allows for both."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 2000)
    unnamed = rng.random(2000) < 0.15
    given = np.where(unnamed, 2, np.where(rng.random(2000) < 0.1, 1 - true, true))
    probs = np.full((2000, 3), 0.01) + np.eye(3)[true]
    rate = find_suspects(given, probs / probs.sum(1, keepdims=True)).noise_rate
    rightly_unnamed = (given != true)[~unnamed].sum() / 2000
    assert rate.low < rightly_unnamed < (given != true).mean() < rate.high


def test_a_line_through_few_rows_is_not_believed():
    """The surest of five rows are rightly labelled, by chance or not: their labels are counted."""
    given = np.r_[np.zeros(200, int), [0, 0, 1, 1, 1]]
    second = np.r_[np.linspace(0.02, 0.1, 200), [0.6, 0.7, 0.8, 0.9, 0.95]]
    probs = np.stack([1 - second, second], 1)
    transition = _by_surest(given, probs.argmax(1), probs.max(1), 2)
    assert transition[1].round(3).tolist() == [0.4, 0.6]
