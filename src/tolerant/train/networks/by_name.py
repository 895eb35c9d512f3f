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
from typing import Any, Literal, get_args

import torch
from torch import nn

from tolerant.checks import Domain, check_num_classes, check_whole, is_whole
from tolerant.hints import did_you_mean
from tolerant.train.model_state import seeded
from tolerant.train.networks.fast import FastNet
from tolerant.train.networks.layers import Flatten, GlobalMean, PenalizedLinear, dropout_of
from tolerant.train.networks.norm import BatchNorm, NormPool
from tolerant.train.networks.overlap import Conv2d
from tolerant.train.networks.pretrained import Pretrained
from tolerant.train.networks.resnet import ResNet

Kind = Literal["image", "table"]  # of a data set
Shape = tuple[int, ...]
Init = Literal["torch", "he", "glorot"]


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
    Domain(0).check("dense_l2", dense_l2)
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


@_network("pretrained", takes=("image",))
def pretrained(shape: Shape, num_classes: int, dropout: float, *, features: str = "lite0") -> nn.Module:
    """A network that others have trained, with a new last layer, for photographs.

    ``features`` is its name: lite0, timm:MODEL ...
    """
    from tolerant.data.features import load_body

    return Pretrained(load_body(features), num_classes, dropout)


@_network("fast", takes=("image",), least_side=8)
def fast(shape: Shape, num_classes: int, dropout: float, *, width: int = 128) -> nn.Module:
    """Wide and shallow with shortcuts, for small photographs in few epochs: 10 M weights."""
    check_whole(width, "width", least=1)
    return FastNet(width, shape[0], num_classes, dropout)


def input_size(kind: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """What `build` must be told of the rows: those of a data set of this kind, each of this shape.

    >>> input_size("image", (28, 28, 1)), input_size("table", (5,))
    ({'in_channels': 1, 'image_size': (28, 28)}, {'num_features': 5})
    """
    if kind == "image":
        return {"in_channels": shape[2], "image_size": shape[:2]}
    return {"num_features": shape[0]}


def build(
    name: str,
    /,
    num_classes: int,
    *,
    in_channels: int = 3,
    image_size: tuple[int, int] = (32, 32),
    num_features: int | None = None,
    dropout: float = 0.0,
    init: Init = "torch",
    seed: int = 0,
    **options: Any,
) -> nn.Module:
    """A network by name, its weights drawn from ``seed`` alone.

    ``init`` is torch's own, He normal for the convolutions, or Glorot uniform for all matrices, which is
    Keras's own. Batch norm makes the size of a weight matter only as the inverse of its learning rate: He's
    weights are 2.4 times as large, so they learn 6 times as slowly. With them CIFAR-10 at the paper's
    learning rate of 0.01 ended 1.7 to 9.6 points below the paper (results/ablations/he_init).

    ``num_features`` is for tables: their columns; without it rows are pictures. Further options are the
    network's own: ``NETWORKS[name].options``.

    >>> sum(p.numel() for p in build("resnet34", 10).parameters())
    21282122
    """
    card = NETWORKS.get(name)
    if card is None:
        rule = f"model must be one of {', '.join(NETWORKS)}; got {name!r}."
        raise ValueError(f"{rule} {did_you_mean(name, NETWORKS)}".rstrip())
    if init not in get_args(Init):
        raise ValueError(f"init must be 'torch', 'he' or 'glorot'; got {init!r}.")
    check_num_classes(num_classes)
    for option in options:
        if option not in card.options:
            known = ", ".join(["init", *card.options])
            raise TypeError(f"model {name!r} has no option {option!r}. It takes: {known}.")
    kind: Kind = "image" if num_features is None else "table"
    if kind not in card.takes:
        rows = "pictures" if num_features is None else f"rows of {num_features} features"
        takes = "tables" if kind == "image" else "pictures"
        others = " or ".join(repr(other) for other, its in NETWORKS.items() if kind in its.takes)
        raise ValueError(f"model {name!r} takes {takes}, not {rows}. Use {others}.")
    if num_features is None and min(image_size) < card.least_side:
        least = (card.least_side, card.least_side)
        raise ValueError(f"image_size must be at least {least} for {name!r}; got {image_size!r}.")
    shape = (in_channels, *image_size) if num_features is None else (num_features,)
    # On the CPU, whose generator has the seed, and in fp32, whatever torch's own defaults are.
    with seeded(seed), torch.device("cpu"):
        model = card.make(shape, num_classes, dropout, **options)
        for module in model.modules():
            if init == "he" and isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif init == "glorot" and isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(module.weight)
    return model.float()
