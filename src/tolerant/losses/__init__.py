"""Losses that tolerate wrong labels: what they are. How they are computed is `tolerant.kernels`.

`phi` holds the losses of p_y alone, `full_row` the others: one class each, and its function. `module` is what
they share, `declaration` reads their arguments, `reduction` makes rows of a call, weighs them and takes the
mean. `registry` lists the losses by name, `combine` makes losses of losses, `binary` and `linear` serve other
heads.
"""

from tolerant.checks import Domain as Domain
from tolerant.losses.binary import BinaryLqLoss as BinaryLqLoss
from tolerant.losses.combine import BackwardCorrected as BackwardCorrected
from tolerant.losses.combine import ForwardCorrected as ForwardCorrected
from tolerant.losses.combine import SumLoss as SumLoss
from tolerant.losses.declaration import Common as Common
from tolerant.losses.full_row import *  # noqa: F403
from tolerant.losses.linear import LinearLqLoss as LinearLqLoss
from tolerant.losses.module import PhiLoss as PhiLoss
from tolerant.losses.phi import *  # noqa: F403
from tolerant.losses.registry import REGISTRY as REGISTRY
from tolerant.losses.registry import make_loss as make_loss

# Not `__all__ = ...`: type checkers cannot follow a computed list, and would take every name for private.
globals()["__all__"] = [
    *[
        "BackwardCorrected",
        "BinaryLqLoss",
        "Domain",
        "ForwardCorrected",
        "LinearLqLoss",
        "PhiLoss",
        "SumLoss",
    ],
    *["REGISTRY", "make_loss", *(loss.__name__ for loss in REGISTRY.values())],
]
