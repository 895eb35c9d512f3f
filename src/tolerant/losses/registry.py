"""Every loss by name: its module, its hyper-parameters with defaults and domains, limits, paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tolerant.hints import did_you_mean
from tolerant.losses import full_row, phi
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

    @classmethod
    def of(cls, loss: type[RobustLoss]) -> LossInfo:
        """The row of a loss class, which says all of it."""
        return cls(loss.name, loss, loss.defaults, loss.domains, loss.limits, loss.paper)

    @property
    def is_phi(self) -> bool:
        """Whether the loss is a function of p_y alone."""
        return issubclass(self.module, PhiLoss)


# The named classes of the two modules, in their order.
REGISTRY: dict[str, LossInfo] = {
    loss.name: LossInfo.of(loss)
    for place in (phi, full_row)
    for loss in vars(place).values()
    if isinstance(loss, type) and issubclass(loss, RobustLoss)
    if loss.__module__ == place.__name__ and "name" in vars(loss)
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
