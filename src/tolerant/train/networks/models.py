"""The networks of the paper, and two small ones for a CPU; any other ``nn.Module`` trains too."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tolerant.hints import did_you_mean
from tolerant.train.model_state import seeded
from tolerant.train.networks.norm import BatchNorm
from tolerant.train.networks.norm_pool import NormPool
from tolerant.train.networks.overlap import Conv2d


class _GlobalMean(nn.Module):
    """Mean over all places, in the order of channels-last memory: so its gradient is channels-last, too."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(1)


class _Flatten(nn.Module):
    """A picture as a row, place by place: the order of channels-last memory, so nothing is copied."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1) if x.ndim == 4 else x.flatten(1)


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

    def __init__(self, depths: Sequence[int], num_classes: int, in_channels: int, dropout: float) -> None:
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
        self.head = nn.Sequential(_GlobalMean(), *_dropout(dropout), nn.Linear(width_in, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class _Penalty(torch.autograd.Function):
    """A weight as it is; its gradient has that of ``rate`` times its squared norm added."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.rate = rate
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return gradients[0].add(weight, alpha=2 * ctx.rate), None


class _PenalizedLinear(nn.Linear):
    """A dense layer with an L2 penalty of its own, beside the recipe's weight decay of all layers."""

    def __init__(self, width_in: int, width: int, *, bias: bool, l2: float) -> None:
        super().__init__(width_in, width, bias=bias)
        self.l2 = l2

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, _Penalty.apply(self.weight, self.l2), self.bias)


def _dropout(rate: float) -> list[nn.Module]:
    return [nn.Dropout(rate)] if rate else []


