"""Every loss class by its name: it says its hyper-parameters with defaults and domains, and its paper."""

from __future__ import annotations

from typing import Any

from tolerant import plugins
from tolerant.hints import did_you_mean
from tolerant.losses import full_row, phi
from tolerant.losses.module import RobustLoss

# The named classes of the two modules, in their order.
REGISTRY: dict[str, type[RobustLoss]] = {
    loss.name: loss
    for place in (phi, full_row)
    for loss in vars(place).values()
    if isinstance(loss, type) and issubclass(loss, RobustLoss)
    if loss.__module__ == place.__name__ and "name" in vars(loss)
}


def loss_class(name: str) -> type[RobustLoss]:
    """The loss of this name: ours, or one that another package adds (`tolerant.plugins`)."""
    found = REGISTRY.get(name) or plugins.find("tolerant.losses", name, RobustLoss)
    if found is None:
        known = [*REGISTRY, *plugins.names("tolerant.losses")]
        rule = f"loss must be one of {', '.join(known)}; got {name!r}."
        raise ValueError(f"{rule} {did_you_mean(name, known)}".rstrip())
    return found


def make_loss(name: str, **options: Any) -> RobustLoss:
    """A loss module by its registry name.

    >>> make_loss("lq", q=0.5)
    LqLoss(q=0.5)
    >>> make_loss("lqq")
    Traceback (most recent call last):
    ValueError: loss must be one of cce, mae, lq, ...; got 'lqq'. Did you mean 'lq'?
    """
    return loss_class(name)(**options)
