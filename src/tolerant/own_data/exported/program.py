"""A run's network as one module: rows as they come in, probabilities out, what happens to inputs inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.features import load_known
from tolerant.data.features.picture_networks import Frame, PictureEncoder, as_vectors
from tolerant.data.standardise import Preprocess
from tolerant.own_data.run_folder import SavedRun
from tolerant.own_data.run_folder.load import Network


class Program(nn.Module):
    """Pictures uint8 (N, H, W, C), or numbers of a table float32 (N, D), to probabilities (N, classes)."""

    mean: Tensor
    scale: Tensor

    def __init__(self, network: Network, features: Features | None) -> None:
        super().__init__()
        self.model, self.features = network.model.eval(), features
        self.is_image = network.preprocess.kind == "image"
        self.register_buffer("mean", _tensor(network.preprocess, "mean"))
        self.register_buffer("scale", _tensor(network.preprocess, "scale"))

    def forward(self, rows: Tensor) -> Tensor:
        x = rows if self.features is None else self.features(rows)
        x = x.float() * self.scale - self.mean
        if self.is_image:
            x = x.permute(0, 3, 1, 2)
        return torch.softmax(self.model(x).float(), 1)


class Features(nn.Module):
    """The pretrained network that a run's features came from: the mean of a picture and its mirror image."""

    def __init__(self, net: nn.Module, frame: Frame) -> None:
        super().__init__()
        self.net, self.frame = net, frame

    def forward(self, pictures: Tensor) -> Tensor:
        pixels = self.frame(pictures.permute(0, 3, 1, 2))
        views = [as_vectors(self.net(view)) for view in (pixels, pixels.flip(3))]
        # The cache holds float16, and the model was trained on that.
        return (views[0].half().float() + views[1].half().float()) / 2


def program_of(run: SavedRun) -> tuple[Program, Tensor]:
    """The program, and two rows of zeros as it takes them; a ValueError for runs that are no such program."""
    if not isinstance(run.model, Network):
        raise ValueError(
            f"{run.folder} is a model of scikit-learn's kind ({run.model.name}), which is stored as it is in "
            "model.classifiers. For a network, train with --model network."
        )
    encoder = run.encoder
    if encoder.kind == "text":
        raise ValueError(
            f"{run.folder} is a model of texts, whose words are no tensors. Use tolerant predict."
        )
    features = None
    if encoder.extractor is not None:
        encode: Any = load_known(encoder.extractor, "image").encode
        if not isinstance(encode, PictureEncoder) or not isinstance(encode.net, nn.Module):
            raise ValueError(f"{run.folder} has features of {encoder.extractor.name}, which is not exported.")
        features = Features(encode.net.eval(), encode.frame)
    is_image = encoder.kind == "image"
    shape = (encoder.picture_shape if features is not None else encoder.shape) or ()
    example = torch.zeros(2, *shape, dtype=torch.uint8 if is_image else torch.float32)
    return Program(run.model, features).eval(), example


def _tensor(preprocess: Preprocess, name: str) -> Tensor:
    return torch.from_numpy(np.array(getattr(preprocess, name), np.float32))
