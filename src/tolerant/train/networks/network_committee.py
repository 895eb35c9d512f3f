"""Several networks that learn side by side, several views of a picture, and what they predict together."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class NetworkCommittee(nn.Module):
    """Networks that train on the same batches and judge by the mean of their probabilities.

    In training its output is the logits of the first network for all rows, then those of the second, and so
    on; in eval mode one row of logits for each row, whose softmax is the mean. With ``mirror`` the mean is
    also over each picture and its mirror image, as `Recipe.mirror` says.
    """

    def __init__(self, networks: Iterable[nn.Module], *, mirror: bool = False) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.mirror = mirror

    def __len__(self) -> int:
        return len(self.networks)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return torch.cat([network(x) for network in self.networks])
        views = [x, x.flip(-1)] if self.mirror else [x]
        logits = [network(view) for view in views for network in self.networks]
        log_probs = torch.stack([torch.log_softmax(each.float(), 1) for each in logits])
        return torch.logsumexp(log_probs, 0)  # up to a constant
