r"""The paper's bounds (Zhang & Sabuncu 2018), and where its own statements about them fail.

How far training on wrong labels can lead astray depends on how much the sum of the losses over all
c classes, :math:`\sum_j L(f(x), j)`, can vary with the prediction. It is constant for a symmetric
loss (MAE); L_q keeps it within lemma 2's bounds, truncated L_q within lemma 3's. The width of those
bounds is all that theorems 1 and 2 use.

Everything takes floats or numpy arrays, which broadcast. q is in [0, 1] with q = 0 cross entropy
(its limits, often infinite), k in (0, 1). Noise rates are shares of labels that are really wrong:
a draw at rate r from ALL classes is a rate of r (c - 1) / c.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tolerant.checks import check_transition
from tolerant.theory.symmetry import check_classes, noise_is_tolerable

Value = np.ndarray | float


class SumBounds(NamedTuple):
    r"""Bounds of :math:`\sum_j L(f(x), j)` over all predictions f(x)."""

    lower: Value
    upper: Value


class RiskBounds(NamedTuple):
    """Theorem 1: 0 <= R_noisy(f*) - R_noisy(f_hat) <= A and A' <= R(f*) - R(f_hat) <= 0."""

    noisy: Value
    """A: how much worse the clean optimum f* can be on noisy data than the noisy optimum f_hat."""
    clean: Value
    """A', at most 0: how much worse the noisy optimum can be on clean data, as a negative."""


def lq(p_y: ArrayLike, q: ArrayLike) -> Value:
    r"""Eq. 6: :math:`L_q(p) = (1 - p^q) / q`; at q = 0 its limit :math:`-\log p` (lemma 1).

    >>> print(lq(0.5, [0, 0.5, 1]))
    [0.69314718 0.58578644 0.5       ]
    """
    p, q = np.asarray(p_y, dtype=np.float64), _check_q(q)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(p)
        return _plain(np.where(q == 0, -log_p, -np.expm1(q * log_p) / q) + 0.0)  # no -0.0


def truncated_lq(p_y: ArrayLike, q: ArrayLike, k: ArrayLike) -> Value:
    """Eq. 9: L_q(p) above k, the constant L_q(k) at and below it.

    >>> print(truncated_lq([0.1, 0.5, 1.0], q=1, k=0.5))
    [0.5 0.5 0. ]
    """
    return lq(np.maximum(p_y, _check_k(k)), q)


def sum_bounds(q: ArrayLike, num_classes: ArrayLike) -> SumBounds:
    r"""Lemma 2 (eq. 7, 14): :math:`(c - c^{1-q})/q \le \sum_j L_q(f_j) \le (c - 1)/q`.

    Both are attained: below by the uniform prediction, above by every one-hot one. At q = 1 they
    meet (L_1 is symmetric); at q = 0 the upper one is infinite.

    >>> sum_bounds(q=0.5, num_classes=4)
    SumBounds(lower=4.0, upper=6.0)
    """
    q, c = _check_q(q), check_classes(num_classes)
    with np.errstate(divide="ignore"):
        return SumBounds(lower=_plain(c * lq(1 / c, q)), upper=_plain((c - 1) / q))


def truncation_d(q: ArrayLike, k: ArrayLike) -> Value:
    r"""Lemma 3's :math:`\tilde d = \max(1, (1 - q)^{1/q} / k)`; 1 for every q once k >= 1/e.

    (1 - q)^(1/q) falls from 1/e at q = 0 (the limit) to 0 at q = 1.

    >>> print(truncation_d(q=[0, 0.5, 0.7], k=0.2))
    [1.83939721 1.25       1.        ]
    """
    q, k = _check_q(q), _check_k(k)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.where(q == 0, np.exp(-1.0), np.exp(np.log1p(-q) / q))
    return _plain(np.maximum(1.0, root / k))


