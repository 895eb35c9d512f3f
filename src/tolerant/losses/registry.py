"""Every loss by name: its module, its hyper-parameters with defaults and domains, limits, paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tolerant.hints import did_you_mean
from tolerant.losses import full_row, phi_losses
from tolerant.losses.domain import Domain
from tolerant.losses.module import PhiLoss, RobustLoss


@dataclass(frozen=True)
class LossInfo:
    """One row of the registry."""

    name: str
    module: type[RobustLoss]
    defaults: dict[str, Any]
    domains: dict[str, Domain]
    limits: str
    paper: str

    @property
    def is_phi(self) -> bool:
        """Whether the loss is a function of p_y alone."""
        return issubclass(self.module, PhiLoss)


def _info(loss: type[RobustLoss]) -> LossInfo:
    return LossInfo(loss.name, loss, loss.resolve(), loss.domains, loss.limits, loss.paper)


REGISTRY: dict[str, LossInfo] = {
    loss.name: _info(loss)
    for loss in (
        phi_losses.CCELoss,
        phi_losses.MAELoss,
        phi_losses.LqLoss,
        phi_losses.TruncatedLqLoss,
        phi_losses.FocalLoss,
        phi_losses.TaylorLoss,
        phi_losses.RCELoss,
        phi_losses.SCELoss,
        phi_losses.AGCELoss,
        phi_losses.AULLoss,
        phi_losses.AELLoss,
        phi_losses.PHuberLoss,
        phi_losses.JSLoss,
        full_row.NCELoss,
        full_row.NFLLoss,
        full_row.NGCELoss,
        full_row.GJSLoss,
        full_row.BootstrapLoss,
        full_row.HardBootstrapLoss,
    )
}


def loss_info(name: str) -> LossInfo:
    """The registry's row of this name."""
    if name not in REGISTRY:
        rule = f"loss must be one of {', '.join(REGISTRY)}; got {name!r}."
        raise ValueError(f"{rule} {did_you_mean(name, REGISTRY)}".rstrip())
    return REGISTRY[name]


def make_loss(name: str, **options: Any) -> RobustLoss:
    """A loss module by its registry name.

    >>> make_loss("lq", q=0.5)
    LqLoss(q=0.5)
    >>> make_loss("lqq")
    Traceback (most recent call last):
    ValueError: loss must be one of cce, mae, lq, ...; got 'lqq'. Did you mean 'lq'?
    """
    return loss_info(name).module(**options)
