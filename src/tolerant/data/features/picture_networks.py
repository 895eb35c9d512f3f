"""Pretrained networks for pictures: features are taken from them, or they are trained further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tolerant.data.features.convolution import without_plans
from tolerant.data.features.extractor import Extractor, Identity, weights_digest


class Frame(nn.Module):
    """How a network wants pictures.

    A picture is squeezed or enlarged to ``size`` x ``size``, with nothing cut off; a grey one gets three
    equal channels.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, *, size: int, mean: Sequence[float], std: Sequence[float], interpolation: str = "bilinear"
    ) -> None:
        super().__init__()
        self.size = int(size)
        self.interpolation = interpolation if interpolation in ("bilinear", "bicubic") else "bicubic"
        self._said = f"mean {tuple(map(float, mean))}, std {tuple(map(float, std))}"
        # On the device: a captured step may not copy them there.
        for name, numbers in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor([*map(float, numbers)])[:, None, None], persistent=False)

    def __str__(self) -> str:
        return f"{self.size} px, {self.interpolation}, {self._said}"

    def forward(self, pixels: Tensor) -> Tensor:
        """Of pixels of 0 to 255, (n, C, H, W): float32 (n, 3, size, size), normalised, channels last."""
        pixels = pixels.float()
        if pixels.shape[1] not in (3, 4):
            pixels = pixels[:, :1].expand(-1, 3, -1, -1)
        pixels = pixels[:, :3]
        if tuple(pixels.shape[2:]) != (self.size, self.size):
            pixels = F.interpolate(
                pixels, (self.size, self.size), mode=self.interpolation, align_corners=False, antialias=True
            ).clamp(0, 255)  # bicubic goes beyond
        return ((pixels / 255 - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True, eq=False)
class Body:
    """A network without its last layer: normalised pixels to one vector for each picture."""

    name: str
    """As the user gives it: `lite0`, `timm:resnet50.a1_in1k` ..."""
    version: str
    """Of the package that loads it."""
    net: nn.Module = field(repr=False)
    frame: Frame
    weights: str = ""
    """SHA-256 of its weights as they came."""
    use: str = ""
    """What of it makes the vector, if that is not what the network itself returns."""

    def __post_init__(self) -> None:
        if not self.weights:
            object.__setattr__(self, "weights", weights_digest(self.net))

    def extractor(self, device: torch.device, batch_size: int = 32) -> Extractor:
        """For features alone; the network is not trained afterwards."""
        net = self.net.eval().requires_grad_(False)
        # Channels last: 1.5 times the pictures a second on a CPU.
        net = net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        encoder = PictureEncoder(net, self.frame, device)
        use = f"{encoder.use}, {self.use}" if self.use else encoder.use
        identity = Identity(self.name, self.version, self.weights, use)
        return Extractor(
            identity, "image", encoder, encoder.views, 512 if device.type == "cuda" else batch_size
        )


class PictureEncoder:
    """The vectors of pictures: of each one and of its mirror image. On a GPU the network runs in bf16."""

    views = 2

    def __init__(self, net: Callable[[Tensor], Any], frame: Frame, device: torch.device) -> None:
        self.net, self.frame, self.device = net, frame.to(device), device

    @property
    def use(self) -> str:
        return f"{self.frame}, mirrored too"

    @torch.inference_mode()
    def __call__(self, pictures: np.ndarray) -> Tensor:
        """(n, views, D) of uint8 (n, H, W, C)."""
        raw = torch.from_numpy(np.ascontiguousarray(pictures)).to(self.device)
        pixels = self.frame(raw.permute(0, 3, 1, 2))
        on_gpu = self.device.type == "cuda"
        with without_plans(pixels), torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            return torch.stack([as_vectors(self.net(view)) for view in (pixels, pixels.flip(3))], 1)


def as_vectors(output: Any) -> Tensor:
    """What a model returned, as a tensor; of the usual objects the part that is one vector for each row."""
    if isinstance(output, Tensor):
        return output
    for part in ("image_embeds", "text_embeds", "pooler_output"):
        if isinstance(found := getattr(output, part, None), Tensor):
            return found.flatten(1) if found.ndim == 4 else found  # a pooled map of 1 x 1
    if isinstance(found := getattr(output, "last_hidden_state", None), Tensor):
        return found[:, 0] if found.ndim == 3 else found.mean((2, 3))  # the class token; a map of pixels
    raise ValueError(
        f"a model must return one vector for each row, (n, D); this returns {type(output).__name__}"
    )
