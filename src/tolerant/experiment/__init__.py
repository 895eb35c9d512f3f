"""Experiments: what a run is, many of them, doing them, and the store of their rows.

The way of a run: a `RunSpec` says what to do (`spec`), a `grid` is a list of them, those of a paper in
`papers`. `run` does what is not stored yet (`execute`) on one of the `engines`: a process reserves a spec,
trains it (`one_run`), and adds its `row` to the `Store`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what loads on first use, for editors and type checkers
    from tolerant.experiment.engines.ray import Cluster as Cluster
    from tolerant.experiment.execute import missing as missing
    from tolerant.experiment.execute import run as run
    from tolerant.experiment.grid import changed as changed
    from tolerant.experiment.grid import named_grid as named_grid
    from tolerant.experiment.grid import part as part
    from tolerant.experiment.grid import with_needs as with_needs
    from tolerant.experiment.spec import RunSpec as RunSpec
    from tolerant.experiment.store import Store as Store

# Public name -> its module. Reports read stored rows and the papers' cards, and load no trainer.
_LAZY = {
    "Cluster": "tolerant.experiment.engines.ray",
    "RunSpec": "tolerant.experiment.spec",
    "Store": "tolerant.experiment.store",
    "changed": "tolerant.experiment.grid",
    "missing": "tolerant.experiment.execute",
    "named_grid": "tolerant.experiment.grid",
    "part": "tolerant.experiment.grid",
    "run": "tolerant.experiment.execute",
    "with_needs": "tolerant.experiment.grid",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tolerant.experiment' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