def _is_size(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _cnn8(
    num_classes: int,
    in_channels: int,
    image_size: tuple[int, int],
    dropout: float,
    dense: Literal["norm-relu", "relu", "linear"] = "norm-relu",
    dense_l2: float = 0.0,
) -> nn.Module:
    """The 8-layer network of table 2: six convolutions, a dense layer of 256, the output.

    ``dense`` is what follows the dense layer. Wang et al.'s public code has nothing there: "linear".
    ``dense_l2`` is the dense layer's own penalty, which multiplies the squared norm of its weights.
    """
    after: dict[str, list[nn.Module]] = {
        "norm-relu": [nn.BatchNorm1d(256), nn.ReLU(inplace=True)],
        "relu": [nn.ReLU(inplace=True)],
        "linear": [],
    }
    if dense not in list(after):
        raise ValueError(f"dense must be one of {', '.join(after)}; got {dense!r}.")
    if isinstance(dense_l2, bool) or not (isinstance(dense_l2, (int, float)) and 0 <= dense_l2 < math.inf):
        raise ValueError(f"dense_l2 must be a number of 0 or more; got {dense_l2!r}.")
    layers: list[nn.Module] = []
    for width_in, width in ((in_channels, 64), (64, 128), (128, 196)):
        for channels in (width_in, width):
            layers += [Conv2d(channels, width, 3, padding=1, bias=False), BatchNorm(width)]
        layers.append(nn.MaxPool2d(2))
    flat = 196 * (image_size[0] // 8) * (image_size[1] // 8)
    linear = partial(_PenalizedLinear, l2=dense_l2) if dense_l2 else nn.Linear
    layers += [_Flatten(), linear(flat, 256, bias=dense != "norm-relu"), *after[dense]]
    return nn.Sequential(*layers, *_dropout(dropout), nn.Linear(256, num_classes))


def _small_cnn(
    num_classes: int,
    in_channels: int,
    image_size: tuple[int, int],
    dropout: float,
    width: int = 32,
) -> nn.Module:
    """Three convolutions with pooling: about 11 M multiplications an image, for a CPU."""
    if not _is_size(width):
        raise ValueError(f"width must be a whole number of 1 or more; got {width!r}.")
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
        NormPool(width),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        NormPool(2 * width),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
        BatchNorm(4 * width),
        _GlobalMean(),
        *_dropout(dropout),
        nn.Linear(4 * width, num_classes),
    )


def _mlp(
    num_classes: int, num_features: int, dropout: float, hidden: Sequence[int] = (256, 256)
) -> nn.Module:
    """Dense layers with ReLU, for tables; pictures are flattened."""
    if isinstance(hidden, str) or not isinstance(hidden, Iterable) or not all(map(_is_size, hidden)):
        raise ValueError(f"hidden must be widths of 1 or more, as in (256, 256); got {hidden!r}.")
    layers: list[nn.Module] = [_Flatten()]
    for width in hidden:
        layers += [nn.Linear(num_features, width), nn.ReLU(inplace=True), *_dropout(dropout)]
        num_features = width
    return nn.Sequential(*layers, nn.Linear(num_features, num_classes))


def _resnet(*depths: int) -> Callable[..., nn.Module]:
    def make(num_classes: int, in_channels: int, image_size: tuple[int, int], dropout: float) -> nn.Module:
        return ResNet(depths, num_classes, in_channels, dropout)

    return make


MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": _resnet(2, 2, 2, 2),
    "resnet34": _resnet(3, 4, 6, 3),
    "cnn8": _cnn8,
    "small-cnn": _small_cnn,
    "mlp": _mlp,
}


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
    init: Literal["torch", "he", "glorot"] = "torch",
    seed: int = 0,
    **options: Any,
) -> nn.Module:
    """A network by name, its weights drawn from ``seed`` alone.

    ``init`` is torch's own, He normal for the convolutions, or Glorot uniform for all matrices, which is
    Keras's own. Batch norm makes the size of a weight matter only as the inverse of its learning rate: He's
    weights are 2.4 times as large, so they learn 6 times as slowly. With them CIFAR-10 at the paper's
    learning rate of 0.01 ended 1.7 to 9.6 points below the paper (results/ablations/he_init).

    ``num_features`` is for "mlp" (default: the picture's pixels). Further options are the network's
    own: ``dense`` and ``dense_l2`` (cnn8), ``width`` (small-cnn), ``hidden`` (mlp).

    >>> sum(p.numel() for p in build("resnet34", 10).parameters())
    21282122
    """
    if name not in MODELS:
        rule = f"model must be one of {', '.join(MODELS)}; got {name!r}."
        raise ValueError(f"{rule} {did_you_mean(name, MODELS)}".rstrip())
    if init not in ("torch", "he", "glorot"):
        raise ValueError(f"init must be 'torch', 'he' or 'glorot'; got {init!r}.")
    if num_classes < 2:
        raise ValueError(f"num_classes must be 2 or more; got {num_classes!r}.")
    parameters = inspect.signature(MODELS[name]).parameters.values()
    known = ["init", *(p.name for p in parameters if p.default is not p.empty)]
    for option in options:
        if option not in known:
            raise TypeError(f"model {name!r} has no option {option!r}. It takes: {', '.join(known)}.")
    arguments: dict[str, Any] = {"num_classes": num_classes, "dropout": dropout, **options}
    if name == "mlp":
        arguments["num_features"] = num_features or in_channels * math.prod(image_size)
    elif num_features is not None:
        raise ValueError(f"model {name!r} takes pictures, not rows of {num_features} features. Use 'mlp'.")
    elif min(image_size) < 8:
        raise ValueError(f"image_size must be at least (8, 8) for {name!r}; got {image_size!r}.")
    else:
        arguments.update(in_channels=in_channels, image_size=image_size)
    # On the CPU, whose generator has the seed, and in fp32, whatever torch's own defaults are.
    with seeded(seed), torch.device("cpu"):
        model = MODELS[name](**arguments)
        for module in model.modules():
            if init == "he" and isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif init == "glorot" and isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(module.weight)
    return model.float()