def truncated_sum_bounds(
    q: ArrayLike, k: ArrayLike, num_classes: ArrayLike, *, exact: bool = False
) -> SumBounds:
    r"""Lemma 3 (eq. 10): :math:`d L_q(1/d) + (c - d) L_q(k) \le \sum_j L_{trunc} \le c L_q(k)`.

    ``exact=True`` gives the attained extremes instead, for any k. What the paper leaves open or
    misprints:

    - Eq. 18 in the appendix has a factor too many, ``d~ k L_q(1/d)``: with it the lower bound is
      still valid but lower than eq. 10 whenever d > 1; and its d should be d~.
    - d counts the elements ABOVE k, not "with a value <= k".
    - d is treated as continuous. A prediction (1/d, ..., 1/d, 0, ..., 0) exists for whole d only,
      so the lower bound is attained only where d~ is a whole number, as it is (d~ = 1, a one-hot
      prediction) for k >= 1/e. The paper calls it tight; elsewhere it is not: at q = 0.3,
      k = 0.2, c = 5, d~ = 1.52, it is 5.0405 where the least sum is 5.0813.
    - The upper bound is attained when all elements are <= k, which needs k >= 1/c, the lemma's
      assumption. For k < 1/c both bounds still hold; the greatest sum is then
      (c - 1) L_q(k) + L_q(1 - (c - 1) k).
    - The lemma excludes q = 1 (and q = 0); both hold as limits.

    >>> truncated_sum_bounds(q=0.5, k=0.25, num_classes=10)
    SumBounds(lower=9.0, upper=10.0)
    """
    q, k, c = _check_q(q), _check_k(k), check_classes(num_classes)
    flat = lq(k, q)
    d = truncation_d(q, k)
    if not exact:
        return SumBounds(lower=_plain(c * flat - _gain(d, q, k)), upper=_plain(c * flat))
    # The gain is concave in d: the best whole d is next to d~, or is c where d~ lies beyond.
    below, above = np.minimum(np.floor(d), c), np.minimum(np.ceil(d), c)
    gain = np.maximum(_gain(below, q, k), _gain(above, q, k))
    top = lq(np.maximum(k, 1 - (c - 1) * k), q)
    return SumBounds(lower=_plain(c * flat - gain), upper=_plain((c - 1) * flat + top))


def truncation_tightens(
    q: ArrayLike, k: ArrayLike, num_classes: ArrayLike, *, exact: bool = False
) -> np.ndarray | bool:
    r"""Eq. 11: :math:`d [L_q(k) - L_q(1/d)] < (c^{1-q} - 1)/q`: is lemma 3 narrower than lemma 2?

    (The paper calls the left side "L_q(k)"; that is the case d = 1.) It goes on: "when k >= 0.3,
    the above inequality is satisfied for all q and c. When k >= 0.2, the inequality is satisfied
    for all q and c >= 10". Neither is so. Where d = 1 (q >= 0.319 for k = 0.3, q >= 0.648 for
    k = 0.2, every q for k >= 1/e) the inequality reads

    .. math:: c^{1-q} + k^q > 2,

    and the left side is 1 + k < 2 at q = 1, so for every k and every c it fails before q = 1: L_1
    is symmetric, width 0, while truncated L_1 has width 1 - k. It fails from these q on
    (:func:`truncation_limit`): 0.680 for k = 0.3, c = 4, so at the paper's own q = 0.7; 0.792 for
    k = 0.3, c = 10; 0.767 for k = 0.2, c = 10; 0.878 for k = 0.2, c = 100. With d = 1 both lemmas'
    bounds are attained, so this is no weakness of the formulas. The paper's choice q = 0.7, k = 0.5
    does tighten, from c = 3 on.

    >>> print(truncation_tightens(q=[0.5, 0.79, 0.8, 1], k=0.3, num_classes=10))
    [ True  True False False]
    >>> print(truncation_tightens(q=0.7, k=0.5, num_classes=[2, 3, 10, 100]))
    [False  True  True  True]
    """
    q, c = _check_q(q), check_classes(num_classes)
    if exact:
        attained = truncated_sum_bounds(q, k, c, exact=True)
        width = np.asarray(attained.upper - attained.lower)
    else:
        width = _width(q, c, k)
    holds = np.less(width, _lemma2_width(q, c))
    return holds if np.ndim(holds) else bool(holds)


