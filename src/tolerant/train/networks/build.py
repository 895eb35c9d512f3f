"""A network from its card, for rows of any shape."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import nn

from tolerant.checks import check_num_classes
from tolerant.hints import did_you_mean
from tolerant.train.model_state import seeded
from tolerant.train.networks.cards import NETWORKS, Kind

Init = Literal["torch", "he", "glorot"]


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
