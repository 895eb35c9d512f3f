"""Which rows train and which validate."""

from __future__ import annotations

import numpy as np


def split_validation(
    num_rows: int, fraction: float = 0.1, seed: int = 0, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers for training and for validation: disjoint, sorted, the same for the same seed.

    With ``groups`` (N,) no group is in both: in random order, each that still fits validates, or if none does
    the smallest. A single group is split by its rows.

    >>> train, validation = split_validation(10, fraction=0.2, seed=0)
    >>> len(train), len(validation), sorted({*train, *validation}) == list(range(10))
    (8, 2, True)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be in (0, 1); got {fraction!r}")
    num_validation = round(num_rows * fraction)
    if not 0 < num_validation < num_rows:
        raise ValueError(
            f"{num_rows} rows cannot be split: a fraction of {fraction} for validation is "
            f"{num_validation} of them. Use more rows or another fraction"
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    if groups is not None:
        _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(sizes) > 1:
            held_out = _whole_groups(sizes, num_validation, generator)[group]
            return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    order = generator.permutation(num_rows)
    return np.sort(order[num_validation:]), np.sort(order[:num_validation])


def _whole_groups(sizes: np.ndarray, num_validation: int, generator: np.random.Generator) -> np.ndarray:
    """bool, by group: held out, at most `num_validation` rows unless every group has more."""
    held_out = np.zeros(len(sizes), bool)
    for group in generator.permutation(len(sizes)):
        if sizes[group] <= num_validation:
            held_out[group] = True
            num_validation -= sizes[group]
    if not held_out.any():
        held_out[sizes.argmin()] = True
    return held_out
