"""Noise that depends on the inputs, or that replaces them: instance-dependent and open-set noise."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import Domain, check_labels, check_num_classes, check_rate, check_rows, check_seed
from tolerant.noise.corrupt import (
    GENERATOR,
    Corruption,
    Manifest,
    draw_from_true,
    label_digest,
    normal_draws,
    permutation,
    rows_by_class,
    uniform_draws,
    with_manifest,
)

_CHUNK = 4096  # rows read and multiplied at once: 100 MB of float64 for CIFAR


def instance_dependent(
    inputs: Any, true_labels: ArrayLike, rate: float, *, num_classes: int, seed: int, std: float = 0.1
) -> Corruption:
    """Part-dependent noise (Xia et al. 2020, algorithm 2).

    Row n is flipped with probability q_n, drawn from a normal distribution with mean `rate`
    and deviation `std`, truncated to [0, 1]. A flipped row's label is drawn from a softmax over the
    other classes, whose logits are a random linear map of the input, one map for each true class.
    Truncation lifts the mean: a rate of 0.1, 0.2, 0.4 flips 0.129, 0.206, 0.400 of the rows. A rate
    of 0 flips none.

    `inputs` is an array, or anything with a length that takes an array of row numbers; uint8 is
    divided by 255. As the map is linear, standardise columns of very different scale first. Labels
    depend on sums in float64: a library that rounds differently changes a label only where a draw
    lies within about 1e-12 of a boundary.

    >>> inputs = np.random.default_rng(0).normal(size=(1000, 5))
    >>> noisy = instance_dependent(inputs, np.arange(1000) % 4, 0.4, num_classes=4, seed=0)
    >>> round(noisy.realised_noise_rate, 2)
    0.39
    """
    num_classes, rate, seed = check_num_classes(num_classes), check_rate(rate), check_seed(seed)
    Domain(0, open_low=True).check("std", std)
    true = check_labels(true_labels, num_classes, "true_labels")
    check_rows(inputs, true)
    flip_rates = _truncated_normal(rate, std, seed, len(true))
    u = uniform_draws(seed, len(true), "labels")
    given = np.empty_like(true)
    for label, rows in rows_by_class(true):
        directions: NDArray[np.float64] | None = None
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            x = _as_features(inputs[chunk], chunk)
            if directions is None:
                size = x.shape[1] * num_classes
                directions = normal_draws(seed, size, f"direction {label}").reshape(-1, num_classes)
            logits = x @ directions
            logits[:, label] = -np.inf
            probs = np.exp(logits - logits.max(axis=1, keepdims=True))
            probs *= (flip_rates[chunk] / probs.sum(axis=1))[:, None]
            probs[:, label] = 1.0 - flip_rates[chunk]
            given[chunk] = draw_from_true(u[chunk], probs, label)
    return with_manifest(true, given, num_classes, kind="instance", rate=rate, seed=seed)


def _truncated_normal(mean: float, std: float, seed: int, count: int) -> NDArray[np.float64]:
    if mean == 0.0:
        return np.zeros(count)
    normal = NormalDist(mean, std)
    low, high = normal.cdf(0.0), normal.cdf(1.0)
    u = low + uniform_draws(seed, count, "flip rates") * (high - low)
    u = np.clip(u, 1e-300, 1.0 - 2.0**-53)  # inv_cdf takes the open interval only
    return np.clip([normal.inv_cdf(p) for p in u.tolist()], 0.0, 1.0)


def _as_features(batch: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    array = np.asarray(batch)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise ValueError(f"inputs must be numbers; got dtype {array.dtype}. Encode text first.")
    features = array.reshape(len(rows), -1).astype(np.float64)
    if array.dtype == np.uint8:
        features /= 255.0
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if bad.size:
        raise ValueError(f"inputs must be finite; row {rows[bad[0]]} is not. Fill or drop it.")
    return features


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
