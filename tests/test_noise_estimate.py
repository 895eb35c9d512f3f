"""Estimates of the noise: near the truth where it is known, and never a broken matrix."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import cleanlab.count
import numpy as np
import pytest

from tolerant.noise import (
    anchor_points,
    circular,
    class_map,
    confident_joint,
    dual_t,
    estimate,
    noise_rate,
    symmetric,
    transition_from_joint,
    uniform,
)

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
with patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):  # beside what it imports
    bench = runpy.run_path(str(BENCHMARKS / "bench_estimate.py"))
simulate, METHODS = bench["simulate"], bench["METHODS"]


def random_predictions(seed: int, num_rows: int, num_classes: int, present: int | None = None):
    """Labels (of the first `present` classes only) and predictions of any quality."""
    random = np.random.default_rng(seed)
    given = random.integers(present or num_classes, size=num_rows)
    logits = random.normal(size=(num_rows, num_classes)) * random.choice([0.1, 1.0, 5.0])
    logits[np.arange(num_rows), given] += random.choice([0.0, 1.0, 4.0])
    return given, estimate.softmax(logits)


def check_estimate(found: np.ndarray, given: np.ndarray) -> None:
    assert np.isfinite(found).all()
    assert found.min() >= 0.0
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-9)
    assert (found.sum(axis=0)[np.unique(given)] > 0.0).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(40))
def test_confident_joint_equals_cleanlab(seed: int, dtype: type) -> None:
    num_classes = (2, 3, 10, 30)[seed % 4]
    present = num_classes - (seed % 3 == 2 and num_classes > 2)
    given, probs = random_predictions(seed, 20 + 37 * seed, num_classes, present)
    probs = probs.astype(dtype)
    ours = confident_joint(given, probs)
    assert np.array_equal(ours, cleanlab.count.compute_confident_joint(given, probs))
    assert np.array_equal(ours.sum(axis=1), np.bincount(given, minlength=num_classes))


def test_confident_joint_equals_cleanlab_where_all_rows_of_a_class_agree() -> None:
    """The mean of equal probabilities may round above them, and zero is a threshold too."""
    given = np.repeat(np.arange(3), [300, 7, 11])
    for row in ([0.7, 0.1, 0.2], [0.1, 0.9, 0.0], [1 / 3, 1 / 3, 1 / 3]):
        probs = np.tile(row, (len(given), 1))
        theirs = cleanlab.count.compute_confident_joint(given, probs)
        assert np.array_equal(confident_joint(given, probs), theirs)


def test_a_row_as_sure_as_the_mean_is_confident_whatever_the_mean_rounds_to() -> None:
    given = np.array([0, 0, 0, 1, 1, 1, 1])
    first = np.array([0.8, 0.8, 0.8, 0.8, 0.2, 0.2, 0.2])
    probs = np.stack([first, 1 - first], 1)
    assert probs[given == 0, 0].mean() > 0.8
    theirs = cleanlab.count.compute_confident_joint(given, probs)
    assert confident_joint(given, probs).tolist() == theirs.tolist() == [[3, 0], [1, 3]]


def test_confident_joint_equals_cleanlab_where_halves_are_rounded() -> None:
    """Few rows: a calibrated count is often a half, or misses it by the last digit."""
    rng = np.random.default_rng(4)
    for _ in range(80):
        given = np.concatenate([np.arange(7), rng.integers(7, size=rng.integers(7, 50))])
        probs = rng.dirichlet(np.ones(7), len(given))
        assert np.array_equal(
            confident_joint(given, probs), cleanlab.count.compute_confident_joint(given, probs)
        )


@pytest.mark.parametrize("seed", range(5))
def test_transition_from_joint_equals_cleanlab(seed: int) -> None:
    given, probs = random_predictions(seed, 3000, 5)
    joint = confident_joint(given, probs)
    noise_matrix = cleanlab.count.estimate_latent(joint, given)[1]  # [given, true]
    assert np.allclose(transition_from_joint(joint), noise_matrix.T, atol=1e-5)


@pytest.mark.parametrize("transition", [symmetric(10, 0.4), uniform(10, 0.8), circular(10, 0.3)])
def test_anchor_points_find_t_from_perfect_predictions(transition: np.ndarray) -> None:
    _, probs, _ = simulate(transition, 0.0, 1.0, seed=0, num_rows=20_000)
    for percentile in (97, 100):
        assert np.abs(anchor_points(probs, percentile) - transition).mean() < 0.002


# Largest mean absolute error over the cells of bench_estimate.py in which a method is at home,
# rounded up; "all clean", the identity, is 0.04 to 0.06 off here.
@pytest.mark.parametrize(
    ("method", "error", "temperature", "bound"),
    [
        ("anchor-points", 0.5, 1.0, 0.03),
        ("confident-joint", 0.0, 1.0, 0.008),
        ("confident-joint", 0.5, 0.5, 0.02),
        ("dual-t", 0.5, 0.5, 0.03),
    ],
)
def test_methods_come_near_t(method: str, error: float, temperature: float, bound: float) -> None:
    for transition in (symmetric(10, 0.2), circular(10, 0.3), class_map("cifar10", 0.4)):
        given, probs, _ = simulate(transition, error, temperature, seed=1, num_rows=20_000)
        found = METHODS[method](given, probs)
        check_estimate(found, given)
        assert np.abs(found - transition).mean() < bound


@pytest.mark.parametrize("method", METHODS)
def test_estimates_are_valid_whatever_the_predictions(method: str) -> None:
    for seed in range(60):
        num_rows, num_classes = (1, 2, 5, 40, 300)[seed % 5], (2, 3, 12)[seed % 3]
        given, probs = random_predictions(seed, num_rows, num_classes, 1 + seed % num_classes)
        check_estimate(METHODS[method](given, probs), given)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "case", ["one class predicted", "saturated", "uniform", "class never predicted", "rare class"]
)
def test_estimates_survive_extreme_predictions(method: str, case: str) -> None:
    given = np.arange(300) % 3
    if case == "one class predicted":
        probs = np.eye(3)[np.zeros(300, int)]
    elif case == "saturated":
        probs = np.eye(3)[given]
    elif case == "uniform":
        probs = np.full((300, 3), 1 / 3)
    elif case == "class never predicted":
        probs = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.5, 0.5, 0.0]])[given]
    else:
        given = np.where(np.arange(300) < 4, 2, given % 2)
        probs = np.eye(3)[given]
    found = METHODS[method](given, probs)
    check_estimate(found, given)
    assert np.isfinite(noise_rate(found, given).overall)


def test_percentile_is_patrinis() -> None:
    """His code, with the slip mended that let one class's outliers blank out the next one's."""
    _, probs = random_predictions(3, 500, 6)
    expected = np.empty((6, 6))
    for i in range(6):
        column = probs[:, i].copy()
        column[column >= np.percentile(column, 97, method="higher")] = 0.0
        expected[i] = probs[column.argmax()]
    assert np.allclose(anchor_points(probs), expected)
    assert np.allclose(anchor_points(probs, 100), probs[probs.argmax(axis=0)])


def test_an_outlier_does_not_become_the_anchor() -> None:
    _, probs, _ = simulate(symmetric(10, 0.4), 0.0, 1.0, seed=0, num_rows=20_000)
    probs[5] = np.eye(10)[0]
    assert anchor_points(probs, 100)[0, 0] == 1.0
    assert abs(anchor_points(probs, 97)[0, 0] - 0.6) < 0.01


def test_dual_t_multiplies_anchor_points_and_counts() -> None:
    given, probs = random_predictions(8, 400, 4)
    counts = np.array([[np.sum((probs.argmax(1) == i) & (given == j)) for j in range(4)] for i in range(4)])
    expected = anchor_points(probs, 90) @ (counts / counts.sum(axis=1, keepdims=True))
    assert np.allclose(dual_t(given, probs, 90), expected)


def test_softmax_keeps_what_float32_loses() -> None:
    found = estimate.softmax(np.array([[0.0, 200.0], [1e4, 1e4]], dtype=np.float32))
    assert 0.0 < found[0, 0] < 1e-80
    assert np.array_equal(found[1], [0.5, 0.5])


@pytest.mark.parametrize("transition", [symmetric(10, 0.4), uniform(10, 0.8), circular(10, 0.3)])
def test_noise_rates_follow_from_the_true_matrix(transition: np.ndarray) -> None:
    random = np.random.default_rng(0)
    share = random.dirichlet(np.full(10, 3.0))
    true = np.repeat(np.arange(10), np.rint(share * 50_000).astype(int))
    given = np.repeat(  # the expected labels, so that only the formulas are tested
        np.tile(np.arange(10), 10),
        np.rint(np.bincount(true)[:, None] * transition).astype(int).ravel(),
    )
    joint = (np.bincount(true) / len(true))[:, None] * transition
    found = noise_rate(transition, given)
    assert abs(found.overall - (1 - joint.trace())) < 0.002
    assert np.allclose(found.per_true_class, 1 - transition.diagonal())
    assert np.abs(found.per_given_class - (1 - joint.diagonal() / joint.sum(axis=0))).max() < 0.02


@pytest.mark.parametrize("classes", [3, 10, 100])
def test_noise_rates_of_a_nearly_singular_matrix(classes: int) -> None:
    """Two rows of T nearly alike: the labels tell the two classes apart by a little only."""
    random = np.random.default_rng(classes)
    transition = 0.5 * np.eye(classes) + 0.5 * random.dirichlet(np.ones(classes), classes)
    transition[1] = 0.98 * transition[0] + 0.02 * transition[1]
    true_share = random.dirichlet(np.full(classes, 5.0))
    counts = np.rint(true_share @ transition * 1e6).astype(int)
    found = noise_rate(transition, np.repeat(np.arange(classes), counts))
    exact = np.linalg.solve(transition.T, counts / counts.sum())
    assert exact.min() > 0.0
    correct = exact * transition.diagonal()
    assert abs(found.overall - (1 - correct.sum())) < 1e-8
    assert np.abs(found.per_given_class - (1 - correct / (counts / counts.sum()))).max() < 1e-6


def test_noise_rates_are_the_likeliest_where_the_inverse_is_negative() -> None:
    """At the maximum no true class could have a larger share and make the labels likelier."""
    random = np.random.default_rng(0)
    for _ in range(50):
        transition = random.dirichlet(np.full(6, 0.5), 6)
        given = random.choice(6, 500, p=random.dirichlet(np.full(6, 0.3)))
        share = np.bincount(given, minlength=6) / 500
        if np.linalg.solve(transition.T, share).min() >= 0 or not transition[:, share > 0].any(0).all():
            continue
        found = estimate.most_likely_true_share(transition, share)
        ratio = np.where(share > 0, share / (found @ transition), 0.0)
        assert found.min() >= 0.0
        assert (transition @ ratio).max() < 1 + 1e-6


def test_noise_rate_of_a_confident_joint_is_its_off_diagonal() -> None:
    given, probs, _ = simulate(circular(10, 0.3), 0.3, 1.0, seed=2, num_rows=20_000)
    joint = confident_joint(given, probs)
    found = noise_rate(transition_from_joint(joint), given)
    assert abs(found.overall - (1 - joint.trace() / joint.sum())) < 1e-6
    assert np.allclose(found.per_given_class, 1 - joint.diagonal() / joint.sum(axis=1), atol=1e-5)


def test_noise_rate_of_a_label_that_never_occurs_is_nan() -> None:
    found = noise_rate(symmetric(3, 0.2), [0, 1, 0, 1])
    assert np.isnan(found.per_given_class).tolist() == [False, False, True]
    assert 0.0 <= found.overall <= 1.0
    never = noise_rate([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.5, 0.5, 0.0]], [0, 1, 0, 1])
    assert np.isnan(never.per_given_class).tolist() == [False, False, True]
    assert 0.0 <= never.overall <= 1.0


@pytest.mark.parametrize("classes", [2, 10, 50])
@pytest.mark.parametrize("rate", [0.0, 1e-20, 1e-9, 1.0])
def test_noise_rates_are_rates_to_the_last_digit(classes: int, rate: float) -> None:
    """1 less the share of right labels was -7e-16 without noise, which no function takes as a rate."""
    given = [0, 1]
    found = noise_rate(circular(classes, rate), given)
    for values in (found.overall, found.per_true_class, found.per_given_class[given]):
        assert np.all((np.asarray(values) >= 0.0) & (np.asarray(values) <= 1.0))
    assert found.overall == pytest.approx(rate, rel=1e-9, abs=0)


GOOD = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
BAD_PROBS = [
    (GOOD[0], r"probs must be \[N, C\] .* got shape \(2,\)\. .* numpy\.stack\(\[1 - p, p\], axis=1\)"),
    (GOOD[:0], r"got shape \(0, 2\)"),
    (GOOD[:, :1], r"got shape \(3, 1\)"),
    (GOOD * [[1], [2], [1]], "row 1 begins"),
    (GOOD * [[1], [1.01], [1]], "row 1 begins"),
    (GOOD - [[0], [0], [0.6]], "row 2 begins"),
    (GOOD * [[1], [np.nan], [1]], r"row 1 begins \[nan nan\]. For logits use softmax"),
]


def test_rows_of_half_precision_are_probabilities() -> None:
    given, probs = random_predictions(1, 2000, 10)
    half = probs.astype(np.float16)
    assert np.abs(half.sum(axis=1, dtype=np.float64) - 1).max() > 2e-4
    assert np.abs(confident_joint(given, half) - confident_joint(given, probs)).sum() < 20


@pytest.mark.parametrize(("probs", "message"), BAD_PROBS)
@pytest.mark.parametrize("method", METHODS)
def test_bad_probabilities(method: str, probs: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        METHODS[method]([0, 1, 0], probs)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: confident_joint([0, 1], GOOD), "got 2 labels and 3 rows"),
        (lambda: dual_t([0, 1, 2], GOOD), "given_labels must be in 0 to 1 .* got 2 in row 2"),
        (lambda: confident_joint([0.0, 1.0, 1.0], GOOD), "given_labels must be whole"),
        (lambda: anchor_points(GOOD, 0), r"percentile must be in \(0, 100\]; got 0"),
        (lambda: dual_t([0, 1, 0], GOOD, 101), "percentile"),
        (lambda: transition_from_joint([[1, 2]]), "square matrix of counts"),
        (lambda: transition_from_joint([[1, -2], [0, 1]]), "square matrix of counts"),
        (lambda: estimate.softmax([0.0, 1.0]), r"logits must be a finite \[N, C\] matrix"),
        (lambda: estimate.softmax([[0.0, np.nan]]), "logits"),
        (lambda: noise_rate([[1.0, 0.0], [1.0, 0.0]], [0, 1]), "column 1 is zero"),
        (lambda: noise_rate([[1.0, 1.0], [1.0, 0.0]], [0, 1]), "sum to 1"),
        (lambda: noise_rate(np.eye(2), [0, 2]), "given_labels"),
        (lambda: noise_rate(np.eye(2), []), "at least one label"),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
