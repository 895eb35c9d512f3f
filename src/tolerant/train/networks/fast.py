"""A residual network that learns small photographs in few epochs."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from tolerant.train.networks.layers import dropout_of
from tolerant.train.networks.norm import BatchNorm
from tolerant.train.networks.overlap import Conv2d

_STEM = 24  # channels of the first layer
_LOGIT_SCALE = 0.25  # maxima over all places are large: at first no class must seem sure


class _Block(nn.Module):
    """A convolution and pooling, then two convolutions and a shortcut."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.conv1 = Conv2d(width_in, width, 3, 1, 1, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.norm1 = BatchNorm(width)  # after the pooling: of a quarter of the places
        self.conv2 = Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = BatchNorm(width)
        self.conv3 = Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm3 = BatchNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.pool(self.conv1(x)))
        out: Tensor = self.norm3(self.conv3(self.norm2(self.conv2(x))), x)
        return out


class FastNet(nn.Module):
    """Nine wide convolutions in three blocks, then the maximum of each channel (after Jordan 2024)."""

    def __init__(self, width: int, in_channels: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Sequential(Conv2d(in_channels, _STEM, 3, 1, 1, bias=False), BatchNorm(_STEM))
        widths = (_STEM, width, 3 * width, 4 * width)
        self.blocks = nn.Sequential(*(_Block(*pair) for pair in pairwise(widths)))
        self.dropout = nn.Sequential(*dropout_of(dropout))
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.dropout(self.blocks(self.stem(x)).amax((2, 3)))) * _LOGIT_SCALE
        return out
