"""Losses that tolerate wrong labels."""

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
