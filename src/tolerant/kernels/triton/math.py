"""Elementary functions for the Triton kernels, as accurate as their fp32 results can be.

``tl.exp`` and ``tl.log`` are a hardware base-2 instruction and one rounded product: at x = -100 that is a
relative error of 6e-6, and near 1 the logarithm has no correct digit left. The functions below are right
within about 2 ulp in fp32; fp64 goes through libdevice. They are for the few numbers that a row has: some 100
instructions a row, against 20 a logit. The exponentials of the logits themselves have cheaper ones.
"""

# mypy: ignore-errors
# (what Triton compiles is not what Python's types describe)
from __future__ import annotations

import triton
import triton.language as tl

PROPAGATE_NAN: tl.constexpr = tl.constexpr(tl.PropagateNan.ALL)
_LOG2E: tl.constexpr = tl.constexpr(1.4426950216293335)  # log2(e), rounded to fp32 ...
_LOG2E_REST: tl.constexpr = tl.constexpr(1.925963033500e-8)  # ... and what that left out
_LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def divide(a, b):
    # In fp32 Triton's own "/" is right within 2 ulp only.
    return a / b if b.dtype == tl.float64 else tl.div_rn(a, b)


# Whether Triton's interpreter runs the kernels, on a CPU: how the tests run without a GPU.
INTERPRETED: tl.constexpr = tl.constexpr(not isinstance(divide, triton.JITFunction))


@triton.jit
def exp(x):
    """exp for x below 88: the rounding error of x * log2(e) is put back. -inf gives 0, NaN NaN."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        x = tl.maximum(x, -200.0, propagate_nan=PROPAGATE_NAN)
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
        x = tl.maximum(x, -200.0, propagate_nan=PROPAGATE_NAN)
        high = x * _LOG2E
        # What rounding `high` lost, in natural units; fp32's ln 2 is right to 3e-9.
        lost = tl.fma(high, -_LN2, x)
        power = _power_of_2(high)
        return tl.fma(power, lost, power)


# Exponentials relative to a base, which stands for the largest logit, `top`. For logits of 16 bits (FAST)
# the base is top * log2(e): then exp(x - top) costs one fused multiply-add and one 2 ** x. Rounding the base
# to fp32 puts the same small factor on all exponentials of a row, which `exp_between` takes off, once a row.
# Otherwise the base is `top` itself.


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
    """The factor that brings exponentials over one base to another, higher one."""
    return _power_of_2(base - new) if FAST else _exp_of_logit(base - new)


@triton.jit
def exp_between(base, top, FAST: tl.constexpr):
    """The factor that makes exponentials over a base those of x - top."""
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
    return tl.maximum(x, -1e30, propagate_nan=PROPAGATE_NAN)


@triton.jit
def log_of(x, less_one):
    """log x from x and x - 1, with all digits near 1 and near 0."""
    return tl.where(less_one > -0.5, log_sum(1.0 + 0.0 * x, less_one), log(x))
