"""Residual networks in their form for pictures of 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from tolerant.train.networks.layers import GlobalMean, dropout_of
from tolerant.train.networks.norm import BatchNorm
from tolerant.train.networks.overlap import Conv2d


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (He et al. 2016, basic block)."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm1 = BatchNorm(width)
        self.conv2 = Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = BatchNorm(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or width_in != width:
            self.shortcut = nn.Sequential(
                Conv2d(width_in, width, 1, stride, bias=False), BatchNorm(width, relu=False)
            )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x))), self.shortcut(x))
        return out


class ResNet(nn.Module):
    """ResNet in its 32 x 32 form: 3 x 3 stem, no max-pool; 11.2 M (18) and 21.3 M (34) weights."""

    def __init__(self, depths: Sequence[int], in_channels: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Sequential(Conv2d(in_channels, 64, 3, 1, 1, bias=False), BatchNorm(64))
        blocks: list[nn.Module] = []
        width_in = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for block in range(depth):
                blocks.append(_Block(width_in, width, 2 if stage and not block else 1))
                width_in = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(GlobalMean(), *dropout_of(dropout), nn.Linear(width_in, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
