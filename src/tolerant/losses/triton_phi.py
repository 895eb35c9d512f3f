"""The phi losses as Triton functions: (phi, w) of log p_y, chosen when a kernel is compiled.

The reference is `tolerant.losses.phi`, formula for formula. ``tl.exp`` and ``tl.log`` are a hardware
base-2 instruction and one rounded product: at x = -100 that is a relative error of 6e-6, and near 1
the logarithm has no correct digit left. So the per-row numbers use the functions below (fp32 within
about 2 ulp; fp64 through libdevice). They cost some 100 instructions a row, against 20 a logit.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from tolerant.losses.phi import LEAST_Q

_NAN: tl.constexpr = tl.constexpr(tl.PropagateNan.ALL)
_LOG2E: tl.constexpr = tl.constexpr(1.4426950216293335)  # log2(e), rounded to fp32 ...
_LOG2E_REST: tl.constexpr = tl.constexpr(1.925963033500e-8)  # ... and what that left out
_LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def divide(a, b):
    # fp32 "/" is the 2 ulp division.
    return a / b if b.dtype == tl.float64 else tl.div_rn(a, b)


INTERPRETED: tl.constexpr = tl.constexpr(not isinstance(divide, triton.JITFunction))


@triton.jit
def exp(x):
    """exp for x below 88: the rounding error of x * log2(e) is put back. -inf gives 0, NaN NaN."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        x = tl.maximum(x, -200.0, propagate_nan=_NAN)
        high = x * _LOG2E
        rest = tl.fma(x, _LOG2E_REST, tl.fma(x, _LOG2E, -high))
        power = tl.exp2(high)
        return tl.fma(power, rest * _LN2, power)


@triton.jit
def _power_of_2(x):
    """2 ** x of fp32 in one instruction: relative error 2e-7, results below 1.2e-38 are 0."""
    if INTERPRETED:
        return tl.exp2(x)
    else:  # tl.exp2 handles subnormal results, at 3 instructions more a logit
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _exp_of_logit(x):
    """exp for every logit of fp32, in 5 instructions; relative error 3e-7 + |x| * 3e-9."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        x = tl.maximum(x, -200.0, propagate_nan=_NAN)
        high = x * _LOG2E
        # What rounding `high` lost, in natural units; fp32's ln 2 is right to 3e-9.
        lost = tl.fma(high, -_LN2, x)
        power = _power_of_2(high)
        return tl.fma(power, lost, power)


# Exponentials over a base. FAST (logits of 16 bits): the base is in powers of 2, and exp(x - top) is one
# multiplication with addition and one 2 ** x. What rounding the base to fp32 does to all of them
# `exp_between` takes back, once a row. Otherwise the base is the maximum itself.


@triton.jit
def base_of(top, FAST: tl.constexpr):
    return top * _LOG2E if FAST else top


@triton.jit
def top_of(base, FAST: tl.constexpr):
    return base * _LN2 if FAST else base


@triton.jit
def exp_over(x, base, FAST: tl.constexpr):
    return _power_of_2(tl.fma(x, _LOG2E, -base)) if FAST else _exp_of_logit(x - base)


@triton.jit
def exp_step(base, new, FAST: tl.constexpr):
    """From one base to a higher one."""
    return _power_of_2(base - new) if FAST else _exp_of_logit(base - new)


@triton.jit
def exp_between(base, top, FAST: tl.constexpr):
    """From a base to exp(x - top), top in natural units."""
    return _power_of_2(-tl.fma(top, _LOG2E, -base)) if FAST else _exp_of_logit(base - top)


@triton.jit
def log(x):
    if x.dtype == tl.float64:
        return tl.log(x)
    else:
        bits = x.to(tl.int32, bitcast=True)
        exponent = (bits - 0x3F3504F3) >> 23  # so that the mantissa lies in [sqrt(1/2), sqrt(2))
        f = (bits - (exponent << 23)).to(tl.float32, bitcast=True) - 1.0
        t = tl.div_rn(f, 2.0 + f)
        r = t * t
        series = r * (0.33333333 + r * (0.2 + r * (0.14285714 + r * 0.11111111)))
        value = exponent.to(tl.float32) * _LN2 + (2.0 * t + 2.0 * t * series)
        return tl.where((x >= 1.2e-38) & (x < float("inf")), value, tl.log(x))


@triton.jit
def log_sum(a, b):
    """log(a + b) with the rounding error of the sum put back, so log_sum(1, b) is log1p(b)."""
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)
    return log(total) + lost / total


@triton.jit
def expm1(x):
    small = 1.0 + x * 0.0
    if x.dtype == tl.float64:
        for i in tl.static_range(17, 1, -1):
            small = 1.0 + small * x / i
    else:
        for i in tl.static_range(9, 1, -1):
            small = 1.0 + small * x * (1.0 / i)
    return tl.where(tl.abs(x) < 0.5, x * small, exp(x) - 1.0)


@triton.jit
def power(x, y):
    """x ** y for x >= 0, with 0 ** 0 = 1 as in torch; in fp64, since y log x may be large."""
    value = tl.exp(y.to(tl.float64) * tl.log(x.to(tl.float64)))
    return tl.where(y == 0.0, 1.0, value.to(x.dtype))


@triton.jit
def finite(x):
    return tl.maximum(x, -1e30, propagate_nan=_NAN)


@triton.jit
def log_of(x, less_one):
    """log x from x and x - 1, with all digits near 1 and near 0."""
    return tl.where(less_one > -0.5, log_sum(1.0 + 0.0 * x, less_one), log(x))


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
    below = tl.minimum(log_p + log_tau, 0.0, propagate_nan=_NAN)
    return tl.where(above, -log_p, log_tau - expm1(below)), exp(below)


@triton.jit
def js(log_p, pi, other, scale, logit):
    one = 1.0 + 0.0 * finite(log_p)
    p, rest = exp(log_p), -expm1(log_p)
    log_m = log_of(pi + other * p, -other * rest)
    apart = log_sum(one, divide(pi * rest, exp(tl.maximum(log_p, -80.0, propagate_nan=_NAN))))
    value = rest - divide(p * apart, scale) - divide(pi * log_m, other * scale)
    x = logit - finite(log_p)
    slope = tl.maximum(x, 0.0, propagate_nan=_NAN) + log_sum(one, exp(-tl.abs(x)))
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
