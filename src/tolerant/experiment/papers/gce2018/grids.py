"""The experiments of Zhang & Sabuncu 2018, section 4, as grids; what it leaves open is in `CHOICES`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tolerant.experiment.spec import RunSpec
from tolerant.train import PruneSchedule, Recipe

Q = 0.7
PRUNE_EVERY, K = 10, 0.5
SGD = Recipe(
    epochs=120,
    batch_size=128,
    optimizer="sgd",
    lr=0.01,
    momentum=0.9,
    weight_decay=2e-4,
    milestones=(40, 80),
    lr_decay=0.1,
    augment="flip-crop",
    center="pixel",
    scale="unit",
    precision="bf16",
    validation_fraction=0.1,
    select="validation",
)
SGD_LONG = replace(SGD, epochs=150, milestones=(80, 120))
# p_y of right and wrong labels is a curve over all epochs in figure 1 (c).
ADAM = replace(SGD, optimizer="adam", lr=1e-3, weight_decay=0.0, milestones=(), score_every=1)
OPEN_SET = replace(SGD, epochs=100, lr=0.1, augment="none")

DATASETS: dict[str, dict[str, Any]] = {
    "fashion-mnist": {"model": "resnet18", "recipe": SGD},
    "cifar10": {"model": "resnet34", "recipe": SGD},
    "cifar100": {"model": "resnet34", "recipe": SGD_LONG},
}
RATES = {"uniform": (0.2, 0.4, 0.6, 0.8), "class-dependent": (0.1, 0.2, 0.3, 0.4)}
HUMAN = {"cifar10n-worse": "cifar10", "cifar10n-aggre": "cifar10", "cifar100n": "cifar100"}
METHODS: dict[str, dict[str, Any]] = {
    "cce": {"loss": "cce"},
    "mae": {"loss": "mae"},
    "forward-true": {"loss": "cce", "transition": "true"},
    "forward-estimated": {"loss": "cce", "transition": "estimated"},
    "lq": {"loss": "lq", "loss_args": {"q": Q}},
    "truncated-lq": {"loss": "lq", "loss_args": {"q": Q}, "prune": True},
}


def spec_of(
    method: str, *, recipe: Recipe, seed: int, prune_start: int | None = None, **values: Any
) -> RunSpec:
    """One spec of a method by its name in the paper's tables; it prunes from the first milestone on."""
    values |= METHODS[method]
    if values.pop("prune", False):
        values["prune"] = PruneSchedule(prune_start or recipe.milestones[0], PRUNE_EVERY, K)
    return RunSpec(recipe=replace(recipe, seed=seed), **values)


def table1(seeds: Iterable[int]) -> list[RunSpec]:
    """Closed-set noise: three data sets, two kinds of noise at four rates, six methods."""
    return [
        spec_of(method, dataset=dataset, noise=noise, noise_rate=rate, seed=seed, **preset)
        for seed in seeds
        for dataset, preset in DATASETS.items()
        for noise, rates in RATES.items()
        for rate in rates
        for method in METHODS
    ]


def table2(seeds: Iterable[int]) -> list[RunSpec]:
    """Open-set noise: CIFAR-100 pictures in CIFAR-10, and closed-set noise with the same CNN."""
    return [
        spec_of(
            method,
            dataset="cifar10",
            model="cnn8",
            model_args={"dense_l2": 0.01},
            noise=noise,
            noise_rate=0.4,
            prune_start=10,
            recipe=OPEN_SET,
            seed=seed,
        )
        for seed in seeds
        for noise in ("open-set", "uniform")
        for method in METHODS
        if method != "forward-estimated"
    ]


def figure1(seeds: Iterable[int]) -> list[RunSpec]:
    """CCE and MAE on clean data (a, b); CCE and L_q at uniform 0.4 (c)."""
    return [
        _adam(dataset, rate, {"loss": loss}, seed)
        for seed in seeds
        for dataset, rate, loss in (
            ("cifar10", 0.0, "cce"),
            ("cifar10", 0.0, "mae"),
            ("cifar100", 0.0, "cce"),
            ("cifar100", 0.0, "mae"),
            ("cifar10", 0.4, "cce"),
        )
    ] + [_adam("cifar10", 0.4, METHODS["lq"], seed) for seed in seeds]


def figure2(seeds: Iterable[int]) -> list[RunSpec]:
    """Six values of q at three rates; q = 0 is CCE, shared with figure 1."""
    return [
        _adam("cifar10", rate, {"loss": "lq", "loss_args": {"q": q}} if q else {"loss": "cce"}, seed)
        for seed in seeds
        for rate in (0.0, 0.2, 0.6)
        for q in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    ]


def cifar_n(seeds: Iterable[int]) -> list[RunSpec]:
    """Labels by people (Wei et al. 2022) under table 1's recipe; the paper has no such table."""
    return [
        spec_of(method, dataset=dataset, noise="human", seed=seed, **DATASETS[like])
        for seed in seeds
        for dataset, like in HUMAN.items()
        for method in ("cce", "lq", "truncated-lq")
    ]


def _adam(dataset: str, rate: float, loss: dict[str, Any], seed: int) -> RunSpec:
    return RunSpec(
        dataset=dataset,
        model="resnet34",
        noise="uniform" if rate else "none",
        noise_rate=rate,
        recipe=replace(ADAM, seed=seed),
        **loss,
    )
