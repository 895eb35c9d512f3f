"""The paper's bounds by brute force, and every statement of it that the docstrings correct."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import tolerant
from tolerant import theory
from tolerant.losses import REGISTRY, make_loss

QS = [0.05, 0.3, 0.5, 0.7, 0.95, 1.0]
CLASSES = [2, 3, 5, 10, 100]
RNG = np.random.default_rng


def simplex(num_classes: int, k: float = 0.5, seed: int = 0) -> np.ndarray:
    """Vertices, centres of faces, random points of every sparsity, and elements at exactly k."""
    rng = RNG(seed)
    points = [np.eye(num_classes)[:3], np.full((1, num_classes), 1 / num_classes)]
    for size in range(1, num_classes + 1, max(1, num_classes // 10)):
        face = np.zeros(num_classes)
        face[:size] = 1 / size
        points.append(face[None])
        for concentration in (0.1, 1, 10):
            draw = np.zeros((40, num_classes))
            draw[:, :size] = rng.dirichlet(np.full(size, concentration), 40)
            points.append(draw)
    for many in range(1, min(num_classes, int(1 / k) + 1)):
        point = np.zeros(num_classes)
        point[:many] = k
        point[many:] = (1 - many * k) / (num_classes - many)
        points.append(point[None])
        one = np.where(np.arange(num_classes) < many, k, 0.0)
        one[-1] += 1 - one.sum()
        points.append(one[None])
    return np.concatenate(points)


def uniform_noise(num_classes: int, rate: float) -> np.ndarray:
    matrix = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


# --- the losses -------------------------------------------------------------------------------


def test_lq_limits():
    p = np.linspace(0.01, 1, 50)
    np.testing.assert_allclose(theory.lq(p, 0), -np.log(p))
    np.testing.assert_allclose(theory.lq(p, 1e-12), -np.log(p), rtol=1e-10)  # lemma 1
    np.testing.assert_allclose(theory.lq(p, 1), 1 - p, atol=1e-15)
    np.testing.assert_allclose(theory.lq(0, [0.5, 1]), [2, 1])
    assert theory.lq(0, 0) == np.inf
    np.testing.assert_allclose(theory.truncated_lq(p, 0.7, 1e-9), theory.lq(p, 0.7))  # k -> 0


def test_lq_is_the_loss_that_trains():
    import torch

    logits = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 4
    p_y = logits.softmax(-1)[torch.arange(20), labels].numpy()
    plain = make_loss("lq", q=0.7, reduction="none")(logits, labels)
    cut = make_loss("truncated-lq", q=0.7, k=0.3, reduction="none")(logits, labels)
    np.testing.assert_allclose(plain, theory.lq(p_y, 0.7), rtol=1e-6)
    np.testing.assert_allclose(cut, theory.truncated_lq(p_y, 0.7, 0.3), rtol=1e-6)


# --- lemma 2 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", QS)
@pytest.mark.parametrize("c", CLASSES)
def test_lemma_2_holds_and_is_attained(q, c):
    bounds = theory.sum_bounds(q, c)
    sums = theory.lq(simplex(c), q).sum(axis=1)
    assert bounds.lower - 1e-9 <= sums.min()
    assert sums.max() <= bounds.upper + 1e-9
    assert np.isclose(bounds.lower, (c - c ** (1 - q)) / q)
    assert np.isclose(theory.lq(np.full(c, 1 / c), q).sum(), bounds.lower)
    assert np.isclose(theory.lq(np.eye(c)[0], q).sum(), bounds.upper)


def test_lemma_2_at_cross_entropy():
    bounds = theory.sum_bounds(0, 10)
    assert np.isclose(bounds.lower, 10 * np.log(10))
    assert bounds.upper == np.inf


# --- lemma 3 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.0, *QS])
@pytest.mark.parametrize(("c", "k"), [(2, 0.5), (3, 0.4), (5, 0.2), (10, 0.1), (10, 0.5), (100, 0.013),
                                      (2, 0.3), (3, 0.05), (5, 0.19), (10, 0.01)])  # fmt: skip
def test_lemma_3_holds_and_exact_is_attained(q, c, k):
    paper, exact = (theory.truncated_sum_bounds(q, k, c, exact=exact) for exact in (False, True))
    sums = theory.truncated_lq(simplex(c, k), q, k).sum(axis=1)
    assert paper.lower - 1e-9 <= exact.lower
    assert exact.upper <= paper.upper + 1e-9
    assert exact.lower - 1e-9 <= sums.min()
    assert sums.max() <= exact.upper + 1e-9
    # m equal elements, by trying every m; and all but one at k, the rest in one
    equal = [np.where(np.arange(c) < m, 1 / m, 0.0) for m in range(1, c + 1)]
    assert np.isclose(min(theory.truncated_lq(p, q, k).sum() for p in equal), exact.lower)
    piled = np.full(c, min(k, 1 / c))
    piled[0] = 1 - piled[1:].sum()
    assert np.isclose(theory.truncated_lq(piled, q, k).sum(), exact.upper)
    if k >= 1 / c:
        assert np.isclose(paper.upper, exact.upper)
    else:
        assert exact.upper < paper.upper - 1e-4  # c L_q(k) is out of reach


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("k", [0.1, 0.26, 0.34, 0.6])
def test_exact_truncated_bounds_on_a_full_grid(q, k):
    """Every point of the 4-class simplex with elements in multiples of 1/60."""
    steps = np.array([s for s in itertools.product(range(61), repeat=3) if sum(s) <= 60])
    grid = np.column_stack([steps, 60 - steps.sum(axis=1)]) / 60
    sums = theory.truncated_lq(grid, q, k).sum(axis=1)
    exact = theory.truncated_sum_bounds(q, k, 4, exact=True)
    assert exact.lower - 1e-9 <= sums.min() <= exact.lower + 1e-9  # 1/m is on the grid, m = 1..4
    assert exact.upper - 0.1 <= sums.max() <= exact.upper + 1e-9


def test_lemma_3_is_tight_only_for_whole_d():
    for q, k, c, d in [(0.5, 0.125, 10, 2), (0.5, 0.25, 10, 1), (0.7, 0.5, 10, 1), (0.3, 0.2, 5, 1.52)]:
        assert theory.truncation_d(q, k) == pytest.approx(d, abs=5e-3)
        paper, exact = (theory.truncated_sum_bounds(q, k, c, exact=e).lower for e in (False, True))
        assert (exact - paper < 1e-12) == (d in (1, 2))
    assert (round(paper, 4), round(exact, 4)) == (5.0405, 5.0813)  # as the docstring says
    q = np.linspace(0, 1, 101)
    assert (theory.truncation_d(q, np.exp(-1)) == 1).all()
    assert (theory.truncation_d(q[:5], 0.3) > 1).all()


def test_misprint_of_the_appendix():
    """With the factor k of eq. 18 the bound is valid, but lower than the main text's for d > 1."""
    q, k, c = 0.3, 0.12, 10
    d = theory.truncation_d(q, k)
    misprint = d * k * theory.lq(1 / d, q) + (c - d) * theory.lq(k, q)
    assert d > 2
    assert misprint < theory.truncated_sum_bounds(q, k, c).lower - 0.1


