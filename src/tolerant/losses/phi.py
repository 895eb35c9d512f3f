r"""One function per loss: phi of log p_y, and its weight w.

A loss that looks only at the probability of the given label is a scalar function of one number,
:math:`\phi(\log p_y)`, and its gradient in the logits is :math:`w (\mathrm{softmax} -
\mathrm{onehot})` with :math:`w = -\phi'(\log p_y)`. So each loss is two functions: the value, and
right after it the weight. The weight is written out because autograd differentiates ``expm1`` as
``expm1 + 1``, which is 0 from log p_y = -17 on in fp32: a dead gradient.

No softmax, clamp, one-hot or reduction belongs here. Defaults stand in the value's signature and
nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tolerant.losses.domain import Domain
from tolerant.losses.elementwise import Array, exp, expm1, log, log1p, ones_like, softplus, where

# Below it L_q is cross entropy to all digits of fp64, and in fp32 1e-46 is 0 and the quotient NaN.
LEAST_Q = 1e-30


def cce(log_p_y: Array) -> Array:
    r"""Categorical cross entropy, :math:`-\log p_y`.

    >>> cce(torch.tensor([0.5]).log())
    tensor([0.6931])
    """
    return -log_p_y


def cce_weight(log_p_y: Array) -> Array:
    return ones_like(log_p_y)


def mae(log_p_y: Array) -> Array:
    r"""Mean absolute error, :math:`\lVert e_y - p \rVert_1 = 2 (1 - p_y)`.

    Symmetric, so tolerant of uniform noise, but slow to train. Ghosh et al. 2017.

    >>> mae(torch.tensor([0.25]).log())
    tensor([1.5000])
    """
    return -2 * expm1(log_p_y)


def mae_weight(log_p_y: Array) -> Array:
    return 2 * exp(log_p_y)


def lq(log_p_y: Array, *, q: float = 0.7) -> Array:
    r"""Generalised cross entropy, :math:`(1 - p_y^q) / q`, q in [0, 1].

    q -> 0 is cross entropy, q = 1 is half of MAE. Zhang & Sabuncu 2018, eq. 6.

    >>> lq(torch.tensor([0.5]).log(), q=0.5)
    tensor([0.5858])
    """
    return -log_p_y if q < LEAST_Q else expm1(q * log_p_y) / -q


def lq_weight(log_p_y: Array, *, q: float) -> Array:
    # A masked label has log p_y = -inf, and 0 * inf is NaN where cross entropy's weight is 1.
    return ones_like(log_p_y) if q < LEAST_Q else exp(q * log_p_y)


def truncated_lq(log_p_y: Array, *, q: float = 0.7, k: float = 0.5) -> Array:
    r"""Truncated :math:`L_q`: :math:`\min(L_q(p_y), L_q(k))`, k in (0, 1).

    Rows with :math:`p_y \le k` have exactly no gradient: use it with a `Pruner`, or after a first
    training with :math:`L_q`. k -> 0 is :math:`L_q`. Zhang & Sabuncu 2018, eq. 9.

    >>> truncated_lq(torch.tensor([0.2, 0.9]).log(), q=1.0, k=0.5)
    tensor([0.5000, 0.1000])
    """
    log_k = math.log(k)
    most = -log_k if q < LEAST_Q else math.expm1(q * log_k) / -q
    return lq(log_p_y, q=q).clip(max=most)


def truncated_lq_weight(log_p_y: Array, *, q: float, k: float) -> Array:
    return where(log_p_y <= math.log(k), 0.0, lq_weight(log_p_y, q=q))


def focal(log_p_y: Array, *, gamma: float = 2.0) -> Array:
    r"""Focal loss, :math:`-(1 - p_y)^\gamma \log p_y`, gamma >= 0; gamma = 0 is cross entropy.

    Stresses hard rows, so it is a contrast to the robust losses, not one of them. Lin et al. 2017.

    >>> focal(torch.tensor([0.5]).log(), gamma=1.0)
    tensor([0.3466])
    """
    return -(_rest(log_p_y) ** gamma) * log_p_y


def focal_weight(log_p_y: Array, *, gamma: float) -> Array:
    # The text-book derivative has (1 - p)^(gamma - 1) log p, which is inf * 0 at p = 1 for gamma < 1;
    # with log p / (1 - p) as one bounded factor nothing blows up. At p = 1 that is 0 / 0, so it is taken
    # just before: a choice between both would still have NaN for its derivative, and so would 0 ** gamma.
    finite = log_p_y.clip(min=-1e30, max=-1e-30)
    rest = _rest(finite)
    return rest**gamma * (1 - gamma * exp(log_p_y) * finite / rest)


def taylor(log_p_y: Array, *, order: int = 2) -> Array:
    r"""Taylor cross entropy, :math:`\sum_{i=1}^{t} (1 - p_y)^i / i`, order t >= 1.

    order = 1 is half of MAE, order -> infinity cross entropy. Feng et al. 2020.

    >>> taylor(torch.tensor([0.5]).log(), order=2)
    tensor([0.6250])
    """
    rest = _rest(log_p_y)
    total = rest / order
    for i in range(order - 1, 0, -1):  # Horner: all terms positive, nothing cancels
        total = (total + 1 / i) * rest
    return total


def taylor_weight(log_p_y: Array, *, order: int) -> Array:
    rest = _rest(log_p_y)
    total = ones_like(rest)
    for _ in range(order - 1):
        total = 1 + rest * total
    return exp(log_p_y) * total


def rce(log_p_y: Array, *, log_zero: float = -4.0) -> Array:
    r"""Reverse cross entropy, :math:`-A (1 - p_y)` with log 0 read as A < 0.

    A multiple of MAE. Wang et al. 2019 ("SCE").

    >>> rce(torch.tensor([0.7]).log())
    tensor([1.2000])
    """
    return log_zero * expm1(log_p_y)


def rce_weight(log_p_y: Array, *, log_zero: float) -> Array:
    return -log_zero * exp(log_p_y)


def sce(log_p_y: Array, *, alpha: float = 0.1, beta: float = 1.0, log_zero: float = -4.0) -> Array:
    r"""Symmetric cross entropy, :math:`\alpha \cdot CCE + \beta \cdot RCE`. Wang et al. 2019.

    >>> sce(torch.tensor([0.5]).log())
    tensor([2.0693])
    """
    return -alpha * log_p_y + beta * rce(log_p_y, log_zero=log_zero)


def sce_weight(log_p_y: Array, *, alpha: float, beta: float, log_zero: float) -> Array:
    return alpha + beta * rce_weight(log_p_y, log_zero=log_zero)


def agce(log_p_y: Array, *, a: float = 0.6, q: float = 0.6) -> Array:
    r"""Asymmetric generalised cross entropy, :math:`((a + 1)^q - (a + p_y)^q) / q`, a, q > 0.

    Zhou et al. 2021.

    >>> agce(torch.tensor([0.5]).log(), a=1.0, q=1.0)
    tensor([0.5000])
    """
    log_ratio = _log((a + exp(log_p_y)) / (a + 1), expm1(log_p_y) / (a + 1))
    return (a + 1) ** q / -q * expm1(q * log_ratio)


def agce_weight(log_p_y: Array, *, a: float, q: float) -> Array:
    p_y = exp(log_p_y)
    return p_y * (a + p_y) ** (q - 1)


def aul(log_p_y: Array, *, a: float = 6.3, p: float = 1.5) -> Array:
    r"""Asymmetric unhinged loss, :math:`((a - p_y)^p - (a - 1)^p) / p`, a > 1, p > 0.

    Zhou et al. 2021.

    >>> aul(torch.tensor([0.5]).log(), a=2.0, p=1.0)
    tensor([0.5000])
    """
    rest = _rest(log_p_y)
    log_ratio = log1p(rest / (a - 1))  # log((a - p_y) / (a - 1)), exact at p_y = 1
    # From the larger power down: the smaller one, 0.001 ** 15 for a = 1.001, may be 0 in fp32.
    return ((a - 1) + rest) ** p / -p * expm1(-p * log_ratio)


def aul_weight(log_p_y: Array, *, a: float, p: float) -> Array:
    return exp(log_p_y) * ((a - 1) + _rest(log_p_y)) ** (p - 1)


def ael(log_p_y: Array, *, a: float = 2.5) -> Array:
    r"""Asymmetric exponential loss, :math:`\exp(-p_y / a)`, a > 0. Zhou et al. 2021.

    >>> ael(torch.tensor([1.0]).log(), a=1.0)
    tensor([0.3679])
    """
    return exp(exp(log_p_y) / -a)


def ael_weight(log_p_y: Array, *, a: float) -> Array:
    p_y = exp(log_p_y)
    return p_y / a * exp(p_y / -a)


def phuber(log_p_y: Array, *, tau: float = 10.0) -> Array:
    r"""Partially Huberised cross entropy: :math:`-\log p_y` above 1/tau, its tangent below, tau > 1.

    Menon et al. 2020.

    >>> phuber(torch.tensor([0.5, 0.0]).log(), tau=10.0)
    tensor([0.6931, 3.3026])
    """
    log_tau = math.log(tau)
    tangent = log_tau - expm1(log_p_y + log_tau)  # 1 + log tau - tau p_y, two positive terms below 1 / tau
    return where(log_p_y >= -log_tau, -log_p_y, tangent)


def phuber_weight(log_p_y: Array, *, tau: float) -> Array:
    return exp((log_p_y + math.log(tau)).clip(max=0))


def js(log_p_y: Array, *, pi: float = 0.5) -> Array:
    r"""Jensen-Shannon divergence of the one-hot label and the prediction, weights pi and 1 - pi.

    Scaled as in Englesson & Azizpour 2021, so that pi -> 0 is cross entropy and pi -> 1 half of MAE.

    >>> js(torch.tensor([1.0, 0.0]).log(), pi=0.5)
    tensor([0., 2.])
    """
    other, scale = 1 - pi, -math.log1p(-pi)
    p_y, rest = exp(log_p_y), _rest(log_p_y)
    log_m = _log(pi + other * p_y, -other * rest)  # m = pi + (1 - pi) p_y
    # log(m / p_y), not the difference of two logarithms: for a small pi they are nearly the same.
    apart = log1p(pi * rest / exp(log_p_y.clip(min=-80)))
    return rest - p_y * apart / scale - pi / (other * scale) * log_m


def js_weight(log_p_y: Array, *, pi: float) -> Array:
    finite = log_p_y.clip(min=-1e30)  # a masked label has log p_y = -inf, and 0 * inf is NaN
    slope = softplus(math.log(pi / (1 - pi)) - finite)
    return exp(finite) * slope / -math.log1p(-pi)


def _rest(log_p_y: Array) -> Array:
    """1 - p_y, with all digits near p_y = 1."""
    return -expm1(log_p_y)


def _log(x: Array, less_one: Array) -> Array:
    """log x from x and x - 1, with all digits near 1, where x has none to spare, and near 0."""
    return where(less_one > -0.5, log1p(less_one), log(x))


class _Apply(torch.autograd.Function):
    """phi(log p_y) with -w as its derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_p_y: Tensor, value: Callable[[Tensor], Tensor], weight: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return value(log_p_y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        log_p_y, _, ctx.weight = inputs
        ctx.save_for_backward(log_p_y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (log_p_y,) = ctx.saved_tensors
        return -grad * ctx.weight(log_p_y), None, None


@dataclass(frozen=True)
class Phi:
    """A loss of log p_y alone: its value, w = -d value / d log p_y, and the domains of its numbers."""

    name: str
    value: Callable[..., Tensor]
    weight: Callable[..., Tensor]
    domains: dict[str, Domain]

    def __call__(self, log_p_y: Tensor, **hyper: float) -> Tensor:
        """The value, differentiable any number of times, with the exact first derivative."""
        return _Apply.apply(
            log_p_y,
            lambda log_p: self.value(log_p, **hyper),
            lambda log_p: self.weight(log_p, **hyper),
        )


POSITIVE = Domain(0, open_low=True)
Q = Domain(0, 1, way_out="For cross entropy use q=0, for (half of) MAE q=1.")
K = Domain(0, 1, open_low=True, open_high=True, way_out="Without truncation use lq.")
LOG_ZERO = Domain(high=0, open_high=True, way_out="It stands for log 0; the paper has -4.")

PHI: dict[str, Phi] = {
    phi.name: phi
    for phi in (
        Phi("cce", cce, cce_weight, {}),
        Phi("mae", mae, mae_weight, {}),
        Phi("lq", lq, lq_weight, {"q": Q}),
        Phi("truncated-lq", truncated_lq, truncated_lq_weight, {"q": Q, "k": K}),
        Phi("focal", focal, focal_weight, {"gamma": Domain(0)}),
        Phi("taylor", taylor, taylor_weight, {"order": Domain(1, 1000, integer=True)}),
        Phi("rce", rce, rce_weight, {"log_zero": LOG_ZERO}),
        Phi("sce", sce, sce_weight, {"alpha": Domain(0), "beta": Domain(0), "log_zero": LOG_ZERO}),
        Phi("agce", agce, agce_weight, {"a": POSITIVE, "q": POSITIVE}),
        Phi("aul", aul, aul_weight, {"a": Domain(1, open_low=True), "p": POSITIVE}),
        Phi("ael", ael, ael_weight, {"a": POSITIVE}),
        Phi("phuber", phuber, phuber_weight, {"tau": Domain(1, open_low=True)}),
        Phi("js", js, js_weight, {"pi": Domain(0, 1, open_low=True, open_high=True)}),
    )
}
