"""The papers that can be reproduced: a folder each, whose `__init__` holds its card `PAPER`.

A card says all that is known of a paper without the trainer, since reports read it, too: its experiments, how
it calls its methods, what it leaves open. Beside it lie `grids.py`, a function of seeds for each experiment,
and `published.json`, the numbers that the paper prints.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from tolerant.experiment.names import changed_protocol
from tolerant.hints import did_you_mean

if TYPE_CHECKING:
    from tolerant.experiment.spec import RunSpec

Rule = Literal["noisy_validation", "last_epoch", "best_test"]


@dataclass(frozen=True)
class Published:
    """One number that a paper prints: a method on a data set at one noise, in per cent."""

    dataset: str
    noise: str
    rate: float
    method: str
    mean: float
    std: float | None  # some tables print none
    runs: int | None
    """How many stand behind the mean; None where the paper took it from others, who do not say."""


@dataclass(frozen=True)
class Experiment:
    """A grid of runs under one protocol: the function of this name in the paper's `grids.py`."""

    name: str
    title: str
    """As captions call it: "Table 1"."""
    rule: Rule = "noisy_validation"
    """Which epoch's accuracy the paper prints."""
    protocol: str | None = None
    """What its specs and stored rows carry; by default PAPER-NAME. Experiments that share it share runs."""


@dataclass(frozen=True)
class Paper:
    """What can be reproduced of a paper."""

    package: str
    """Its folder: `__name__`."""
    title: str
    experiments: tuple[Experiment, ...]
    methods: Mapping[str, str] = field(default_factory=dict)
    """Name -> title in its tables, in their order."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Where the paper is silent or can be read two ways: what is done here, and why."""
    computed: tuple[str, ...] = ()
    """Modules of the folder whose `tables()` is text that needs no run."""
    short_names: bool = False
    """On the command line `table1` instead of PAPER-table1."""

    @property
    def name(self) -> str:
        return self.package.rpartition(".")[2]

    def called(self, name: str) -> str:
        """An experiment's name on the command line."""
        return name if self.short_names else f"{self.name}-{name}"

    def protocol(self, experiment: Experiment) -> str:
        return experiment.protocol or f"{self.name}-{experiment.name}"

    def specs(self, experiment: Experiment, seeds: Iterable[int] = (0,)) -> list[RunSpec]:
        """The runs of an experiment; one that a grid has changed (an ablation) names that in its protocol."""
        grids = import_module(f"{self.package}.grids")
        make = getattr(grids, experiment.name.replace("-", "_"))
        protocol = self.protocol(experiment)
        return [replace(spec, protocol=changed_protocol(protocol, spec.protocol)) for spec in make(seeds)]

    def compute(self, name: str) -> str:
        """The text of what is computed and not run."""
        text: str = import_module(f"{self.package}.{name}").tables()
        return text

    def published(self, experiment: Experiment) -> tuple[Published, ...]:
        """The numbers printed for an experiment, in the paper's order; none where it prints none."""
        printed = _published(self.package).get(experiment.name, {"cells": ()})
        copied = printed.get("copied", ())
        return tuple(
            Published(**cell, runs=None if cell["method"] in copied else printed["runs"])
            for cell in printed["cells"]
        )


@cache
def _published(package: str) -> dict[str, Any]:
    path = files(package).joinpath("published.json")
    published: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return published


@cache
def papers() -> tuple[Paper, ...]:
    """The cards, by the names of their folders.

    >>> "gce2018" in [paper.name for paper in papers()]
    True
    """
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(import_module(f"{__name__}.{name}").PAPER for name in found)


@cache
def experiments() -> dict[str, tuple[Paper, Experiment]]:
    """All that is run, by its name on the command line.

    >>> paper, experiment = experiments()["table1"]
    >>> paper.protocol(experiment)
    'gce2018-table1'
    """
    return {paper.called(each.name): (paper, each) for paper in papers() for each in paper.experiments}


def computed() -> dict[str, tuple[Paper, str]]:
    """All that is computed and not run, by its name on the command line."""
    return {paper.called(name): (paper, name) for paper in papers() for name in paper.computed}


def find_experiment(name: str) -> tuple[Paper, Experiment]:
    """The experiment of this name, and its paper.

    >>> find_experiment("tabel1")
    Traceback (most recent call last):
        ...
    ValueError: unknown experiment 'tabel1'. Did you mean 'table1'?
    """
    if name not in experiments():
        hint = did_you_mean(name, experiments()) or f"There are {', '.join(experiments())}."
        raise ValueError(f"unknown experiment {name!r}. {hint}")
    return experiments()[name]
