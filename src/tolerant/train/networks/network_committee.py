"""Several networks that learn side by side, several views of a picture, and what they predict together."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Columns left and right, rows above and below, of zeros as where training crops; negative: what is cut off.
_ASIDE = ((-1, 1, -1, 1), (1, -1, 1, -1))


class NetworkCommittee(nn.Module):
    """Networks that train on the same batches and judge by the mean of their probabilities.

    In training its output is the logits of the first network for all rows, then those of the second, and so
    on; in eval mode one row of logits for each row, whose softmax is the mean. With ``mirror`` and ``shifts``
    the mean is also over views of each picture, as `Recipe.mirror` and `Recipe.shifts` say.
    """

    def __init__(self, networks: Iterable[nn.Module], *, mirror: bool = False, shifts: bool = False) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.mirror, self.shifts = mirror, shifts

    def __len__(self) -> int:
        return len(self.networks)

    @property
    def lr_scales(self) -> dict[str, float]:
        """The `lr_scales` of the members, for those that have some (`Pretrained`)."""
        members = ((place, getattr(each, "lr_scales", {})) for place, each in enumerate(self.networks))
        return {f"networks.{place}.{name}": scale for place, own in members for name, scale in own.items()}

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return torch.cat([network(x) for network in self.networks])
        views = [x, x.flip(-1)] if self.mirror else [x]
        if self.shifts:
            views += [F.pad(view, aside) for view in views for aside in _ASIDE]
        logits = [network(view) for view in views for network in self.networks]
        log_probs = torch.stack([torch.log_softmax(each.float(), 1) for each in logits])
        if self.shifts:
            log_probs[: len(log_probs) // 3] += math.log(2)  # as much as both others
        return torch.logsumexp(log_probs, 0)  # up to a constant