def truncation_limit(k: ArrayLike, num_classes: ArrayLike) -> Value:
    """The q* below which eq. 11 holds and from which on it fails; always below 1.

    For k >= 1/c, which lemma 3 assumes, there is exactly one such q*; it is found by bisection of
    :func:`truncation_tightens`. For a far smaller k there may be three changes, of which one is found: at
    c = 10^6 and k = 6e-8 eq. 11 fails from q = 0.386 on, holds again from 0.635 and fails from 0.796.

    >>> print(truncation_limit(k=[0.2, 0.3, 0.5], num_classes=[[4], [10], [100]]).round(3))
    [[0.641 0.68  0.754]
     [0.767 0.792 0.841]
     [0.878 0.89  0.916]]
    """
    k, c = np.broadcast_arrays(_check_k(k), check_classes(num_classes))
    low, high = np.zeros(k.shape), np.ones(k.shape)
    for _ in range(60):  # below the spacing of float64
        middle = (low + high) / 2
        holds = truncation_tightens(middle, k, c)
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return _plain(low)


def uniform_noise_bounds(
    q: ArrayLike, num_classes: ArrayLike, noise_rate: ArrayLike, k: ArrayLike | None = None
) -> RiskBounds:
    r"""Theorem 1 (eq. 8, 15, 16), noise rate :math:`\eta \le 1 - 1/c` spread over the other classes.

    .. math:: A = \eta \frac{c^{1-q} - 1}{q (c - 1)}, \qquad
              A' = \eta \frac{1 - c^{1-q}}{q (c - 1 - \eta c)}

    With ``k``, the same for truncated L_q, as the paper's last remark suggests: the width
    :math:`(c^{1-q} - 1)/q` of lemma 2 is replaced by lemma 3's. Notes on the paper:

    - The main text (eq. 8) calls A' "A".
    - "A' < 0" is A' = 0 at q = 1 and at eta = 0, as its remark needs.
    - At eta = 1 - 1/c, which the theorem admits, A' divides by zero and there is no bound (-inf
      here): the noisy labels say nothing, and at q = 1 every f has the same noisy risk.
    - Both hold for any set of functions f is chosen from, given that f* and f_hat are its optima.

    >>> uniform_noise_bounds(q=0.5, num_classes=4, noise_rate=0.375)
    RiskBounds(noisy=0.25, clean=-0.5)
    """
    c, rate = check_classes(num_classes), np.asarray(noise_rate, dtype=np.float64)
    room = c - 1 - rate * c  # exactly 0 at 1 - 1/c, however that is written
    if not ((rate >= 0) & (room >= 0)).all():
        raise ValueError(f"noise_rate must be in [0, 1 - 1/num_classes]; got {noise_rate!r}.")
    with np.errstate(divide="ignore", invalid="ignore"):
        noisy = np.where(rate == 0, 0.0, rate / (c - 1) * _width(q, c, k))  # not 0 * inf
        clean = np.where(room > 0, -(c - 1) / room * noisy, -np.inf)
    return RiskBounds(_plain(noisy), _plain(clean + 0.0))


