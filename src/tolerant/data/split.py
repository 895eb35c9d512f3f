"""Which rows train and which validate."""

from __future__ import annotations

import numpy as np


def split_validation(num_rows: int, fraction: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers for training and for validation: disjoint, sorted, the same for the same seed.

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
    order = np.random.Generator(np.random.PCG64(seed)).permutation(num_rows)
    return np.sort(order[num_validation:]), np.sort(order[:num_validation])
