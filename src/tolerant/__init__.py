"""Train classifiers on labels that are partly wrong, and find the wrong ones.

The losses load with torch alone; everything else loads on first use.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tolerant import functional as functional
from tolerant import losses as losses
from tolerant.losses import *  # noqa: F403

if TYPE_CHECKING:  # what loads on first use, for editors and type checkers
    from tolerant import data as data
    from tolerant import experiment as experiment
    from tolerant import noise as noise
    from tolerant import suspects as suspects
    from tolerant import theory as theory
    from tolerant import train as train
    from tolerant.adapters.sklearn import NoisyLabelClassifier as NoisyLabelClassifier
    from tolerant.suspects import find_suspects as find_suspects
    from tolerant.train import Pruner as Pruner
    from tolerant.train import PruneSchedule as PruneSchedule
    from tolerant.train import Relabel as Relabel
    from tolerant.train import Round as Round
else:  # which type checkers would take for a promise of any name

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'tolerant' has no attribute {name!r}")
        if name == "NoisyLabelClassifier":
            from tolerant.extras import extra

            extra("sklearn")  # or the message would not say what to install
        module = importlib.import_module(_LAZY[name])
        return getattr(module, name, module)


__version__ = "0.1.0"

# Public name -> the module it comes from, or is.
_LAZY = {
    "Pruner": "tolerant.train",
    "PruneSchedule": "tolerant.train",
    "Relabel": "tolerant.train",
    "Round": "tolerant.train",
    "NoisyLabelClassifier": "tolerant.adapters.sklearn",
    "find_suspects": "tolerant.suspects",
    "data": "tolerant.data",
    "noise": "tolerant.noise",
    "experiment": "tolerant.experiment",
    "suspects": "tolerant.suspects",
    "theory": "tolerant.theory",
    "train": "tolerant.train",
}

# What cannot load is not listed, or `help(tolerant)` and `import *` would fail; asked for, it says why.
_LISTED = [name for name in _LAZY if name != "NoisyLabelClassifier" or find_spec("sklearn")]

# No assignment, as in `tolerant.losses`: type checkers would take all names for private.
globals()["__all__"] = [*vars(losses)["__all__"], "functional", *_LISTED]


def __dir__() -> list[str]:
    return sorted([*globals(), *_LISTED])
