"""The papers that can be reproduced: a folder each, found here by its card `PAPER`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from tolerant.experiment.paper import Experiment, Paper
from tolerant.hints import did_you_mean


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


def find(name: str) -> tuple[Paper, Experiment]:
    """The experiment of this name, and its paper.

    >>> find("tabel1")
    Traceback (most recent call last):
        ...
    ValueError: unknown experiment 'tabel1'. Did you mean 'table1'?
    """
    if name not in experiments():
        hint = did_you_mean(name, experiments()) or f"There are {', '.join(experiments())}."
        raise ValueError(f"unknown experiment {name!r}. {hint}")
    return experiments()[name]