def test_d_minimises_the_bound():
    for q, k in [(0.0, 0.1), (0.2, 0.1), (0.5, 0.05), (0.8, 0.3)]:
        d = np.linspace(1, 1 / k, 20001)
        values = d * theory.lq(1 / d, q) + (50 - d) * theory.lq(k, q)
        assert d[values.argmin()] == pytest.approx(theory.truncation_d(q, k), abs=1e-2)
        assert values.min() == pytest.approx(theory.truncated_sum_bounds(q, k, 50).lower, abs=1e-6)


# --- eq. 11: truncated against plain ----------------------------------------------------------


@pytest.mark.parametrize("c", [2, 4, 10, 100, 1000])
@pytest.mark.parametrize("k", [0.01, 0.2, 0.3, 0.5, 0.9])
def test_eq_11_holds_below_one_limit_and_fails_above(c, k):
    q = np.linspace(1e-3, 1, 2000)
    holds = theory.truncation_tightens(q, k, c)
    limit = theory.truncation_limit(k, c)
    np.testing.assert_array_equal(holds, q < limit)
    assert limit < 1  # so "for all q" is true of no k and no c
    if theory.truncation_d(limit, k) == 1:
        assert c ** (1 - limit) + k**limit == pytest.approx(2)


def test_eq_11_has_one_limit_where_k_is_at_least_1_over_c():
    q = np.linspace(1e-4, 1, 4000)
    for c in (2, 3, 10, 1000, 10**6, 10**9):
        for k in np.geomspace(1 / c, 0.999, 20):
            limit = theory.truncation_limit(k, c)
            np.testing.assert_array_equal(theory.truncation_tightens(q, k, c), q < limit)
    changes = np.flatnonzero(np.diff(theory.truncation_tightens(q, 6e-8, 10**6)))
    np.testing.assert_allclose(q[changes], [0.386, 0.635, 0.796], atol=1e-3)  # as the docstring says


