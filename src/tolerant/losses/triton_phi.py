"""The phi losses as Triton functions: (phi, w) of log p_y, chosen when a kernel is compiled.

The reference is `tolerant.losses.phi`, formula for formula. A kernel passes four numbers to whichever of them
it is compiled with; `constants` says which four, and a loss that needs fewer leaves the last ones alone.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from tolerant.losses.phi import LEAST_Q
from tolerant.losses.triton_math import (
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


def constants(phi: str, hyper: dict[str, float]) -> tuple[Any, list[float]]:
    """The Triton function of a loss, and the four numbers it wants in place of its hyper-parameters."""
    match phi, hyper:
        case "lq", {"q": q} if q < LEAST_Q:
            found, numbers = cce, []
        case "lq", {"q": q}:
            found, numbers = lq, [q, 1 / q]
        case "truncated-lq", {"q": q, "k": k}:
            q = 0.0 if q < LEAST_Q else q
            most = -math.log(k) if q == 0 else -math.expm1(q * math.log(k)) / q
            found, numbers = truncated_lq, [q, 1 / (q or 1), math.log(k), most]
        case "sce", {"alpha": alpha, "beta": beta, "log_zero": log_zero}:
            found, numbers = sce, [alpha, beta, log_zero]
        case "agce", {"a": a, "q": q}:
            found, numbers = agce, [a, q, (a + 1) ** q / -q]
        case "aul", {"a": a, "p": p}:
            found, numbers = aul, [a - 1, p]
        case "phuber", {"tau": tau}:
            found, numbers = phuber, [math.log(tau)]
        case "js", {"pi": pi}:
            found, numbers = js, [pi, 1 - pi, -math.log1p(-pi), math.log(pi / (1 - pi))]
        case (("cce" | "mae" | "focal" | "taylor" | "rce" | "ael"), _):
            plain = (cce, mae, focal, taylor, rce, ael)
            found = {f.__name__: f for f in plain}[phi]
            numbers = list(hyper.values())
        case _:
            raise ValueError(f"phi must be a loss of log p_y with its numbers; got {phi!r}, {hyper!r}")
    return found, [float(x) for x in numbers] + [0.0] * (4 - len(numbers))
