"""From a spec to what it trains on: the data set, its noise, the true transition matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolerant.data import CARDS, NoisyDataset, load
from tolerant.experiment.spec import RunSpec
from tolerant.noise import KINDS, OpenSet


@dataclass(frozen=True)
class TrainingData:
    """What a run is given. `transition` is the truth, known only because the noise was made."""

    train: NoisyDataset
    test: NoisyDataset
    transition: NDArray[np.float64] | None
    realised_noise_rate: float | None  # None: nobody knows the true labels


def training_data(spec: RunSpec) -> TrainingData:
    """The noisy training rows and the clean test rows of a spec, the same on every machine."""
    test = _load(spec.dataset, "test")
    clean = _load(spec.dataset, "train")
    if spec.noise == "human":  # the given labels are people's, wrong ones included
        known = clean.true_labels is not None
        return TrainingData(clean, test, None, float(clean.flipped.mean()) if known else None)
    kind, class_names = KINDS[spec.noise], clean.class_names
    offered: dict[str, Callable[[], Any]] = {
        "rate": lambda: spec.noise_rate,
        "inputs": lambda: clean.inputs,
        "outside": lambda: _load(outside_of(spec), "train").inputs,
    }
    given = {name: offered[name]() for name in kind.needs}
    drawn = kind.draw(clean.given_labels, class_names, seed=spec.seed, **given)
    noisy = clean.with_given_labels(drawn.given_labels)
    if isinstance(drawn, OpenSet):
        noisy = replace(clean, inputs=drawn.inputs, true_labels=drawn.true_labels)
    return TrainingData(noisy, test, kind.transition(class_names, **given), drawn.realised_noise_rate)


def load_all(specs: Iterable[RunSpec]) -> None:
    """Load the data sets of the specs, so that a missing one is reported before any run has started."""
    for spec in specs:
        outside = [outside_of(spec)] if "outside" in KINDS[spec.noise].needs else []
        for dataset in (spec.dataset, *outside):
            for split in ("train", "test"):
                _load(dataset, split)


def outside_of(spec: RunSpec) -> str:
    """The data set whose pictures replace those of this one."""
    outside = CARDS[spec.dataset].outside if spec.dataset in CARDS else None
    if outside is None:
        known = [card.name for card in CARDS.values() if card.outside]
        raise ValueError(f"noise {spec.noise!r} must be on {', '.join(known)}; got dataset {spec.dataset!r}.")
    return outside


@lru_cache(maxsize=6)  # the runs of a grid share their clean rows
def _load(dataset: str, split: str) -> NoisyDataset:
    return load(dataset, split=split)