@pytest.mark.parametrize(
    ("k", "c", "limit"), [(0.3, 4, 0.680), (0.3, 10, 0.792), (0.2, 10, 0.767), (0.2, 100, 0.878)]
)
def test_where_the_papers_sentences_fail(k, c, limit):
    """k >= 0.3 for all q and c; k >= 0.2 for all q and c >= 10: by the formulas and by the sums."""
    assert theory.truncation_limit(k, c) == pytest.approx(limit, abs=5e-4)
    for q, tightens in [(limit - 0.01, True), (limit + 0.01, False), (0.95, False), (1.0, False)]:
        points = simplex(c, k)
        widths = [np.ptp(theory.truncated_lq(points, q, k).sum(1)), np.ptp(theory.lq(points, q).sum(1))]
        assert (widths[0] < widths[1]) == tightens
        assert theory.truncation_tightens(q, k, c) is tightens
        assert theory.truncation_tightens(q, k, c, exact=True) is tightens


def test_numbers_of_the_docstring():
    assert theory.truncation_d([0.318, 0.3186], 0.3)[0] > 1 == theory.truncation_d(0.319, 0.3)
    assert theory.truncation_d(0.647, 0.2) > 1 == theory.truncation_d(0.648, 0.2)
    c = np.arange(2, 10_000)
    np.testing.assert_array_equal(theory.truncation_tightens(0.7, 0.5, c), c >= 3)


def test_as_a_share_of_the_largest_loss_truncation_narrows_less():
    """It is 1 for k >= 1/e, whatever q, k and c; that of plain L_q at q = 0.7 is less up to ten classes."""
    for q, k, c in itertools.product([0.0, 0.3, 0.7, 1.0], [0.4, 0.5, 0.9], [3, 10, 100]):
        cut = theory.truncated_sum_bounds(q, k, c)
        assert (cut.upper - cut.lower) / theory.lq(k, q) == pytest.approx(1)
    for c, share in [(2, 0.231), (10, 0.995), (11, 1.053)]:
        plain = theory.sum_bounds(0.7, c)
        assert (plain.upper - plain.lower) / theory.lq(0, 0.7) == pytest.approx(share, abs=5e-4)


def test_left_side_of_eq_11_is_lq_of_k_only_for_d_1():
    for q, k, same in [(0.7, 0.5, True), (0.3, 0.12, False)]:
        bounds = theory.truncated_sum_bounds(q, k, 10)
        assert np.isclose(bounds.upper - bounds.lower, theory.lq(k, q)) == same


