"""Draw given labels from true ones, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_labels, check_rate, check_seed, check_transition
from tolerant.noise.draws import GENERATOR, draw_column, uniform_draws
from tolerant.noise.manifest import Manifest, label_digest


@dataclass(frozen=True)
class Corruption:
    """Given labels, where they differ from the true ones, how often, and how they were made."""

    given_labels: NDArray[np.int64]
    flipped: NDArray[np.bool_]
    realised_noise_rate: float
    manifest: Manifest


def corrupt(
    true_labels: ArrayLike,
    transition: ArrayLike,
    *,
    seed: int,
    kind: str = "matrix",
    rate: float | None = None,
) -> Corruption:
    """Give each row a label drawn from the row of `transition` of its true class.

    One draw a row decides, from the true label alone: no label flips twice, and the first n
    labels do not depend on how many rows follow. The true class takes the low end of the draw,
    so with one seed the rows flipped at a lower rate are flipped at a higher one too. `kind` and
    `rate` only go into the manifest.

    >>> from tolerant.noise import symmetric
    >>> corrupt([0, 1, 2, 0, 1, 2], symmetric(3, 0.5), seed=1).given_labels
    array([1, 2, 2, 1, 2, 2])
    """
    transition = check_transition(transition)
    true = check_labels(true_labels, len(transition), "true_labels")
    seed = check_seed(seed)
    u = uniform_draws(seed, len(true), "labels")
    given = np.empty_like(true)
    for label, rows in rows_by_class(true):
        given[rows] = draw_from_true(u[rows], transition[label], label)
    return describe(true, given, len(transition), kind=kind, rate=rate, seed=seed)


def rows_by_class(labels: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each class that occurs, with its rows in ascending order."""
    order = np.argsort(labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True))


def draw_from_true(u: NDArray[np.float64], probs: NDArray[np.float64], true_label: int) -> NDArray[np.int64]:
    """A label for each u: [0, 1) is shared out among the classes, the true one first, then the next ones."""
    return (true_label + draw_column(u, np.roll(probs, -true_label, axis=-1))) % probs.shape[-1]


def describe(
    true: NDArray[np.int64],
    given: NDArray[np.int64],
    num_classes: int,
    *,
    kind: str,
    rate: float | None,
    seed: int,
) -> Corruption:
    """The drawn labels with their noise rate and manifest."""
    flipped = given != true
    realised = float(flipped.mean())
    manifest = Manifest(
        kind=kind,
        rate=None if rate is None else check_rate(rate),
        seed=seed,
        generator=GENERATOR,
        num_rows=len(true),
        num_classes=num_classes,
        realised_noise_rate=realised,
        sha256=label_digest(given),
    )
    return Corruption(given, flipped, realised, manifest)
