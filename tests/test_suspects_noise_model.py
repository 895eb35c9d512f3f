"""The noise model behind the suspects: against simulated rows, a plain search, and Bayes' rule row by row."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tolerant.suspects import blocks, find_suspects
from tolerant.suspects.noise_model import fit_noise_model, posterior
from tolerant.suspects.one_rate import OneRate
from tolerant.suspects.rate import rate_interval
from tolerant.suspects.unweighted import as_if_unweighted
from tolerant.suspects.whole_matrix import WholeMatrix, sharpen

NOISE = np.array([[0.7, 0.2, 0.1, 0.0], [0.0, 0.8, 0.1, 0.1], [0.3, 0.0, 0.6, 0.1], [0.1, 0.0, 0.1, 0.8]])
GUESS = 0.8 * np.eye(4) + 0.05


def simulated(num_rows: int, sharpness: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Given labels, predictions of a model off by a sharpness, and the true probabilities."""
    rng = np.random.default_rng(seed)
    exact = rng.dirichlet(np.full(4, 0.3), num_rows)
    chance = np.cumsum(exact @ NOISE, axis=1)
    given = (chance <= rng.random((num_rows, 1)) * chance[:, -1:]).sum(axis=1)
    return given, sharpen(exact, 1 / sharpness), exact


@pytest.mark.parametrize("sharpness", [0.45, 2.0])
def test_sharpness_and_transition_are_found(sharpness: float) -> None:
    """Models too sure of themselves (below 1) and too modest (above)."""
    given, probs, _ = simulated(20_000, sharpness)
    model = fit_noise_model(given, probs)
    assert 0.7 < model.sharpness / sharpness < 1.4
    assert isinstance(model, WholeMatrix)
    np.testing.assert_allclose(model.transition, NOISE, atol=0.05)


def likelihood(given: np.ndarray, sharp: np.ndarray, transition: np.ndarray) -> float:
    return float(np.log((sharp @ transition)[np.arange(len(given)), given]).sum())


def test_no_other_transition_is_more_likely() -> None:
    given, _, exact = simulated(500, 1.0)
    found = WholeMatrix(GUESS).refit(given, exact, 1.0)[0].transition
    best = likelihood(given, exact, found)
    rng = np.random.default_rng(0)
    for step in (0.3, 0.05, 0.01):
        for _ in range(200):
            other = np.abs(found + step * rng.normal(size=(4, 4)))
            other /= other.sum(axis=1, keepdims=True)
            assert likelihood(given, exact, other) < best + 0.1  # EM stops at the third digit


@pytest.mark.parametrize("num_rows", [300, 5000])
def test_no_other_symmetric_rate_is_more_likely(num_rows: int) -> None:
    given, _, exact = simulated(num_rows, 1.0)
    own = exact[np.arange(num_rows), given]
    rates = np.linspace(0.001, 0.9, 1000)
    each = [np.log(own * (1 - rate) + (1 - own) * rate / 3).sum() for rate in rates]
    found, _ = OneRate(4, 0.2).refit(given, exact, 1.0)
    assert found.wrong == pytest.approx(rates[np.argmax(each)], abs=2e-3)


def test_many_classes_take_no_matrix_for_each_fit() -> None:
    """With 3,000 classes the matrices of 14 sharpnesses and 50 resamples took minutes."""
    rng = np.random.default_rng(0)
    num_classes, num_rows = 1000, 50
    probs = rng.dirichlet(np.full(num_classes, 0.01), num_rows)
    given = np.where(rng.random(num_rows) < 0.3, rng.integers(0, num_classes, num_rows), probs.argmax(axis=1))
    tracemalloc.start()
    model = fit_noise_model(given, probs)
    odds = model.log_odds_right(given, probs)
    rate = rate_interval(model, given, probs, rng, anchors=None)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(model, OneRate)
    assert most_bytes < model.transition.nbytes
    sharp = sharpen(probs, model.sharpness)
    joint = sharp * model.transition[:, given].T
    right = joint[np.arange(num_rows), given]
    np.testing.assert_allclose(
        odds, np.log(right / (joint.sum(axis=1) - right)), rtol=1e-4
    )  # which subtracts
    assert rate.estimate == pytest.approx(WholeMatrix(model.transition).expected_wrong(given, sharp))
    assert np.ptp(model.transition[0, 1:]) == 0
    assert model.transition.sum(axis=1) == pytest.approx(np.ones(num_classes))


def test_a_sure_row_keeps_its_odds() -> None:
    """1 - own is 0 for it, and its place among other sure rows would be lost."""
    probs = np.array([[1.0, 1e-9, 1e-9], [1.0, 2e-9, 2e-9]])
    odds = OneRate(3, 0.1, 2.0).log_odds_right(np.zeros(2, np.int64), probs)
    assert odds[0] - odds[1] == pytest.approx(np.log(4.0))


def test_a_few_rows_a_class_are_enough_for_a_matrix() -> None:
    given, probs, _ = simulated(20, 1.0)
    off = fit_noise_model(given, probs).transition[~np.eye(4, dtype=bool)]
    assert np.ptp(off) > 0.05


