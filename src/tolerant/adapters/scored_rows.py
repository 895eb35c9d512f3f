"""From the scores of one rank to a decision of all: what Lightning's and Transformers' callbacks share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from tolerant.train import Alternation

IGNORED = -100  # the losses' ignore_index, and what Transformers does not count: never scored, never pruned


def decide(
    alternation: Alternation,
    index: range,
    scored: Sequence[tuple[Tensor, Tensor]],
    *,
    epoch: int,
    speaks: bool,
) -> None:
    """Decide by this rank's rows ``index``; ``scored`` is p_y and whether a row has a label, by batch.

    Where the guards leave the round out, the rank that ``speaks`` warns.
    """
    # Nothing is scored where there are fewer rows than ranks.
    p_y, known = map(torch.cat, zip(*scored, strict=True)) if scored else (torch.empty(0), slice(0))
    mine = torch.arange(index.start, index.stop, index.step)[known]
    if alternation.decide(mine, p_y[known]) or not speaks:
        return
    warnings.warn(
        f"the round of pruning before epoch {epoch} is left out: it would prune more rows than "
        f"{alternation.guards} allows, and a model that doubts so many labels is too weak to judge. "
        "Prune later, lower k, or pass guards=None.",
        stacklevel=2,
    )
