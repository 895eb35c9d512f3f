"""Grids by name, a part of a grid, a changed grid, and the runs a grid needs first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from tolerant.experiment.papers import find_experiment
from tolerant.experiment.spec import RunSpec
from tolerant.train import PruneSchedule, Recipe, Relabel, Round

When = TypeVar("When", PruneSchedule | None, Relabel | None)


def named_grid(name: str, seeds: Iterable[int] = (0,)) -> list[RunSpec]:
    """The runs of an experiment by its name: "digits", "table1", ...

    >>> len(named_grid("digits")), len(named_grid("table1"))
    (10, 144)
    """
    paper, experiment = find_experiment(name)
    return paper.specs(experiment, seeds)


def part(specs: Iterable[RunSpec], **wanted: Iterable[Any] | None) -> list[RunSpec]:
    """The specs whose attribute is among the wanted values; None wants all of them.

    >>> [spec.noise_rate for spec in part(named_grid("digits"), method=["cce"], noise_rate=[0.4])]
    [0.4]
    """
    specs = list(specs)
    for name, values in wanted.items():
        if values is None:
            continue
        known = list(dict.fromkeys(getattr(spec, name) for spec in specs))
        for value in (values := list(values)):
            if value not in known:
                choices = ", ".join(str(value) for value in known)
                raise ValueError(f"{name} must be among {choices} here; got {value!r}.")
        specs = [spec for spec in specs if getattr(spec, name) in values]
    return specs


def changed(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:
    """The spec with other values, which its protocol names: such rows never mix with others.

    Names are the recipe's, `noise`, `q`, `k`, `anchor_percentile`, and `model.OPTION`. `epochs` shrinks or
    stretches the whole schedule: milestones and pruning move along.

    >>> spec = changed(named_grid("digits")[0], {"epochs": 3})
    >>> spec.protocol, spec.recipe.milestones
    ('digits epochs=3', (2,))
    """
    if not changes:
        return spec
    known = {each.name for each in fields(Recipe)} - {"seed"}
    others = {"noise", "q", "k", "anchor_percentile"}
    for name in changes:
        if name not in known | others and not name.startswith("model."):
            names = ", ".join(sorted(known | others | {"model.OPTION"}))
            raise ValueError(f"a change must be one of {names}; got {name!r}.")
    words = ",".join(f"{name}={_word(changes[name])}" for name in sorted(changes))
    spec = replace(spec, protocol=f"{spec.protocol} {words}", noise=changes.get("noise", spec.noise))
    if "epochs" in changes:
        spec = _stretched(spec, replace(spec.recipe, epochs=changes["epochs"]).epochs)
    # All at once: validation_fraction=0 is refused without select="last".
    recipe = {name: value for name, value in changes.items() if name in known}
    options = {n.removeprefix("model."): v for n, v in changes.items() if n.startswith("model.")}
    spec = replace(
        spec, recipe=replace(spec.recipe, **recipe), model_args={**dict(spec.model_args), **options}
    )
    spec = replace(spec, rounds=tuple(_changed_round(each, changes) for each in spec.rounds))
    if "q" in changes and "q" in dict(spec.loss_args):
        spec = replace(spec, loss_args={**dict(spec.loss_args), "q": changes["q"]})
    if "k" in changes and spec.prune is not None:
        spec = replace(spec, prune=replace(spec.prune, k=changes["k"]))
    if spec.transition == "estimated":
        spec = replace(spec, anchor_percentile=changes.get("anchor_percentile", spec.anchor_percentile))
    return spec


def _changed_round(this: Round, changes: Mapping[str, Any]) -> Round:
    """What a round says itself, it says instead of the recipe, so that a change must reach it there."""
    own = {name: changes[name] for name in ("mixup", "augment", "average") if name in changes}
    this = replace(this, **{name: value for name, value in own.items() if getattr(this, name) is not None})
    if "q" in changes and "q" in dict(this.loss_args):
        this = replace(this, loss_args={**dict(this.loss_args), "q": changes["q"]})
    if "k" in changes and this.prune is not None:
        this = replace(this, prune=replace(this.prune, k=changes["k"]))
    return this


def _stretched(spec: RunSpec, epochs: int) -> RunSpec:
    share = epochs / spec.recipe.epochs
    stones = {max(1, round(stone * share)) for stone in spec.recipe.milestones}
    recipe = replace(spec.recipe, milestones=tuple(sorted(stones)))
    # By where each ends, so that they sum to what was asked for.
    ends = [0, *(round(end * share) for end in accumulate(each.epochs for each in spec.rounds))]
    lengths = [max(1, end - start) for start, end in pairwise(ends)]
    rounds = tuple(_stretched_round(*each, share) for each in zip(spec.rounds, lengths, strict=True))
    return replace(spec, recipe=recipe, prune=_stretched_schedule(spec.prune, share), rounds=rounds)


def _stretched_round(this: Round, epochs: int, share: float) -> Round:
    relabel = _stretched_schedule(this.relabel, share)
    if this.relabel is not None and this.relabel.start_epoch >= this.epochs:  # never within the round
        relabel = replace(this.relabel, start_epoch=epochs)
    return replace(this, epochs=epochs, prune=_stretched_schedule(this.prune, share), relabel=relabel)


def _stretched_schedule(when: When, share: float) -> When:
    if when is None:
        return None
    start, every = round(when.start_epoch * share), round(when.every * share)
    return replace(when, start_epoch=max(1, start), every=max(1, every))


def with_needs(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """The specs once each, every one after the run it needs."""
    found: dict[str, RunSpec] = {}
    for spec in specs:
        for each in (spec.needs, spec):
            if each is not None:
                found.setdefault(each.key, each)
    return list(found.values())


def _word(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