def test_expected_wrong_is_the_mean_of_bayes_rule() -> None:
    given, _, exact = simulated(400, 1.0)
    joint = exact[:, :, None] * NOISE
    right = [joint[row, g, g] / joint[row, :, g].sum() for row, g in enumerate(given)]
    assert WholeMatrix(NOISE).expected_wrong(given, exact) == pytest.approx(1 - np.mean(right))


@pytest.mark.parametrize("block", [1, 4 * 7, 1 << 22])
def test_log_odds_are_bayes_rule_in_any_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given, probs, _ = simulated(50, 0.7)
    model = fit_noise_model(given, probs)
    rate = 1 - model.transition.diagonal().mean()
    average = np.where(np.eye(4, dtype=bool), 1 - rate, rate / 3)
    halfway = (model.transition + average) / 2
    sharp = probs**model.sharpness
    monkeypatch.setattr(blocks, "NUMBERS", block)
    for g, row, found in zip(given, sharp, model.log_odds_right(given, probs), strict=True):
        joint = row * halfway[:, g]
        assert found == pytest.approx(np.log(joint[g] / (joint.sum() - joint[g])))


@pytest.mark.parametrize("shares", [(0.95, 0.05), (0.5, 0.5), (0.1,) * 10, (0.008,) * 125])
def test_where_predictions_know_nothing_no_noise_is_ruled_in(shares: tuple[float, ...]) -> None:
    """Right labels that no column tells anything of: up to nine in ten were called wrong for sure."""
    num_classes, generator = len(shares), np.random.default_rng(0)
    given = generator.choice(num_classes, 1000, p=shares)
    probs = np.empty((1000, num_classes))
    for fold in range(5):  # the frequencies of the other folds, and a little of what is fitted to chance
        held_out = np.arange(1000) % 5 == fold
        others = np.bincount(given[~held_out], minlength=num_classes) / 800
        probs[held_out] = others * np.exp(0.1 * generator.normal(size=(200, num_classes)))
    probs /= probs.sum(axis=1, keepdims=True)
    rate = find_suspects(given, probs).noise_rate
    assert rate.low == 0.0 < rate.high


@pytest.mark.parametrize("q", [0.0, 0.3])
def test_predictions_of_a_weighted_model_are_brought_back(q):
    """From the optimum of L_q with weights, (w a)^(1 / (1 - q)), to that without them."""
    rng = np.random.default_rng(0)
    share, weight = np.array([0.8, 0.15, 0.05]), np.array([0.4, 2.0, 6.0])
    true = rng.choice(3, size=4000, p=share)
    features = rng.normal(size=(4000, 3)) + 2.0 * np.eye(3)[true]
    honest = share * np.exp(2.0 * features)

    def optimum(chances):
        powers = (chances / chances.max(axis=1, keepdims=True)) ** (1 / (1 - q))
        return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)

    weighted = optimum(weight * honest)
    assert np.abs(weighted - optimum(honest)).mean() > 0.04
    assert np.abs(as_if_unweighted(true, weighted, weight[true]) - optimum(honest)).mean() < 0.002
    equal = optimum(honest)
    assert as_if_unweighted(true, equal, np.full(4000, 3.0)) is equal


def test_a_class_the_model_never_predicts_rules_in_no_noise() -> None:
    """Right labels: a collapsed model, less sure of a class where it is, doubts all labels of the other."""
    generator = np.random.default_rng(0)
    given = (generator.random(4000) < 0.02).astype(np.int64)
    odds = 0.01 * np.exp(-generator.normal(size=4000) - 4.0 * given)
    probs = np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)
    assert probs.argmax(axis=1).max() == 0
    rate = find_suspects(given, probs).noise_rate
    assert rate.low == 0.0
    assert rate.high >= (given == 1).mean()


def test_the_posterior_of_classes_is_that_of_bayes_for_both_kinds_of_noise_model():
    rng = np.random.default_rng(3)
    probs, given = rng.dirichlet(np.ones(4), size=50), rng.integers(0, 4, 50)
    one = OneRate(4, 0.3, 1.7)
    joint = probs**1.7 * np.where(np.eye(4, dtype=bool)[given], 0.7, 0.1)
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(posterior(one, given, probs), expected, rtol=1e-5)
    np.testing.assert_allclose(posterior(WholeMatrix(one.transition, 1.7), given, probs), expected, rtol=1e-5)
    without_noise = posterior(OneRate(4, 0.0, 1.0), given, probs)
    np.testing.assert_array_equal(without_noise, np.eye(4)[given])


def test_a_class_whose_rows_had_no_weight_is_not_divided_by_it() -> None:
    """No row has trained it: there is nothing to undo."""
    given, probs, _ = simulated(300, 0.7)
    weight = np.array([1.0, 4.0, 2.0, 0.0])[given]
    found = as_if_unweighted(given, probs.astype(np.float32), weight)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
