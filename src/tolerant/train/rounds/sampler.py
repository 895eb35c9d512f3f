"""The kept rows, in an order that pruning does not disturb, for a plain DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from tolerant.train.rounds.pruner_input import read_positions

if TYPE_CHECKING:
    from tolerant.train.rounds.pruner import Pruner

_BLOCK = 1 << 16  # positions turned into Python integers at once: 10^8 of them would take 3.6 GB


class KeptSampler(Sampler[int]):
    """Positions of the kept rows; made by :meth:`tolerant.Pruner.sampler`."""

    def __init__(
        self,
        pruner: Pruner,
        order: Sequence[int] | np.ndarray | Tensor | None,
        generator: torch.Generator | None,
        num_replicas: int,
        rank: int,
    ) -> None:
        if not 0 <= rank < num_replicas:
            raise ValueError(f"rank must be in 0 .. num_replicas - 1; got rank={rank!r}, {num_replicas=}.")
        if order is None and generator is None and num_replicas > 1:
            raise ValueError(
                "generator must be given when there are several ranks, seeded alike on every rank."
            )
        self._pruner = pruner
        self._order = None
        if order is not None:
            self._order = torch.tensor(read_positions("order", order, pruner.num_rows), device="cpu")
        self.generator = generator  # by this name Accelerate keeps the ranks' orders alike
        self._num_replicas, self._rank = num_replicas, rank

    def __len__(self) -> int:
        pruner, order = self._pruner, self._order
        num_kept = pruner.num_kept if order is None else int(pruner.kept[order].sum())
        return -(-num_kept // self._num_replicas)

    def __iter__(self) -> Iterator[int]:
        order = self._order
        if order is None:
            where = "cpu" if self.generator is None else self.generator.device
            order = torch.randperm(self._pruner.num_rows, generator=self.generator, device=where).cpu()
        order = order[self._pruner.kept[order]]
        if self._num_replicas > 1:
            # Ranks of unequal length hang in the first all-reduce the shorter ones miss, so the
            # order wraps around, as in torch's DistributedSampler.
            places = torch.arange(len(self), device="cpu") * self._num_replicas + self._rank
            order = order[places % max(1, len(order))]
        for block in order.split(_BLOCK):
            yield from block.tolist()
