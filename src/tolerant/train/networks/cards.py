"""The networks by name, a function and a card for each; any other ``nn.Module`` trains too.

A function is called with the shape of a row, (channels, height, width) or (columns,), the number of classes
and the dropout rate. Its keyword-only arguments are the network's own options; the first line of its
docstring says what the network is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from torch import nn

from tolerant.checks import check_whole, is_whole
from tolerant.train.networks.layers import Flatten, GlobalMean, PenalizedLinear, dropout_of
from tolerant.train.networks.norm import BatchNorm, NormPool
from tolerant.train.networks.overlap import Conv2d
from tolerant.train.networks.resnet import ResNet

Kind = Literal["image", "table"]  # of a data set
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A network by name: what it is made by, and of which data."""

    name: str
    make: Callable[..., nn.Module]
    takes: tuple[Kind, ...]
    """The kinds of data sets whose rows it reads."""
    least_side: int
    """Pixels that the smaller side of a picture must have."""

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        return (self.make.__doc__ or "").partition("\n")[0]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of its own arguments, for ``build`` and ``model_args``."""
        parameters = inspect.signature(self.make).parameters.values()
        return tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)


NETWORKS: dict[str, Network] = {}


def _network(
    name: str, *, takes: tuple[Kind, ...], least_side: int = 1
) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Put the function that follows on a card of this name."""

    def add(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        NETWORKS[name] = Network(name, make, takes, least_side)
        return make

    return add


@_network("mlp", takes=("table", "image"))
def mlp(shape: Shape, num_classes: int, dropout: float, *, hidden: Sequence[int] = (256, 256)) -> nn.Module:
    """Dense layers with ReLU, for tables; pictures are flattened. Without a hidden layer inputs drop out."""
    sizes = hidden if isinstance(hidden, Iterable) and not isinstance(hidden, str) else [0]
    if not all(is_whole(width) and width >= 1 for width in sizes):
        raise ValueError(f"hidden must be widths of 1 or more, as in (256, 256); got {hidden!r}.")
    layers: list[nn.Module] = [Flatten(), *([] if hidden else dropout_of(dropout))]
    num_features = math.prod(shape)
    for width in hidden:
        layers += [nn.Linear(num_features, width), nn.ReLU(inplace=True), *dropout_of(dropout)]
        num_features = width
    return nn.Sequential(*layers, nn.Linear(num_features, num_classes))


@_network("small-cnn", takes=("image",), least_side=8)
def small_cnn(shape: Shape, num_classes: int, dropout: float, *, width: int = 32) -> nn.Module:
    """Three convolutions with pooling: about 11 M multiplications an image, for a CPU."""
    check_whole(width, "width", least=1)
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
        NormPool(width),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        NormPool(2 * width),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
        BatchNorm(4 * width),
        GlobalMean(),
        *dropout_of(dropout),
        nn.Linear(4 * width, num_classes),
    )


DenseEnd = Literal["norm-relu", "relu", "linear"]


@_network("cnn8", takes=("image",), least_side=8)
def cnn8(
    shape: Shape,
    num_classes: int,
    dropout: float,
    *,
    dense: DenseEnd = "norm-relu",
    dense_l2: float = 0.0,
) -> nn.Module:
    """The 8-layer network of the paper's table 2: six convolutions, a dense layer of 256, the output.

    ``dense`` is what follows the dense layer. Wang et al.'s public code has nothing there: "linear".
    ``dense_l2`` is the dense layer's own penalty, which multiplies the squared norm of its weights.
    """
    if dense not in get_args(DenseEnd):
        raise ValueError(f"dense must be one of {', '.join(get_args(DenseEnd))}; got {dense!r}.")
    if isinstance(dense_l2, bool) or not (isinstance(dense_l2, (int, float)) and 0 <= dense_l2 < math.inf):
        raise ValueError(f"dense_l2 must be a number of 0 or more; got {dense_l2!r}.")
    in_channels, height, width = shape
    layers: list[nn.Module] = []
    for before, after in ((in_channels, 64), (64, 128), (128, 196)):
        for channels in (before, after):
            layers += [Conv2d(channels, after, 3, padding=1, bias=False), BatchNorm(after)]
        layers.append(nn.MaxPool2d(2))
    linear: Callable[..., nn.Module] = partial(PenalizedLinear, l2=dense_l2) if dense_l2 else nn.Linear
    layers += [Flatten(), linear(196 * (height // 8) * (width // 8), 256, bias=dense != "norm-relu")]
    if dense == "norm-relu":
        layers.append(nn.BatchNorm1d(256))
    if dense != "linear":
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers, *dropout_of(dropout), nn.Linear(256, num_classes))


@_network("resnet18", takes=("image",), least_side=8)
def resnet18(shape: Shape, num_classes: int, dropout: float) -> nn.Module:
    """ResNet-18 in its 32 x 32 form, the paper's for Fashion-MNIST: 11.2 M weights."""
    return ResNet((2, 2, 2, 2), shape[0], num_classes, dropout)


@_network("resnet34", takes=("image",), least_side=8)
def resnet34(shape: Shape, num_classes: int, dropout: float) -> nn.Module:
    """ResNet-34 in its 32 x 32 form, the paper's for CIFAR: 21.3 M weights."""
    return ResNet((3, 4, 6, 3), shape[0], num_classes, dropout)
