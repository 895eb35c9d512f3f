"""The methods of Zhang & Sabuncu 2018 with a small MLP."""

from __future__ import annotations

from collections.abc import Iterable

from tolerant.experiment.papers.gce2018.grids import spec_of
from tolerant.experiment.spec import RunSpec
from tolerant.train import Recipe

RECIPE = Recipe(
    epochs=8,
    batch_size=64,
    lr=0.5,
    weight_decay=2e-4,
    milestones=(6,),
    augment="none",
    scale="unit",
    precision="fp32",
    score_every=1,
)


def digits(seeds: Iterable[int]) -> list[RunSpec]:
    """Five methods at two rates of uniform noise."""
    return [
        spec_of(
            method,
            dataset="digits",
            model="mlp",
            model_args={"hidden": (64,)},
            noise="uniform",
            noise_rate=rate,
            prune_start=4,
            recipe=RECIPE,
            seed=seed,
        )
        for seed in seeds
        for rate in (0.2, 0.4)
        for method in ("cce", "forward-estimated", "mae", "lq", "truncated-lq")
    ]
