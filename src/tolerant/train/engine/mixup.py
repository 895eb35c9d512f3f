"""Mixup: each row of a batch is blended with another, inputs and labels alike (Zhang et al. 2018).

A network that sees no row twice in the same blend cannot learn single labels by heart, which keeps one that
trains on labels of its own from confirming itself.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def draw_shares(num_rows: int, alpha: float, generator: torch.Generator) -> Tensor:
    """float32 [N] in [0, 1], of Beta(alpha, alpha): how much of a blend is the row itself."""
    seed = int(torch.randint(2**62, (1,), generator=generator))  # torch's own Beta takes no generator
    return torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, num_rows).astype(np.float32))


def blend(x: Tensor, share: Tensor) -> Tensor:
    """Each row with the one as far from the batch's other end: in a random order, with any.

    >>> blend(torch.tensor([[0.0], [4.0], [8.0]]), torch.tensor([1.0, 0.5, 0.25])).flatten().tolist()
    [0.0, 4.0, 2.0]
    """
    # In fp32, whatever x is: shares rounded to bf16 would blend inputs otherwise than labels.
    share = share.view(-1, *[1] * (x.ndim - 1))
    return (share * x + (1 - share) * x.flip(0)).to(x.dtype)


def blend_labels(
    labels: Tensor, weight: Tensor | None, share: Tensor, num_classes: int
) -> tuple[Tensor, Tensor | None]:
    """Labels (B, C) of blended rows, and how much each counts.

    A row of weight 0 is in the inputs of a blend, but not in its labels.

    >>> rows, weight, share = torch.tensor([0, 1]), torch.tensor([1.0, 0.0]), torch.tensor([0.75, 0.5])
    >>> labels, weight = blend_labels(rows, weight, share, num_classes=2)
    >>> labels.tolist(), weight.tolist()
    ([[1.0, 0.0], [1.0, 0.0]], [0.75, 0.5])
    """
    labels = one_hot(labels, num_classes) if labels.ndim == 1 else labels
    if weight is None:
        return blend(labels, share), None
    total = blend(weight, share)
    return blend(labels * weight[:, None], share) / total.clamp_min(1e-9)[:, None], total


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """float32 (N, C), without the look at the labels that torch's own takes."""
    zeros = torch.zeros(len(labels), num_classes, device=labels.device)
    return zeros.scatter_(1, labels[:, None], 1.0)
