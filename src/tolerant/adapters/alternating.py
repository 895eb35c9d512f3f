"""What the callbacks of Lightning and Transformers share: an alternation, driven by several ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from tolerant.train import Alternation, Pruner

IGNORED = -100  # the losses' ignore_index, and what Transformers does not count: never scored, never pruned


class Alternating:
    """A callback with an `Alternation`, told of each training's best epochs and scores."""

    alternation: Alternation

    @property
    def kept(self) -> Tensor:
        """bool [N], True trains; by position in the training data set."""
        return self.pruner.kept

    @property
    def pruner(self) -> Pruner:
        """The rows' p_y as last scored, and which of them are kept."""
        if self.alternation.pruner is None:
            raise RuntimeError("kept is known once training with a schedule has begun.")
        return self.alternation.pruner

    @property
    def best_epoch(self) -> int | None:
        """The epoch of the best value so far, counted from 0 (Transformers: epochs done)."""
        return self.alternation.best_epoch

    @property
    def best_value(self) -> float | None:
        """The best value on the noisy validation rows so far."""
        return self.alternation.best_value

    def decide(
        self, index: range, scored: Sequence[tuple[Tensor, Tensor]], *, epoch: int, speaks: bool
    ) -> None:
        """Decide by this rank's rows ``index``; ``scored`` is p_y and whether a row has a label, by batch.

        Where the guards leave the round out, the rank that ``speaks`` warns.
        """
        # Nothing is scored where there are fewer rows than ranks.
        p_y, known = map(torch.cat, zip(*scored, strict=True)) if scored else (torch.empty(0), slice(0))
        mine = torch.arange(index.start, index.stop, index.step)[known]
        if not self.alternation.decide(mine, p_y[known]) and speaks:
            warnings.warn(
                f"the round of pruning before epoch {epoch} is left out: it would prune more rows than "
                f"{self.alternation.guards} allows, and a model that doubts so many labels is too weak to "
                "judge. Prune later, lower k, or pass guards=None.",
                stacklevel=2,
            )