# --- theorem 1 --------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_lq_minimizer_beats_every_other_prediction(q):
    rng = RNG(1)
    for a in rng.dirichlet(np.ones(4), 20):
        best = theory.lq_minimizer(a, q)
        assert best.sum() == pytest.approx(1)
        least = (a * np.where(a > 0, theory.lq(best, q), 0)).sum()
        with np.errstate(invalid="ignore"):
            others = np.nan_to_num(a * theory.lq(simplex(4), q), posinf=np.inf).sum(axis=1)
        assert least <= others.min() + 1e-12
        near = np.abs(best + 1e-3 * rng.normal(size=(200, 4)))
        near /= near.sum(axis=1, keepdims=True)
        assert least <= (a * theory.lq(near, q)).sum(axis=1).min() + 1e-12
        if q in (0.3, 0.7):
            assert least == pytest.approx((1 - (a ** (1 / (1 - q))).sum() ** (1 - q)) / q)


def check_theorem_1(clean: np.ndarray, noisy: np.ndarray, bounds: theory.RiskBounds) -> None:
    """``clean`` and ``noisy``: the two risks of every function that may be chosen."""
    best, hat = clean.argmin(), noisy.argmin()
    assert -1e-12 <= noisy[best] - noisy[hat] <= bounds.noisy + 1e-12
    assert bounds.clean - 1e-12 <= clean[best] - clean[hat] <= 1e-12


@pytest.mark.parametrize("k", [None, 0.5, 0.3])
@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
@pytest.mark.parametrize(("c", "rate"), [(2, 0.4), (4, 0.3), (4, 0.7), (10, 0.8)])
def test_theorem_1_on_small_problems(c, rate, q, k):
    """Six inputs with soft labels; the functions are all of a random set, or simplex points."""
    rng = RNG(int(10 * rate) + c)
    bounds = theory.uniform_noise_bounds(q, c, rate, k)
    for _ in range(60):
        labels = rng.dirichlet(np.full(c, 0.2), 6) * rng.dirichlet(np.ones(6))[:, None]
        functions = rng.dirichlet(np.full(c, rng.choice([0.1, 1])), (rng.integers(2, 200), 6))
        loss = theory.lq(functions, q) if k is None else theory.truncated_lq(functions, q, k)
        clean = (labels * loss).sum(axis=(1, 2))
        noisy = (labels @ uniform_noise(c, rate) * loss).sum(axis=(1, 2))
        check_theorem_1(clean, noisy, bounds)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.7, 0.9])
@pytest.mark.parametrize(("c", "rate"), [(2, 0.45), (3, 0.3), (10, 0.6), (10, 0.89)])
def test_theorem_1_without_restriction(c, rate, q):
    """All functions allowed: both optima are known in closed form, input by input."""
    rng = RNG(c)
    bounds = theory.uniform_noise_bounds(q, c, rate)
    for a in [*rng.dirichlet(np.full(c, 0.3), 50), *np.eye(c)[:1]]:
        noisy = a @ uniform_noise(c, rate)
        loss = theory.lq(np.stack([theory.lq_minimizer(a, q), theory.lq_minimizer(noisy, q)]), q)
        check_theorem_1(loss @ a, loss @ noisy, bounds)


def test_theorem_1_is_nearly_attained():
    """Two functions of equal clean risk, one piling the rest up and one spreading it: 0.88 of A."""
    q, c, rate = 0.5, 10, 0.5
    spread = np.full(c, 1 / c)
    piled = np.zeros(c)
    piled[:2] = 1 / c, 1 - 1 / c
    noisy_labels = uniform_noise(c, rate)[0]
    gap = (theory.lq(piled, q) - theory.lq(spread, q)) @ noisy_labels
    bound = theory.uniform_noise_bounds(q, c, rate).noisy
    assert 0.87 * bound < gap <= bound