def class_noise_bound(
    q: ArrayLike, transition: ArrayLike, class_prior: ArrayLike | None = None, k: ArrayLike | None = None
) -> Value:
    r"""Theorem 2 (eq. 17): 0 <= R_noisy(f*) - R_noisy(f_hat) <= B for class-dependent noise.

    .. math:: B = \frac{c^{1-q} - 1}{q} \, E(1 - \eta_y)

    It assumes R(f*) = 0 and :math:`\eta_{ij} < 1 - \eta_i`, j != i (``q_ij < q_ii`` in the main text,
    a misprint), which is checked. ``class_prior`` is the share of every true class (default: equal);
    with ``k`` the bound is truncated L_q's. Notes on the paper:

    - B is largest when there is no noise at all, where the difference is 0. R(f*) = 0 alone
      gives R_noisy(f*) = E(eta_y) / q, hence a difference of at most that; B says more only if
      (c^(1-q) - 1) (1 - E(eta_y)) < E(eta_y): for q = 0.7, c = 10 above E(eta_y) = 0.499 only.
    - R(f*) = 0 is a limit that a softmax approaches and never takes.

    >>> round(class_noise_bound(q=0.5, transition=[[0.8, 0.2], [0.4, 0.6]]), 4)
    0.5799
    """
    matrix = check_transition(transition)
    if not noise_is_tolerable(matrix):
        raise ValueError(
            "transition must have every off-diagonal entry below the diagonal one of its row; "
            "theorem 2 says nothing otherwise."
        )
    c = len(matrix)
    prior = np.full(c, 1 / c) if class_prior is None else np.asarray(class_prior, dtype=np.float64)
    if prior.shape != (c,) or (prior < 0).any() or not np.isclose(prior.sum(), 1):
        raise ValueError(f"class_prior must be {c} shares that sum to 1; got {class_prior!r}.")
    return _plain(_width(q, np.asarray(c), k) * (prior @ np.diag(matrix)))


def lq_minimizer(label_probs: ArrayLike, q: float) -> np.ndarray:
    r"""The prediction of least expected L_q when label j comes with probability a_j (last axis).

    .. math:: p_j \propto a_j^{1/(1-q)}, \qquad \min = (1 - \|a\|_{1/(1-q)}) / q

    by Hoelder's inequality; not in the paper. q = 0 reproduces the label probabilities, larger q
    sharpens them, q = 1 takes the likeliest label (evenly where several are).

    >>> print(lq_minimizer([0.6, 0.3, 0.1], q=0.5).round(3))
    [0.783 0.196 0.022]
    """
    a, q = np.asarray(label_probs, dtype=np.float64), float(_check_q(q))
    relative = a / a.max(axis=-1, keepdims=True)
    sharp = relative ** (1 / (1 - q)) if q < 1 else (relative == 1).astype(np.float64)
    return sharp / sharp.sum(axis=-1, keepdims=True)


def _plain(values: np.ndarray) -> Value:
    """A float for a single value, as the caller gave it."""
    return values if np.ndim(values) else float(values)


def _gain(d: Value, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """d [L_q(k) - L_q(1/d)]: what d equal elements take off c L_q(k).

    As d^(1 - q) L_q(d k): for a small k both terms are nearly 1 / q.
    """
    return np.asarray(d ** (1 - q) * lq(d * k, q))


def _lemma2_width(q: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Upper minus lower of lemma 2, without the cancellation: (c^(1-q) - 1) / q."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.expm1((1 - q) * np.log(c)) / q)


def _width(q: ArrayLike, c: np.ndarray, k: ArrayLike | None) -> np.ndarray:
    """Upper minus lower: of lemma 2, or with k of lemma 3, where it is the same for all c."""
    if k is None:
        return _lemma2_width(_check_q(q), c)
    q, k = _check_q(q), _check_k(k)
    return _gain(truncation_d(q, k), q, k)


def _check_q(q: ArrayLike) -> np.ndarray:
    values = np.asarray(q, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"q must be in [0, 1]; got {q!r}. For cross entropy use q=0.")
    return values


def _check_k(k: ArrayLike) -> np.ndarray:
    values = np.asarray(k, dtype=np.float64)
    if not ((values > 0) & (values < 1)).all():
        raise ValueError(f"k must be in (0, 1); got {k!r}. Without truncation use sum_bounds.")
    return values
