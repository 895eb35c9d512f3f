"""Experiments: what a run is, many of them, doing them, and the store of their rows.

The way of a run: a `RunSpec` says what to do (`spec`), a `grid` is a list of them, those of a paper in
`papers`. `run` does what is not stored yet (`execute`) on one of the `engines`: a process reserves a spec,
trains it (`one_run`), and adds its `row` to the `Store`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what loads on first use, for editors and type checkers
    from tolerant.experiment.engines.ray import Cluster
    from tolerant.experiment.execute import missing, run
    from tolerant.experiment.grid import changed, named_grid, part, with_needs
    from tolerant.experiment.spec import RunSpec
    from tolerant.experiment.store import Store

# By module. Reports read stored rows and the papers' cards, and must load no trainer.
_LAZY = {"engines.ray": ["Cluster"], "execute": ["missing", "run"], "spec": ["RunSpec"], "store": ["Store"]}
_LAZY |= {"grid": ["changed", "named_grid", "part", "with_needs"]}

__all__ = ["Cluster", "RunSpec", "Store", "changed", "missing", "named_grid", "part", "run", "with_needs"]


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