def test_theorem_1_constants():
    for q, c, eta in itertools.product([0.2, 0.7], [2, 10], [0.1, 0.4]):
        bounds = theory.uniform_noise_bounds(q, c, eta)
        assert bounds.noisy == pytest.approx(eta * (c ** (1 - q) - 1) / (q * (c - 1)))
        assert bounds.clean == pytest.approx(eta * (1 - c ** (1 - q)) / (q * (c - 1 - eta * c)))
    assert theory.uniform_noise_bounds(1, 10, 0.5) == (0, 0)  # the paper's "< 0" is 0 at q = 1
    assert theory.uniform_noise_bounds([0, 0.5], 10, 0)[1].tolist() == [0, 0]
    assert theory.uniform_noise_bounds(0, 10, 0.1) == (np.inf, -np.inf)
    assert theory.class_noise_bound(0, np.eye(10)) == np.inf
    for c in range(2, 50):  # where c - 1 - eta c rounds to either side of 0
        for rate in (1 - 1 / c, (c - 1) / c):
            assert theory.uniform_noise_bounds([0.5, 1], c, rate).clean.tolist() == [-np.inf] * 2
    q = np.linspace(0.01, 1, 100)
    for bound, sign in zip(theory.uniform_noise_bounds(q, 10, 0.5), (-1, 1), strict=True):
        assert (sign * np.diff(bound) > 0).all()  # "the larger the q, the tighter"


# --- theorem 2 --------------------------------------------------------------------------------


def tolerable_matrix(rng: np.random.Generator, c: int) -> np.ndarray:
    matrix = rng.dirichlet(np.full(c, 0.5), c)
    order = matrix.argmax(axis=1)
    matrix[np.arange(c), order], diagonal = np.diag(matrix).copy(), matrix.max(axis=1)
    matrix[np.diag_indices(c)] = diagonal
    return matrix


@pytest.mark.parametrize("k", [None, 0.5])
@pytest.mark.parametrize("q", [0.2, 0.7, 1.0])
@pytest.mark.parametrize("c", [2, 5, 10])
def test_theorem_2_on_small_problems(c, q, k):
    rng = RNG(c)
    for _ in range(40):
        matrix, prior = tolerable_matrix(rng, c), rng.dirichlet(np.ones(c))
        bound = theory.class_noise_bound(q, matrix, prior, k)
        functions = rng.dirichlet(np.full(c, 0.3), (100, c))  # [function, true class, label]
        functions[0] = np.eye(c)  # f*, whose clean risk is 0
        if k is None:
            functions[1] = theory.lq_minimizer(matrix, q)  # the noisy optimum of all functions
        loss = theory.lq(functions, q) if k is None else theory.truncated_lq(functions, q, k)
        noisy = (prior[:, None] * matrix * loss).sum(axis=(1, 2))
        assert -1e-12 <= noisy[0] - noisy.min() <= bound + 1e-12
        # what R(f*) = 0 alone gives
        if k is None:
            assert noisy[0] == pytest.approx(prior @ (1 - np.diag(matrix)) / q)


def test_theorem_2_constants():
    matrix, prior = np.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.0, 0.1, 0.9]]), np.array([0.5, 0.3, 0.2])
    right = 0.5 * 0.8 + 0.3 * 0.6 + 0.2 * 0.9
    for q in (0.2, 0.7):
        width = (3 ** (1 - q) - 1) / q
        assert theory.class_noise_bound(q, matrix, prior) == pytest.approx(width * right)
        assert theory.class_noise_bound(q, matrix) == pytest.approx(width * 2.3 / 3)
        cut = theory.truncated_sum_bounds(q, 0.5, 3)
        expected = (cut.upper - cut.lower) * right
        assert theory.class_noise_bound(q, matrix, prior, k=0.5) == pytest.approx(expected)


def test_bounds_keep_their_digits_near_q_1():
    with mpmath.workdps(50):
        for gap in (2.0**-20, 2.0**-40, 2.0**-50):
            q = 1 - mpmath.mpf(gap)
            width = (mpmath.mpf(10) ** (1 - q) - 1) / q
            found = theory.uniform_noise_bounds(1 - gap, 10, 0.375).noisy
            assert found == pytest.approx(float(width * 0.375 / 9), rel=1e-14, abs=0)
            found = theory.class_noise_bound(1 - gap, np.eye(10))
            assert found == pytest.approx(float(width), rel=1e-14, abs=0)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("k", [1e-9, 1e-4, 0.5])
def test_truncated_bounds_keep_their_digits(q, k):
    """For a small k, L_q(k) and L_q(1/d) are nearly the same; for many classes so are the two bounds."""
    with mpmath.workdps(50):
        exponent = mpmath.mpf(q)

        def lq(p):
            return (1 - p**exponent) / exponent if q else -mpmath.log(p)

        root = (1 - exponent) ** (1 / exponent) if q else mpmath.exp(-1)
        d = max(mpmath.mpf(1), root / k)
        width = d * (lq(mpmath.mpf(k)) - lq(1 / d))
        for c in (10, 10**6):
            found = theory.uniform_noise_bounds(q, c, 0.25, k=k).noisy
            assert found == pytest.approx(float(width / (4 * (c - 1))), rel=1e-14, abs=0)


def test_the_limit_of_eq_11_is_right_for_a_million_classes():
    q = theory.truncation_limit(0.5, 10**6)
    with mpmath.workdps(50):
        exact = mpmath.findroot(lambda q: mpmath.mpf(10) ** (6 * (1 - q)) + mpmath.mpf("0.5") ** q - 2, q)
        assert abs(q - exact) < 1e-15


def test_theorem_2_says_little_when_there_is_little_noise():
    def trivial(rate: float) -> float:
        return rate / 0.7

    for rate, says_more in [(0.0, False), (0.2, False), (0.49, False), (0.51, True), (0.8, True)]:
        bound = theory.class_noise_bound(0.7, uniform_noise(10, rate))
        assert (bound < trivial(rate)) is says_more
    assert theory.class_noise_bound(0.7, np.eye(10)) > theory.class_noise_bound(0.7, uniform_noise(10, 0.2))
    assert theory.class_noise_bound(1, uniform_noise(10, 0.2)) == 0
    first = theory.class_noise_bound(0.7, [[0.8, 0.2], [0.1, 0.9]], [1, 0])  # of one class alone
    assert first == pytest.approx(0.8 / 0.9 * theory.class_noise_bound(0.7, [[0.8, 0.2], [0.1, 0.9]], [0, 1]))


# --- symmetric losses and tolerable noise -----------------------------------------------------


@pytest.mark.parametrize("c", [2, 3, 10])
@pytest.mark.parametrize("rate", np.linspace(0, 1, 21))
def test_rate_and_uniform_matrix_agree(c, rate):
    assert theory.noise_is_tolerable(rate, c) == theory.noise_is_tolerable(uniform_noise(c, rate))


@pytest.mark.parametrize("c", [2, 3, 7, 9, 10, 11, 27, 63, 100])
def test_labels_that_say_nothing_are_not_tolerable(c):
    """At 1 - 1/c, however it is written and rounded; just below it they say a little."""
    for rate in ((c - 1) / c, 1 - 1 / c):
        assert not theory.noise_is_tolerable(rate, c)
        assert not theory.noise_is_tolerable(uniform_noise(c, rate))
        assert theory.noise_is_tolerable(rate - 1e-9, c)
        assert theory.noise_is_tolerable(uniform_noise(c, rate - 1e-9))


@pytest.mark.parametrize("c", [2, 3, 10])
def test_uniform_noise_below_the_limit_leaves_the_optimum_of_l1(c):
    label = np.eye(c)[0]
    for rate in (0.1, 0.99 - 1 / c, 1.01 - 1 / c):
        best = theory.lq_minimizer(label @ uniform_noise(c, rate), q=1)
        assert np.array_equal(best, label) == theory.noise_is_tolerable(rate, c)


