"""A network that others have trained, with a last layer for one's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from tolerant.train.networks.layers import dropout_of

if TYPE_CHECKING:
    from tolerant.data.features.picture_networks import Body

Tune = Literal["head", "all"]
_BODY_LR = 0.1  # of the last layer's learning rate: what the body knows is worth keeping


class Pretrained(nn.Module):
    """Pixels of 0 to 1 (a recipe without centring) to logits.

    With ``tune="head"`` only the last layer learns, and the statistics of the body stay as they came.
    """

    def __init__(self, body: Body, num_classes: int, dropout: float, tune: Tune) -> None:
        super().__init__()
        if tune not in get_args(Tune):
            raise ValueError(f"tune must be 'head' or 'all'; got {tune!r}.")
        self.frame, self._frozen = body.frame, tune == "head"
        self.body = body.net.requires_grad_(not self._frozen)
        example = torch.zeros(2, 3, body.frame.size, body.frame.size)
        with torch.no_grad():
            vectors = self._vectors(example, body.net.eval())
        if vectors.ndim != 2:
            raise ValueError(
                f"{body.name} must give one vector for each picture, (n, D); it gives an array of shape "
                f"{tuple(vectors.shape)}. Choose a model that ends in a pooling layer."
            )
        dim = vectors.shape[1]
        scaled = nn.BatchNorm1d(dim, affine=False)  # one learning rate for bodies of any scale
        self.head = nn.Sequential(scaled, *dropout_of(dropout), nn.Linear(dim, num_classes))
        self.train()

    @property
    def lr_scales(self) -> dict[str, float]:
        """The factor on the learning rate of some parameters, by name; the others have the recipe's rate."""
        return {f"body.{name}": _BODY_LR for name, _ in self.body.named_parameters()}

    def forward(self, pixels: Tensor) -> Tensor:
        from tolerant.data.features.convolution import without_plans

        with without_plans(pixels):
            return self.head(self._vectors(self.frame(255 * pixels.float()), self.body))

    def train(self, mode: bool = True) -> Pretrained:
        super().train(mode)
        if self._frozen:
            self.body.eval()
        return self

    def _vectors(self, pixels: Tensor, body: nn.Module) -> Tensor:
        from tolerant.data.features.picture_networks import as_vectors

        return as_vectors(body(pixels))
