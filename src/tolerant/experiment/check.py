"""What no run could train, refused before the first run of a grid starts, not inside the hundredth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from tolerant.data import NoisyDataset
from tolerant.data.sources import NAMED
from tolerant.experiment.problem import MATRIX_NOISES, OUTSIDE
from tolerant.experiment.spec import RunSpec
from tolerant.train import Job

NOISES = ("none", "human", "open-set", *MATRIX_NOISES)
# Of the published data sets; of others it is not known before they are loaded.
TRAIN_ROWS = {"fashion-mnist": 60_000, "digits": 1_438}
TRAIN_ROWS |= {name: 50_000 for name in NAMED if name.startswith("cifar")}


def check(specs: Iterable[RunSpec]) -> None:
    """A ValueError for the first of the specs that cannot be trained, as far as can be told without the data.

    >>> from tolerant.experiment.grid import changed, digits
    >>> check(changed(spec, {"model.width": 8}) for spec in digits())
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
        _check_job(probe)


def _check_noise(spec: RunSpec) -> None:
    if spec.noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {spec.noise!r}.")
    if spec.noise in ("none", "human") and spec.noise_rate:
        raise ValueError(f"noise {spec.noise!r} has no rate: noise_rate must be 0; got {spec.noise_rate!r}.")
    if spec.noise == "open-set" and spec.dataset not in OUTSIDE:
        raise ValueError(f"noise 'open-set' must be on {', '.join(OUTSIDE)}; got dataset {spec.dataset!r}.")
    by_people = [name for name in TRAIN_ROWS if name.startswith(("cifar10n-", "cifar100n"))]
    if spec.dataset in by_people and spec.noise != "human":
        raise ValueError(
            f"noise must be 'human' on {spec.dataset!r}, whose labels are people's and partly wrong; got "
            f"{spec.noise!r}."
        )
    if spec.noise == "human" and spec.dataset in TRAIN_ROWS and spec.dataset not in by_people:
        raise ValueError(f"noise 'human' must be on {', '.join(by_people)}; got dataset {spec.dataset!r}.")
    if spec.noise == "human" and spec.transition == "true":
        raise ValueError("transition 'true' is not known for noise 'human'. Use transition='estimated'.")


def _check_job(spec: RunSpec) -> None:
    """By the job's own checks, with empty pictures and with weights that take no memory."""
    num_rows = TRAIN_ROWS.get(spec.dataset, 50_000)
    job = Job(
        dataset=NoisyDataset(
            np.broadcast_to(np.uint8(0), (num_rows, 32, 32, 3)),
            np.arange(num_rows) % 2,
            None,
            ("a", "b"),
            kind="image",
        ),
        model=spec.model,
        model_args=dict(spec.model_args),
        loss=spec.loss,
        loss_args=dict(spec.loss_args),
        recipe=spec.recipe,
        transition=None if spec.transition == "none" else np.eye(2),
    )
    try:
        if spec.dataset in TRAIN_ROWS:
            job.check(job.split()[0])
        job.build_loss()
        with torch.device("meta"):
            job.build_model()
    except TypeError as error:  # an option that the network or the loss does not have
        raise ValueError(str(error)) from error
