"""A network that others have trained, with a last layer for one's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tolerant.train.networks.layers import dropout_of

if TYPE_CHECKING:
    from tolerant.data.features.picture_networks import Body


class Pretrained(nn.Module):
    """Pixels of 0 to 1 (a recipe without centring) to logits.

    Of the body learns what requires a gradient. It computes as in prediction meanwhile: a few thousand
    pictures are too few for statistics of batch norm of their own.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, body: Body, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.frame = body.frame
        self.body = body.net.eval()
        example = torch.zeros(2, 3, body.frame.size, body.frame.size)
        with torch.no_grad():
            vectors = self._vectors(example)
        if vectors.ndim != 2:
            raise ValueError(
                f"{body.name} must give one vector for each picture, (n, D); it gives an array of shape "
                f"{tuple(vectors.shape)}. Choose a model that ends in a pooling layer."
            )
        dim = vectors.shape[1]
        self.register_buffer("centre", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))
        self.head = nn.Sequential(*dropout_of(dropout), nn.Linear(dim, num_classes))

    @property
    def last(self) -> nn.Linear:
        """The layer of one's own classes."""
        layer = self.head[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    @torch.no_grad()
    def start_from(self, plane: tuple[Tensor, Tensor], centre: Tensor, scale: Tensor) -> None:
        """Begin with these logits: features (n, D) times the first of the plane, (C, D), plus the second.

        The last layer sees features less ``centre`` and divided by ``scale``, so that one learning rate suits
        those of any body.
        """
        coef, intercept = plane
        self.centre.copy_(centre)
        self.scale.copy_(scale)
        self.last.weight.copy_(coef * scale)
        self.last.bias.copy_(intercept + coef @ centre)

    def forward(self, pixels: Tensor) -> Tensor:
        from tolerant.data.features.convolution import without_plans

        with without_plans(pixels):
            vectors = self._vectors(self.frame(255 * pixels.float()))
        logits: Tensor = self.head((vectors.float() - self.centre) / self.scale)
        return logits

    def train(self, mode: bool = True) -> Pretrained:
        super().train(mode)
        self.body.eval()
        return self

    def _vectors(self, pixels: Tensor) -> Tensor:
        from tolerant.data.features.picture_networks import as_vectors

        return as_vectors(self.body(pixels))
