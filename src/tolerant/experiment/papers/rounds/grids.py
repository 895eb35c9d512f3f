"""The package's own method on CIFAR, and the same without one of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from tolerant.data import CARDS
from tolerant.experiment.spec import RunSpec
from tolerant.theory import choose_q
from tolerant.train import PruneSchedule, Recipe, Relabel, Round
from tolerant.train.rounds.round import taught

RECIPE = Recipe(
    epochs=1,  # the rounds say how many
    batch_size=512,
    lr=0.2,
    momentum=0.9,
    nesterov=True,
    weight_decay=5e-4,
    decay_on="matrices",
    schedule="cosine",
    warm_up=0.15,
    milestones=(),
    augment="flip-crop",
    mirror=True,
    center="channel",
    scale="std",
    average=0.998,
    precision="bf16",
    validation_fraction=0.0,
    select="last",
    score_every=0,
    test_every=10,
)
# Three short rounds before the long one: where labels are hard to tell (uniform 0.8, class-dependent) each
# finds more of them than the one before; elsewhere they cost little (results/bench/relabel_rounds.jsonl;
# CIFAR-100N 0.8 points, before the long one).
EPOCHS, NETWORKS = (20, 30, 30, 30, 60), 2
COLUMNS = (
    ("cifar10n-worse", "human", 0.0),
    ("cifar10n-aggre", "human", 0.0),
    ("cifar10", "uniform", 0.4),
    ("cifar10", "uniform", 0.8),
    ("cifar10", "class-dependent", 0.4),
    ("cifar100n", "human", 0.0),
    ("cifar100", "uniform", 0.8),
    ("cifar10", "none", 0.0),
)
ABLATED = (("cifar10n-worse", "human", 0.0), ("cifar10", "uniform", 0.8))
# What is different about the rounds after the first.
WITHOUT: dict[str, dict[str, Any]] = {
    "mixup=0": {"mixup": 0.0},
    "mixup=1": {"mixup": 1.0},
    "relabel=none": {"relabel": None},
    "sure=0": {"sure": 0.0},
    "soft=false": {"soft": False},
    "networks=1": {"networks": 1},
    "augment=flip-crop": {"augment": "flip-crop"},
}


def rounds(seeds: Iterable[int]) -> list[RunSpec]:
    """Every column; where labels are right, cross entropy with the same recipe beside it."""
    seeds = list(seeds)
    clean = ("cifar10", "none", 0.0)
    plain = Round(epochs=sum(EPOCHS), augment="strong", networks=NETWORKS)
    return [
        *(_spec(column, method(column[0]), seed) for seed in seeds for column in COLUMNS),
        *(_spec(clean, (plain,), seed) for seed in seeds),
    ]


def rounds_before(seeds: Iterable[int]) -> list[RunSpec]:
    """The setting before: a round's own networks decide, too."""
    return [
        _spec(column, decided_within(method(column[0])), seed, of="rounds-before")
        for seed, column in product(seeds, COLUMNS)
    ]


def rounds_ablations(seeds: Iterable[int]) -> list[RunSpec]:
    """Two columns without one part each, and with pruning in the first round."""
    found = []
    for seed, column in product(seeds, ABLATED):
        first, *later = method(column[0])
        for change, values in WITHOUT.items():
            found.append(_spec(column, (first, *(_changed(each, values) for each in later)), seed, change))
        early = replace(first, prune=PruneSchedule(8, 4, 0.5))
        found.append(_spec(column, (early, *later), seed, "prune=8"))
    return found


def _changed(this: Round, values: dict[str, Any]) -> Round:
    """With these values, of the round or of its `Relabel`."""
    if values.keys() <= {"sure", "soft"}:
        return this if this.relabel is None else replace(this, relabel=replace(this.relabel, **values))
    return replace(this, **values)


def method(dataset: str, epochs: Sequence[int] = EPOCHS, networks: int = NETWORKS) -> tuple[Round, ...]:
    """The rounds of a data set; only q depends on it, by its number of classes.

    The last one alone augments strongly: a network that has to learn from pictures so distorted knows too
    little for too long to find out which labels are wrong, but learns more from those that are found. Blended
    rows, which keep the others from learning their own mistakes by heart, would be too much beside it: on
    right labels they cost 2.3 points (results/bench/recipe_h200.jsonl).
    """
    *others, last = taught(*epochs, q=choose_q(len(CARDS[dataset].class_names)), networks=networks)
    return *others, replace(last, augment="strong", mixup=0.0)


def decided_within(rounds: Sequence[Round]) -> tuple[Round, ...]:
    """The same, but a round's own networks decide as well, about eight times in its second half.

    In the first, with a high learning rate, a fresh network knows less than the one before.
    """
    return tuple(
        each if each.relabel is None else replace(each, relabel=_in_second_half(each.relabel, each.epochs))
        for each in rounds
    )


def _in_second_half(relabel: Relabel, epochs: int) -> Relabel:
    return replace(relabel, start_epoch=max(1, epochs // 2), every=max(1, epochs // 15))


def _spec(
    column: tuple[str, str, float], method: Sequence[Round], seed: int, change: str = "", of: str = "rounds"
) -> RunSpec:
    dataset, noise, rate = column
    recipe, protocol = replace(RECIPE, seed=seed), f"{of} {change}".rstrip()
    spec = {"dataset": dataset, "noise": noise, "noise_rate": rate, "protocol": protocol}
    return RunSpec(model="fast", rounds=tuple(method), recipe=recipe, **spec)  # type: ignore[arg-type]
