"""The paper's theory in functions: bounds, conditions, and where its own statements fail."""

from tolerant.theory.bounds import (
    RiskBounds,
    SumBounds,
    class_noise_bound,
    lq,
    lq_minimizer,
    sum_bounds,
    truncated_lq,
    truncated_sum_bounds,
    truncation_d,
    truncation_limit,
    truncation_tightens,
    uniform_noise_bounds,
)
from tolerant.theory.exponent import choose_q
from tolerant.theory.symmetry import is_symmetric, noise_is_tolerable, symmetry_constant

__all__ = [
    "RiskBounds",
    "SumBounds",
    "choose_q",
    "class_noise_bound",
    "is_symmetric",
    "lq",
    "lq_minimizer",
    "noise_is_tolerable",
    "sum_bounds",
    "symmetry_constant",
    "truncated_lq",
    "truncated_sum_bounds",
    "truncation_d",
    "truncation_limit",
    "truncation_tightens",
    "uniform_noise_bounds",
]
