"""Open-set noise: rows whose picture shows none of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_labels, check_num_classes, check_rate, check_rows, check_seed
from tolerant.noise.corrupt import GENERATOR, Manifest, label_digest, permutation, uniform_draws


@dataclass(frozen=True)
class OpenSet:
    """Inputs of which the `replaced` rows come from elsewhere; `source` says from which row, or -1.

    The given labels are what they were; the true label of a replaced row is -1: no class.
    """

    inputs: NDArray[Any]
    given_labels: NDArray[np.int64]
    true_labels: NDArray[np.int64]
    replaced: NDArray[np.bool_]
    source: NDArray[np.int64]
    realised_noise_rate: float
    manifest: Manifest


def replace_inputs(
    inputs: Any, true_labels: ArrayLike, outside_inputs: Any, rate: float, *, num_classes: int, seed: int
) -> OpenSet:
    """Replace each input with probability `rate` by one of `outside_inputs`; labels stay.

    The paper's table 2, after Wang et al. 2018 (CIFAR-10 with CIFAR-100 pictures). The picture is
    chosen without looking at the label, so its label is a random one, and every class keeps its
    size. No outside row is used twice before all have been used. The first n rows do not depend on
    how many follow.

    >>> noisy = replace_inputs(np.zeros((4, 2)), [0, 1, 0, 1], np.ones((9, 2)), 0.5,
    ...                        num_classes=2, seed=0)
    >>> noisy.replaced, noisy.source
    (array([False,  True, False,  True]), array([-1,  8, -1,  6]))
    """
    num_classes, rate, seed = check_num_classes(num_classes), check_rate(rate), check_seed(seed)
    labels = check_labels(true_labels, num_classes, "true_labels")
    check_rows(inputs, labels)
    if len(outside_inputs) < 1:
        raise ValueError("outside_inputs must have at least one row; got none.")
    replaced = uniform_draws(seed, len(labels), "replaced") < rate
    order = permutation(seed, len(outside_inputs), "sources")
    source = np.full(len(labels), -1, dtype=np.int64)
    source[replaced] = order[np.arange(replaced.sum()) % len(order)]
    mixed = np.array(inputs[np.arange(len(labels))])
    outside = np.asarray(outside_inputs[source[replaced]])
    if outside.dtype != mixed.dtype or outside.shape[1:] != mixed.shape[1:]:
        raise ValueError(
            f"outside_inputs must be like inputs, {mixed.dtype} rows of shape {mixed.shape[1:]}; "
            f"got {outside.dtype} rows of shape {outside.shape[1:]}. Resize or convert them first."
        )
    mixed[replaced] = outside
    realised = float(replaced.mean())
    manifest = Manifest(
        "open-set", rate, seed, GENERATOR, len(labels), num_classes, realised, label_digest(source)
    )
    true = np.where(replaced, -1, labels)
    return OpenSet(mixed, labels, true, replaced, source, realised, manifest)