def test_class_noise_needs_the_condition_on_the_matrix():
    rng = RNG(0)
    for _ in range(50):
        matrix = rng.dirichlet(np.full(3, 0.7), 3)
        same = np.array_equal(theory.lq_minimizer(matrix, q=1), np.eye(3))
        assert same == theory.noise_is_tolerable(matrix)


def test_symmetry_alone_is_not_enough_for_class_noise():
    """The docstring's counterexample: symmetric, R(f*) = 0, a tolerable matrix, another optimum."""

    def loss(p: np.ndarray) -> np.ndarray:
        return 1 - p + 0.9 * (np.roll(p, -1, axis=-1) - np.roll(p, 1, axis=-1))

    points = simplex(3)
    np.testing.assert_allclose(loss(points).sum(axis=-1), 2)
    assert (loss(points) >= -1e-12).all()
    np.testing.assert_allclose(np.diag(loss(np.eye(3))), 0)
    matrix = np.array([np.roll([0.5, 0.1, 0.4], shift) for shift in range(3)])
    assert theory.noise_is_tolerable(matrix)
    risk = loss(np.eye(3)) @ matrix[1]  # true class 1, one-hot predictions 0, 1, 2
    np.testing.assert_allclose(risk[[1, 0]], [0.77, 0.24])
    assert loss(np.eye(3)).max() > 2 / (3 - 1)  # the bound that would have helped


SYMMETRIC = {"mae": lambda c: 2 * (c - 1), "rce": lambda c: 4 * (c - 1), "nce": lambda c: 1,
             "nfl": lambda c: 1, "ngce": lambda c: 1}  # fmt: skip


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("c", [2, 7])
def test_symmetry_over_the_registry(name, c):
    loss = make_loss(name, reduction="none")
    constant = theory.symmetry_constant(loss, c)
    assert theory.is_symmetric(loss, c) == (name in SYMMETRIC) == (constant is not None)
    if constant is not None:
        assert constant == pytest.approx(SYMMETRIC[name](c), rel=1e-6)


def test_symmetry_of_the_ends_of_lq():
    assert theory.symmetry_constant(make_loss("lq", q=1.0, reduction="none"), 6) == pytest.approx(5)
    assert not theory.is_symmetric(make_loss("lq", q=0.99, reduction="none"), 6)
    assert not theory.is_symmetric(make_loss("truncated-lq", q=1.0, k=0.5, reduction="none"), 6)
    assert not theory.is_symmetric(lambda logits, labels: logits[:, 0] * float("nan"), 6)


def test_symmetry_is_tried_at_the_corners_and_at_the_centre():
    cut = make_loss("truncated-lq", q=1.0, k=0.5, reduction="none")
    assert theory.symmetry_constant(cut, 6, num_samples=1) is None  # the one sample is near the centre
    mae = make_loss("mae", reduction="none")
    assert not theory.is_symmetric(lambda z, y: mae(z, y) + (z == 0).all(dim=1), 6)
    late = make_loss("truncated-lq", q=1.0, k=0.99, reduction="none")
    assert theory.symmetry_constant(late, 6, num_samples=1) is None  # a corner is one-hot, or nearly


def test_symmetry_is_tried_between_the_centre_and_the_corners():
    mae = make_loss("mae", reduction="none")

    def bumped(logits, labels):
        top = logits.softmax(1).amax(1)
        return mae(logits, labels) + 0.1 * ((top > 0.6) & (top < 0.8))

    assert not theory.is_symmetric(bumped, 6)


def test_symmetry_does_not_depend_on_the_unit_of_the_loss():
    for unit in (1e-9, 1e9):
        for name in ("mae", "lq"):
            loss = make_loss(name, reduction="none")
            constant = theory.symmetry_constant(lambda z, y, loss=loss, unit=unit: unit * loss(z, y), 6)
            assert constant == (pytest.approx(10 * unit) if name == "mae" else None)


