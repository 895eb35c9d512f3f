"""Which network suits the rows: of ours, by their kind, size and number, or one that the user makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.settings import Settings
from tolerant.train.model_state import seeded

# Of features: linear. A hidden layer agrees no better with the given labels of rows that it has not seen.
_HEAD: tuple[str, dict[str, Any]] = ("mlp", {"hidden": ()})
NETWORK = "network"  # the name of whichever suits the rows
PRETRAINED = "pretrained"  # the name of one that is trained further
# With fewer pictures the features alone are better than the network trained further (`--tune`): with 300 of
# them 77.8 and 75.8 % of others were right, with 800 80.3 and 82.1.
LEAST_TO_TUNE = 500
_MANY_PICTURES = 20_000  # from here on a GPU's ResNet-18 is worth its time


def choose_network(
    dataset: NoisyDataset, settings: Settings, device: torch.device
) -> tuple[str | nn.Module, dict[str, Any]]:
    """The network's name, or the user's own, and the options it is built with."""
    model, options = settings.model, dict(settings.model_args)
    if model == PRETRAINED and dataset.kind != "image":
        raise ValueError(
            "tune (--tune) trains a network for pictures, and these rows are none. Leave it out: features "
            "(--features NAME) suit texts, too."
        )
    if model in ("auto", NETWORK):
        name, defaults = _HEAD if settings.pretrained else default_network(dataset, device)
        return name, {**defaults, **options}
    return (model if isinstance(model, str) else _make(dataset, settings)), options


def is_dense(dataset: NoisyDataset, settings: Settings, device: torch.device) -> bool:
    """Whether the network has no convolution, as far as its name tells."""
    named = isinstance(settings.model, str)
    return named and choose_network(dataset, settings, device)[0] == "mlp"


def default_network(dataset: NoisyDataset, device: torch.device) -> tuple[str, dict[str, Any]]:
    """Name and options of the network of ours that suits these rows best."""
    shape = tuple(dataset.inputs.shape[1:])
    # One layer; narrower where the columns are thousands, and its weights would be millions.
    dense = "mlp", {"hidden": (256,) if np.prod(shape) <= 2048 else (64,)}
    if dataset.kind != "image" or min(shape[:2]) < 16:
        return dense
    # Grey and small, as digits, letters and Fashion-MNIST: in the same time a dense network learns more.
    # 3,000 rows of it, 20 % wrong, one seed: 73.4 %; the convolutional one, in twelve times the processor
    # time, 68.7 %. In colour it is the other way round: on 2,000 rows of CIFAR-10 33.0 (with pruning) and
    # 43.5 % (without; results/bench/pictures_cpu.jsonl).
    if device.type == "cpu" and shape[2] == 1 and max(shape[:2]) <= 32:
        return dense
    many = device.type == "cuda" and len(dataset) >= _MANY_PICTURES
    return "resnet18" if many else "small-cnn", {}


def has_photographs(dataset: NoisyDataset) -> bool:
    """Whether the rows are pictures in colour, large enough to be photographs."""
    shape = dataset.inputs.shape
    return dataset.kind == "image" and shape[3] >= 3 and min(shape[1:3]) >= 28


def _make(dataset: NoisyDataset, settings: Settings) -> nn.Module:
    """What the user's function makes for rows of this shape."""
    model = settings.model
    if isinstance(model, type) and hasattr(model, "get_params"):  # to call it would set its parameters
        raise ValueError(f"model must be a classifier, not its class; write {model.__name__}().")
    if not callable(model) or isinstance(model, nn.Module):  # one instance could not start anew in each fold
        raise ValueError(
            "model must be 'auto', a name, a classifier, or a function (input_shape, num_classes) -> "
            f"nn.Module; got {model!r}."
        )
    shape = tuple(dataset.inputs.shape[1:])
    if dataset.kind == "image":
        shape = (shape[2], *shape[:2])
    with seeded(settings.seed):
        made = model(shape, dataset.num_classes)
    if not isinstance(made, nn.Module):
        raise ValueError(f"the model function must return an nn.Module; got {type(made).__name__}.")
    return made
