"""Random numbers that are the same on every machine and stay the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GENERATOR = "PCG64/1"  # the name in manifests: a change in this file means a new number


def _bits(seed: int, count: int, stream: str) -> NDArray[np.uint64]:
    # The name of the stream is part of its seed: one seed gives flips, replaced rows and a
    # validation split that know nothing of each other.
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(stream.encode()))
    return np.random.PCG64(sequence).random_raw(count)


def uniform_draws(seed: int, count: int, stream: str) -> NDArray[np.float64]:
    """`count` numbers in [0, 1); the first n do not depend on how many follow.

    Made from the raw bits, which numpy promises never to change; its distributions may change.
    """
    return (_bits(seed, count, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal_draws(seed: int, count: int, stream: str) -> NDArray[np.float64]:
    """`count` standard normal numbers (Box and Muller)."""
    u = uniform_draws(seed, 2 * count, stream)
    return np.sqrt(-2.0 * np.log1p(-u[:count])) * np.cos(2.0 * np.pi * u[count:])


def permutation(seed: int, count: int, stream: str) -> NDArray[np.int64]:
    """The numbers 0 to count - 1 in random order."""
    return np.argsort(_bits(seed, count, stream), kind="stable").astype(np.int64)


def draw_column(u: NDArray[np.float64], probs: NDArray[np.float64]) -> NDArray[np.int64]:
    """The column of `probs` ([C] or [N, C]) that each u in [0, 1) falls into.

    A column of probability zero is never drawn, not even by rounding: the cumulated sum is
    divided by its own end, so it reaches exactly 1 at the last column that can be drawn.
    """
    cumulated = np.cumsum(probs, axis=-1)
    cumulated /= cumulated[..., -1:]
    if cumulated.ndim == 1:  # by bisection: a comparison with each class costs rows times classes
        return np.searchsorted(cumulated, u, side="right")
    return (cumulated <= u[:, None]).sum(axis=-1)
