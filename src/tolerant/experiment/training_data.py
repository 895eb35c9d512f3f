"""From a spec to what it trains on: the data set, its noise, the true transition matrix, and the job of it.

What no run could train is refused before the first run of a grid starts, not inside the hundredth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tolerant.data import CARDS, NoisyDataset, load
from tolerant.experiment.spec import RunSpec
from tolerant.noise import KINDS, OpenSet
from tolerant.train import Job
from tolerant.train.engine.check_job import check_job

# A spec has a rate, and its data set has inputs and may know outside ones; pairs and a matrix it cannot have.
NOISES = [kind.name for kind in KINDS.values() if {*kind.needs} <= {"rate", "inputs", "outside"}]


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


def job_of(spec: RunSpec, data: TrainingData, estimated: np.ndarray | None) -> Job:
    """What trains a spec; ``estimated`` is the matrix of the run it needs."""
    matrices = {"none": None, "true": data.transition, "estimated": estimated}
    return Job(
        dataset=data.train,
        test=data.test,
        model=spec.model,
        model_args=dict(spec.model_args),
        loss=spec.loss,
        loss_args=dict(spec.loss_args),
        transition=matrices[spec.transition],
        prune=spec.prune,
        rounds=spec.rounds,
        recipe=spec.recipe,
        name=spec.title(),
    )


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


def check_trainable(specs: Iterable[RunSpec]) -> None:
    """A ValueError for the first of the specs that cannot be trained, as far as can be told without the data.

    >>> from tolerant.experiment import changed, named_grid
    >>> check_trainable(changed(spec, {"model.width": 8}) for spec in named_grid("digits"))
    Traceback (most recent call last):
        ...
    ValueError: model 'mlp' has no option 'width'. It takes: init, hidden.
    """
    probes: dict[str, RunSpec] = {}
    for spec in specs:
        _check_noise(spec)
        # Noise, seed and the like change neither network nor loss: table 1's 144 runs are 15 of these.
        recipe = replace(spec.recipe, seed=0)
        probe = replace(spec, recipe=recipe, noise="none", noise_rate=0.0, prune=None, protocol="")
        probes.setdefault(repr(probe), probe)
    for probe in probes.values():
        _check_trainable(probe)


def train_rows(dataset: str) -> int | None:
    """How many rows a set trains on, by its card; None for other sets, which would have to be loaded."""
    return CARDS[dataset].train_rows if dataset in CARDS else None


def _check_noise(spec: RunSpec) -> None:
    if spec.noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {spec.noise!r}.")
    kind, card = KINDS[spec.noise], CARDS.get(spec.dataset)
    if "rate" not in kind.needs and spec.noise_rate:
        raise ValueError(f"noise {spec.noise!r} has no rate: noise_rate must be 0; got {spec.noise_rate!r}.")
    if "outside" in kind.needs:
        outside_of(spec)
    if card is not None and card.by_people and spec.noise != "human":
        raise ValueError(
            f"noise must be 'human' on {spec.dataset!r}, whose labels are people's and partly wrong; got "
            f"{spec.noise!r}."
        )
    if card is not None and not card.by_people and spec.noise == "human":
        by_people = ", ".join(card.name for card in CARDS.values() if card.by_people)
        raise ValueError(f"noise 'human' must be on {by_people}; got dataset {spec.dataset!r}.")
    if spec.transition == "true" and kind.matrix is None:
        raise ValueError(
            f"transition 'true' is not known for noise {spec.noise!r}. Use transition='estimated'."
        )
    if card is not None and card.class_names:
        try:
            kind.transition(card.class_names, rate=spec.noise_rate)
        except ValueError as error:
            raise ValueError(f"noise {spec.noise!r} on dataset {spec.dataset!r}: {error}") from error


def _check_trainable(spec: RunSpec) -> None:
    """Run the job's own checks, with rows and weights that take no memory."""
    known_rows = train_rows(spec.dataset)
    num_rows = known_rows or 50_000
    shape = (CARDS[spec.dataset].shape if spec.dataset in CARDS else None) or (32, 32, 3)
    table = len(shape) == 1
    inputs = np.broadcast_to(np.float32(0) if table else np.uint8(0), (num_rows, *shape))
    labels = np.arange(num_rows) % 2
    rows = NoisyDataset(inputs, labels, None, ("a", "b"), kind="table" if table else "image")
    job = job_of(spec, TrainingData(rows, rows, np.eye(2), None), np.eye(2))
    try:
        if known_rows:
            check_job(job, job.split()[0])
        job.build_loss()
        with torch.device("meta"):
            job.build_model()
    except TypeError as error:  # an option that the network or the loss does not have
        raise ValueError(str(error)) from error
