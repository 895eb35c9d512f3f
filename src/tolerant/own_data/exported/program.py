"""A run's model as one module: rows as they come in, probabilities out, what happens to inputs inside."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.features import load_known
from tolerant.data.features.picture_networks import Frame, PictureEncoder, as_vectors
from tolerant.data.standardise import Preprocess
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant
from tolerant.own_data.classifiers.taught import Taught
from tolerant.own_data.run_folder import SavedRun
from tolerant.own_data.run_folder.load import Network


class Program(nn.Module):
    """Pictures uint8 (N, H, W, C), or numbers of a table float32 (N, D), to probabilities (N, classes)."""

    def __init__(self, features: Features | None, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, rows: Tensor) -> Tensor:
        x = rows if self.features is None else self.features(rows)
        return torch.softmax(self.head(x.float()), 1)


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


class Scaled(nn.Module):
    """A network, and what happens to its inputs."""

    mean: Tensor
    scale: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.model, self.is_image = network.model, network.preprocess.kind == "image"
        self.register_buffer("mean", _tensor(network.preprocess, "mean"))
        self.register_buffer("scale", _tensor(network.preprocess, "scale"))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale - self.mean
        return self.model(x.permute(0, 3, 1, 2) if self.is_image else x).float()


class Plane(nn.Module):
    """A linear discriminant: logarithms of probabilities."""

    coef: Tensor
    intercept: Tensor

    def __init__(self, fitted: RoundDiscriminant, num_classes: int) -> None:
        super().__init__()
        coef = np.zeros((num_classes, fitted.coef_.shape[1]))
        intercept = np.full(num_classes, -np.inf)  # a class that no row of its fit had
        coef[fitted.classes_], intercept[fitted.classes_] = fitted.coef_, fitted.intercept_
        # In 64 bits, as the run has it: where logits are large and alike, 32 would tell them apart otherwise.
        self.register_buffer("coef", torch.from_numpy(coef))
        self.register_buffer("intercept", torch.from_numpy(intercept))

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(x.double() @ self.coef.T + self.intercept, 1)


class Both(nn.Module):
    """A discriminant and the networks that it has taught: logarithms of twice the mean of what it says and
    what they say."""

    def __init__(self, fitted: Taught, num_classes: int) -> None:
        super().__init__()
        self.plane = Plane(fitted.teacher, num_classes)
        known = np.isin(np.arange(num_classes), fitted.classes_)
        self.networks = nn.ModuleList(
            nn.Sequential(_linear(into, bias), nn.ReLU(), _linear(out, np.where(known, last, -np.inf)))
            for into, bias, out, last in fitted.networks
        )

    def forward(self, x: Tensor) -> Tensor:
        part = math.log(len(self.networks))
        said = [torch.log_softmax(network(x).double(), 1) - part for network in self.networks]
        return torch.logsumexp(torch.stack([self.plane(x), *said]), 0)


def _linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    made = nn.Linear(*weight.shape)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(weight.T))
        made.bias.copy_(torch.from_numpy(bias))
    return made


class Moved(nn.Module):
    """A classifier, moved towards rare classes as its committee is."""

    move: Tensor

    def __init__(self, classifier: nn.Module, prior: np.ndarray, tau: float) -> None:
        super().__init__()
        self.classifier = classifier
        self.register_buffer("move", torch.from_numpy(tau * np.log(np.where(prior > 0, prior, 1.0))))

    def forward(self, x: Tensor) -> Tensor:
        return (self.classifier(x) - self.move).float()


def program_of(run: SavedRun) -> tuple[Program, Tensor]:
    """The program, and two rows of zeros as it takes them; a ValueError for runs that are no such program."""
    head, encoder = _head(run), run.encoder
    if encoder.text is not None or encoder.kind == "text":
        raise ValueError(
            f"{run.folder} is a model of texts, whose words are no tensors. Use tolerant predict."
        )
    features = None
    if encoder.extractor is not None:
        encode: Any = load_known(encoder.extractor, "image").encode
        if not isinstance(encode, PictureEncoder) or not isinstance(encode.net, nn.Module):
            raise ValueError(
                f"{run.folder} has features of {encoder.extractor.name}, which is not exported. Use tolerant "
                "predict."
            )
        features = Features(encode.net.eval(), encode.frame)
    is_image = encoder.kind == "image"
    shape = (encoder.picture_shape if features is not None else encoder.shape) or ()
    example = torch.zeros(2, *shape, dtype=torch.uint8 if is_image else torch.float32)
    return Program(features, head).eval(), example


def _head(run: SavedRun) -> nn.Module:
    if isinstance(run.model, Network):
        return Scaled(run.model)
    assert isinstance(run.model, Committee)
    fitted, *others = run.model.fitted.values()
    num_classes = len(run.model.prior)
    if not others and isinstance(fitted, RoundDiscriminant):
        return Moved(Plane(fitted, num_classes), run.model.prior, run.model.tau)
    if not others and isinstance(fitted, Taught):
        return Moved(Both(fitted, num_classes), run.model.prior, run.model.tau)
    raise ValueError(
        f"{run.folder} is a model of scikit-learn's kind ({run.model.name}), which is stored as it is in "
        "model.classifiers. For a network, train with --model network."
    )


def _tensor(preprocess: Preprocess, name: str) -> Tensor:
    return torch.from_numpy(np.array(getattr(preprocess, name), np.float32))
