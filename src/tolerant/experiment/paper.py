"""The numbers the paper prints, and the names its tables give to methods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a method on a data set at one noise, in per cent."""

    dataset: str
    noise: str
    rate: float
    method: str
    mean: float
    std: float | None  # table 2 prints none


@cache
def cells(table: str) -> tuple[Cell, ...]:
    """The cells of `table1` or `table2`, in the paper's order.

    >>> next(c for c in cells("table1") if c.dataset == "cifar10" and c.method == "lq")
    Cell(dataset='cifar10', noise='uniform', rate=0.2, method='lq', mean=89.83, std=0.2)
    """
    return tuple(Cell(**cell) for cell in _tables()[table]["cells"])


def runs(table: str, method: str) -> int | None:
    """How many runs stand behind a printed mean: five, as section 4 says of all experiments.

    None for a number of table 2 that the paper took from Wang et al. 2018.
    """
    of_table = _tables()[table]
    value: int = of_table["runs"]
    return None if method in of_table.get("copied", ()) else value


def method(spec: Mapping[str, Any]) -> str:
    """The tables' name for what a stored spec did.

    The paper trains its truncated loss as L_q on the kept rows (algorithm 1); the truncated
    loss itself, without pruning, is another method.

    >>> method({"loss": "lq", "transition": "none", "prune": {"k": 0.5}})
    'truncated-lq'
    >>> method({"loss": "cce", "transition": "estimated", "prune": None})
    'forward-estimated'
    >>> method({"loss": "truncated-lq", "transition": "none", "prune": None})
    'truncated-lq-direct'
    """
    name: str = spec["loss"]
    if spec["prune"]:
        name = "truncated-lq" if name == "lq" else f"{name}+pruning"
    elif name == "truncated-lq":
        name = "truncated-lq-direct"
    if spec["transition"] != "none":
        forward = f"forward-{spec['transition']}"
        name = forward if name == "cce" else f"{name}+{forward}"
    return name


@cache
def _tables() -> dict[str, Any]:
    text = files("tolerant.experiment").joinpath("gce2018_paper.json").read_text("utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables
