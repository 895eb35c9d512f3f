"""Means, deviations, and whether our number and the paper's agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A mean with its sample standard deviation (None for one run) and its count."""

    mean: float
    std: float | None
    n: int


def summary(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation (n - 1).

    >>> summary([1.0, 2.0, 3.0])
    Summary(mean=2.0, std=1.0, n=3)
    """
    n = len(values)
    if n == 0:
        raise ValueError("values must hold at least one number; got none.")
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(mean, None, 1)
    return Summary(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)), n)


def difference_margin(ours: Summary, paper: Summary) -> float | None:
    """Half the width of the 95 % interval of (our expected value - the paper's), or None.

    Both deviations known: Welch. One known: that deviation is taken for both sides, which makes
    a single run of ours a prediction from the paper's five. None known: nothing can be said.

    >>> round(difference_margin(Summary(87.4, None, 1), Summary(87.13, 0.22, 5)), 2)
    0.67
    """
    from scipy.stats import t

    variances = [(s.std**2, s.n) for s in (ours, paper) if s.std is not None]
    if not variances:
        return None
    if len(variances) == 1:
        variance, n = variances[0]
        error = math.sqrt(variance * (1 / ours.n + 1 / paper.n))
        freedom = float(n - 1)
    else:
        a, b = (variance / n for variance, n in variances)
        error = math.sqrt(a + b)
        if error == 0.0:
            return 0.0
        freedom = (a + b) ** 2 / (a**2 / (ours.n - 1) + b**2 / (paper.n - 1))
    return float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error


def agrees(ours: Summary, paper: Summary) -> bool | None:
    """Whether the interval around the difference covers zero; None when there is no interval."""
    margin = difference_margin(ours, paper)
    return None if margin is None else abs(ours.mean - paper.mean) <= margin
