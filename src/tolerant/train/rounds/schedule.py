"""When to prune, and at which threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tolerant.checks import Domain, check_whole, unwrap_numbers

_K = Domain(0, 1, open_low=True, open_high=True, way_out="To train on all rows, do not prune.")


@dataclass(frozen=True)
class PruneSchedule:
    """Prune before epoch ``start_epoch`` and then every ``every`` epochs, at threshold ``k``.

    Epochs count from 0. The paper's CIFAR-10 runs train on all rows for 40 epochs (0 to 39), then
    prune every 10:

    >>> schedule = PruneSchedule(start_epoch=40, every=10, k=0.5)
    >>> [epoch for epoch in range(120) if schedule.due(epoch)]
    [40, 50, 60, 70, 80, 90, 100, 110]
    """

    start_epoch: int
    every: int
    k: float

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        check_whole(self.start_epoch, "start_epoch", least=0)
        check_whole(self.every, "every", least=1)
        check_k(self.k)

    def due(self, epoch: int) -> bool:
        """Whether to prune before ``epoch``, counted from 0."""
        return epoch >= self.start_epoch and (epoch - self.start_epoch) % self.every == 0


def check_k(k: float) -> None:
    """A threshold of pruning."""
    _K.check("k", k.item() if isinstance(k, Tensor | np.generic) else k)
