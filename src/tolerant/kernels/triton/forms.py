"""The phi losses as Triton functions: (phi, w) of log p_y, chosen when a kernel is compiled.

The reference is `tolerant.losses.phi`, formula for formula. A loss without a form here takes the plain path.
A kernel passes four numbers to whichever of them it is compiled with; `FORMS` says which, from the loss's
hyper-parameters, and a loss that needs fewer leaves the last ones alone.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import triton
import triton.language as tl

from tolerant.kernels.log_prob import LEAST_Q
from tolerant.kernels.triton.math import (
    PROPAGATE_NAN,
    divide,
    exp,
    expm1,
    finite,
    log_of,
    log_sum,
    power,
)


@triton.jit
def cce(log_p, a, b, c, d):
    return -log_p, 1.0 + 0.0 * finite(log_p)


@triton.jit
def mae(log_p, a, b, c, d):
    return -2.0 * expm1(log_p), 2.0 * exp(log_p)


@triton.jit
def lq(log_p, q, inverse, c, d):
    return -inverse * expm1(q * log_p), exp(q * log_p)


@triton.jit
def truncated_lq(log_p, q, inverse, log_k, most):
    value = tl.where(q == 0.0, -log_p, -inverse * expm1(q * log_p))
    dead = log_p <= log_k  # NaN is not dead: it must reach the loss
    return tl.where(dead, most, value), tl.where(dead, 0.0, exp(q * log_p))


@triton.jit
def focal(log_p, gamma, b, c, d):
    rest = -expm1(log_p)
    ratio = tl.where(log_p == 0.0, 1.0, divide(finite(log_p), -rest))
    factor = power(rest, gamma)
    return -factor * log_p, factor * (1.0 + gamma * exp(log_p) * ratio)


@triton.jit
def taylor(log_p, order, b, c, d):
    rest = -expm1(log_p)
    value = divide(rest, order)
    weight = 1.0 + 0.0 * rest
    terms = order.to(tl.int32)
    for i in range(1, terms):
        value = (value + divide(1.0 + 0.0 * order, (terms - i).to(order.dtype))) * rest
        weight = 1.0 + rest * weight
    return value, exp(log_p) * weight


@triton.jit
def rce(log_p, log_zero, b, c, d):
    return log_zero * expm1(log_p), -log_zero * exp(log_p)


@triton.jit
def sce(log_p, alpha, beta, log_zero, d):
    value, weight = rce(log_p, log_zero, 0.0, 0.0, 0.0)
    return -alpha * log_p + beta * value, alpha + beta * weight


@triton.jit
def agce(log_p, a, q, factor, d):
    p = exp(log_p)
    log_ratio = log_of(divide(a + p, a + 1.0), divide(expm1(log_p), a + 1.0))
    return factor * expm1(q * log_ratio), p * power(a + p, q - 1.0)


@triton.jit
def aul(log_p, a_less_one, exponent, c, d):
    one = 1.0 + 0.0 * finite(log_p)
    rest = -expm1(log_p)
    log_ratio = log_sum(one, divide(rest, a_less_one))
    base = a_less_one + rest
    slope = power(base, exponent - 1.0)
    return -divide(base * slope, exponent) * expm1(-exponent * log_ratio), exp(log_p) * slope


@triton.jit
def ael(log_p, a, b, c, d):
    p = exp(log_p)
    value = exp(-divide(p, a))
    return value, divide(p, a) * value


@triton.jit
def phuber(log_p, log_tau, b, c, d):
    above = log_p >= -log_tau
    below = tl.minimum(log_p + log_tau, 0.0, propagate_nan=PROPAGATE_NAN)
    return tl.where(above, -log_p, log_tau - expm1(below)), exp(below)


@triton.jit
def js(log_p, pi, other, scale, logit):
    one = 1.0 + 0.0 * finite(log_p)
    p, rest = exp(log_p), -expm1(log_p)
    log_m = log_of(pi + other * p, -other * rest)
    apart = log_sum(one, divide(pi * rest, exp(tl.maximum(log_p, -80.0, propagate_nan=PROPAGATE_NAN))))
    value = rest - divide(p * apart, scale) - divide(pi * log_m, other * scale)
    x = logit - finite(log_p)
    slope = tl.maximum(x, 0.0, propagate_nan=PROPAGATE_NAN) + log_sum(one, exp(-tl.abs(x)))
    return value, divide(p * slope, scale)


def _truncated_lq(q, k):
    if q < LEAST_Q:
        return truncated_lq, [0.0, 1.0, math.log(k), -math.log(k)]
    return truncated_lq, [q, 1 / q, math.log(k), -math.expm1(q * math.log(k)) / q]


# By the name of the loss: the Triton function, and the numbers it wants in place of the hyper-parameters.
FORMS: dict[str, Callable[..., tuple[Any, list[float]]]] = {
    "cce": lambda label_smoothing: (cce, []),  # which smooths elsewhere
    "mae": lambda: (mae, []),
    "lq": lambda q: (cce, []) if q < LEAST_Q else (lq, [q, 1 / q]),
    "truncated-lq": _truncated_lq,
    "focal": lambda gamma: (focal, [gamma]),
    "taylor": lambda order: (taylor, [order]),
    "rce": lambda log_zero: (rce, [log_zero]),
    "sce": lambda alpha, beta, log_zero: (sce, [alpha, beta, log_zero]),
    "agce": lambda a, q: (agce, [a, q, (a + 1) ** q / -q]),
    "aul": lambda a, p: (aul, [a - 1, p]),
    "ael": lambda a: (ael, [a]),
    "phuber": lambda tau: (phuber, [math.log(tau)]),
    "js": lambda pi: (js, [pi, 1 - pi, -math.log1p(-pi), math.log(pi / (1 - pi))]),
}


@functools.cache
def _numbers(form: str) -> tuple[str, ...]:
    return tuple(inspect.signature(FORMS[form]).parameters)


def constants(form: str, hyper: Mapping[str, float]) -> tuple[Any, list[float]]:
    """The Triton function of a loss, and its four numbers; a child of the loss may have more of them."""
    function, numbers = FORMS[form](*(hyper[name] for name in _numbers(form)))
    return function, [float(x) for x in numbers] + [0.0] * (4 - len(numbers))
