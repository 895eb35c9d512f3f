"""From a spec to the rows it trains on: the data set, its noise, the true transition matrix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tolerant.data import NoisyDataset, load
from tolerant.experiment.spec import RunSpec
from tolerant.noise import corrupt, make_transition, replace_inputs

OUTSIDE = {"cifar10": "cifar100"}  # whose pictures are the outside ones of open-set noise
CLASS_DEPENDENT = {"cifar10": "class-map", "fashion-mnist": "class-map"}  # others: circular
MATRIX_NOISES = ("uniform", "symmetric", "class-dependent")


@dataclass(frozen=True)
class Problem:
    """What a run is given. `transition` is the truth, known only because the noise was made."""

    train: NoisyDataset
    test: NoisyDataset
    transition: NDArray[np.float64] | None
    realised_noise_rate: float | None  # None: nobody knows the true labels


def make_problem(spec: RunSpec) -> Problem:
    """The noisy training rows and the clean test rows of a spec, the same on every machine."""
    test = _load(spec.dataset, "test")
    clean = _load(spec.dataset, "train")
    if spec.noise == "none":
        return Problem(clean, test, np.eye(clean.num_classes), 0.0)
    if spec.noise == "human":  # CIFAR-N: the given labels are people's, wrong ones included
        known = clean.true_labels is not None
        return Problem(clean, test, None, float(clean.flipped.mean()) if known else None)
    if spec.noise == "open-set":
        return _open_set(spec, clean, test)
    kind = spec.noise
    if kind == "class-dependent":
        kind = CLASS_DEPENDENT.get(spec.dataset, "circular")
    matrix = make_transition(kind, spec.noise_rate, clean.class_names)
    drawn = corrupt(clean.given_labels, matrix, seed=spec.seed, kind=kind, rate=spec.noise_rate)
    noisy = clean.with_given_labels(drawn.given_labels)
    return Problem(noisy, test, matrix, drawn.realised_noise_rate)


def find_data(specs: Iterable[RunSpec]) -> None:
    """Load the data sets of the specs, so that a missing one is reported before any run has started."""
    for spec in specs:
        for dataset in (spec.dataset, *([OUTSIDE[spec.dataset]] if spec.noise == "open-set" else [])):
            for split in ("train", "test"):
                _load(dataset, split)


def _open_set(spec: RunSpec, clean: NoisyDataset, test: NoisyDataset) -> Problem:
    mixed = replace_inputs(
        clean.inputs,
        clean.given_labels,
        _load(OUTSIDE[spec.dataset], "train").inputs,
        spec.noise_rate,
        num_classes=clean.num_classes,
        seed=spec.seed,
    )
    noisy = replace(clean, inputs=mixed.inputs, true_labels=mixed.true_labels)
    # An outside picture's label is a draw from all classes, so the matrix is uniform noise's.
    matrix = make_transition("uniform", spec.noise_rate, clean.class_names)
    return Problem(noisy, test, matrix, mixed.realised_noise_rate)


@lru_cache(maxsize=6)  # the runs of a grid share their clean rows
def _load(dataset: str, split: str) -> NoisyDataset:
    return load(dataset, split=split)