# --- the alternating search is no global search -----------------------------------------------


def test_alternating_search_can_stop_above_the_global_minimum():
    """60 labels "1", 40 labels "0", one constant prediction, cross entropy (convex), k = 0.3.

    Section 3.3 says that for convex losses the search finds the global minimum of eq. 13. Here it
    stays at its first step: both labels have p > k, so nothing is ever pruned.
    """
    counts, k = np.array([60, 40]), 0.3

    def objective(p: np.ndarray, w: np.ndarray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(w > 0, counts * w * (theory.lq(p, 0) - theory.lq(k, 0)), 0).sum()

    p = counts / counts.sum()  # the convex step with all rows
    w = (p > k).astype(float)
    assert w.tolist() == [1, 1]  # the pruning step: a fixed point
    assert objective(p, w) == pytest.approx(-53.1, abs=0.05)
    assert objective(np.array([1, 0]), np.array([1, 0])) == pytest.approx(-72.2, abs=0.05)


# --- the rest ---------------------------------------------------------------------------------


def test_functions_broadcast():
    q, k, c = np.array([0.3, 0.7])[:, None, None], np.array([0.3, 0.5])[:, None], np.array([5, 10, 20])
    whole = theory.truncated_sum_bounds(q, k, c, exact=True).lower
    assert whole.shape == theory.truncation_tightens(q, k, c).shape == (2, 2, 3)
    assert theory.truncation_limit(k, c).shape == (2, 3)
    for (i, a), (j, b), (n, e) in itertools.product(*(enumerate(x.ravel()) for x in (q, k, c))):
        assert whole[i, j, n] == pytest.approx(theory.truncated_sum_bounds(a, b, e, exact=True).lower)
    for value in theory.sum_bounds(0.7, 10) + theory.uniform_noise_bounds(0.7, 10, 0.4, k=0.5):
        assert type(value) is float
    assert type(theory.truncation_tightens(0.7, 0.5, 10)) is bool


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: theory.lq(0.5, 1.2), r"q must be in \[0, 1\]; got 1.2"),
        (lambda: theory.sum_bounds(float("nan"), 3), "q must"),
        (lambda: theory.sum_bounds(0.5, 1), "num_classes must be whole and at least 2; got 1"),
        (lambda: theory.sum_bounds(0.5, 2.5), "num_classes"),
        (lambda: theory.truncation_d(0.5, 1), r"k must be in \(0, 1\); got 1"),
        (lambda: theory.uniform_noise_bounds(0.5, 4, 0.8), "noise_rate must be in"),
        (lambda: theory.uniform_noise_bounds(0.5, 4, float("nan")), "noise_rate must be in"),
        (lambda: theory.class_noise_bound(0.5, [[0.4, 0.6], [0.1, 0.9]]), "off-diagonal"),
        (lambda: theory.class_noise_bound(0.5, np.eye(2), [0.5, 0.6]), "class_prior"),
        (lambda: theory.class_noise_bound(0.5, np.eye(2), [0.3, 0.6]), "class_prior"),
        (lambda: theory.class_noise_bound(0.5, np.eye(2), [1.5, -0.5]), "class_prior"),
        (lambda: theory.noise_is_tolerable(0.3), "or a rate with num_classes; got 0.3"),
        (lambda: theory.noise_is_tolerable(1.3, 3), "rate in"),
        (lambda: theory.noise_is_tolerable(-0.3, 3), "rate in"),
        (lambda: theory.noise_is_tolerable([[0.5, 0.6], [0, 1]]), "sum to 1"),
        (lambda: theory.noise_is_tolerable([[1.5, -0.5], [0, 1]]), "at least 0"),
        (lambda: theory.symmetry_constant(make_loss("mae"), 3), 'reduction="none"'),
    ],
)  # fmt: skip
def test_bad_input(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_public_name():
    assert tolerant.theory is theory
    assert all(hasattr(theory, name) for name in theory.__all__)
