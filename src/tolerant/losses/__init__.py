"""Losses that tolerate wrong labels.

From the bottom up: `log_prob` computes log p_y and its gradient, `phi` has one function for each loss of it,
`reduction` applies weights and takes the mean, `module` makes torch modules of all that. `phi_losses` and
`full_row` are those modules, `registry` lists them by name, `combine` makes losses of losses.

The plain path is the reference. `fused` (and `small`, for small batches) is faster on a CPU, `triton_loss` on
a GPU: it calls `triton_launch`, which starts the kernels of `triton_rows`. `linear` is the last layer and the
loss in one.
"""

from tolerant.losses.binary import BinaryLqLoss
from tolerant.losses.combine import BackwardCorrected, ForwardCorrected, SumLoss
from tolerant.losses.full_row import BootstrapLoss, GJSLoss, HardBootstrapLoss, NCELoss, NFLLoss, NGCELoss
from tolerant.losses.linear import LinearLqLoss
from tolerant.losses.phi_losses import (
    AELLoss,
    AGCELoss,
    AULLoss,
    CCELoss,
    FocalLoss,
    JSLoss,
    LqLoss,
    MAELoss,
    PHuberLoss,
    RCELoss,
    SCELoss,
    TaylorLoss,
    TruncatedLqLoss,
)
from tolerant.losses.registry import REGISTRY, make_loss

__all__ = [
    "REGISTRY",
    "AELLoss",
    "AGCELoss",
    "AULLoss",
    "BackwardCorrected",
    "BinaryLqLoss",
    "BootstrapLoss",
    "CCELoss",
    "FocalLoss",
    "ForwardCorrected",
    "GJSLoss",
    "HardBootstrapLoss",
    "JSLoss",
    "LinearLqLoss",
    "LqLoss",
    "MAELoss",
    "NCELoss",
    "NFLLoss",
    "NGCELoss",
    "PHuberLoss",
    "RCELoss",
    "SCELoss",
    "SumLoss",
    "TaylorLoss",
    "TruncatedLqLoss",
    "make_loss",
]
