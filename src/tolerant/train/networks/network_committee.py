"""Several networks that learn side by side and predict together."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class NetworkCommittee(nn.Module):
    """Networks that train on the same batches and judge by the mean of their probabilities.

    In training its output is the logits of the first network for all rows, then those of the second, and so
    on; in eval mode one row of logits for each row, whose softmax is the mean.
    """

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def __len__(self) -> int:
        return len(self.networks)

    def forward(self, x: Tensor) -> Tensor:
        logits = [network(x) for network in self.networks]
        if self.training:
            return torch.cat(logits)
        log_probs = torch.stack([torch.log_softmax(each.float(), 1) for each in logits])
        return torch.logsumexp(log_probs, 0)  # up to a constant
