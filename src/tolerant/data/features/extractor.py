"""What an extractor is: rows go in, and one vector for each view of a row comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Kind = Literal["image", "text"]
_ROUND = 1  # raised when the same weights are used in another way, so that old features are not taken for new


@dataclass(frozen=True)
class Identity:
    """Which extractor made some features: enough to know whether another one would make the same."""

    name: str
    """As the user gives it: `lite0`, `hf:org/model` ..."""
    version: str
    """Of the package that loads it."""
    weights: str
    """SHA-256 of its weights."""
    use: str
    """What else the numbers depend on: picture size, normalisation, pooling."""

    @property
    def key(self) -> str:
        """Names the features of these weights, used in this way, by whatever name and version."""
        return hashlib.sha256(f"{_ROUND} {self.weights} {self.use}".encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Any) -> Identity:
        try:
            return cls(**{name: str(value[name]) for name in ("name", "version", "weights", "use")})
        except (KeyError, TypeError) as error:
            raise ValueError(f"this does not say which extractor made the features: {error!r}") from error


@dataclass(frozen=True, eq=False)
class Extractor:
    """A model that turns rows into numbers."""

    identity: Identity
    kind: Kind
    encode: Callable[[Any], Tensor] = field(repr=False)
    """Raw rows, pictures uint8 (n, H, W, C) or a list of texts, to (n, views, D)."""
    views: int = 1
    """How many vectors a row has: a picture and its mirror image are two."""
    batch_size: int = 32

    def __call__(self, rows: Any) -> np.ndarray:
        """float32 (n, views, D); anything else than one finite vector for each row is refused."""
        rows = [str(text) for text in rows] if self.kind == "text" else np.asarray(rows)
        vectors = self.encode(rows)
        if vectors.ndim != 3 or tuple(vectors.shape[:2]) != (len(rows), self.views) or not vectors.shape[2]:
            got = (len(rows), *vectors.shape[2:]) if vectors.ndim > 3 else tuple(vectors.shape)
            raise ValueError(
                f"{self.identity.name} must give one vector for each row, ({len(rows)}, D); it gives an "
                f"array of shape {got}. Choose a model that ends in a pooling layer, or add one."
            )
        out = vectors.float().cpu().numpy()
        if not np.isfinite(out).all():
            raise ValueError(
                f"{self.identity.name} gives numbers that are not finite; its weights are damaged"
            )
        return out


class PictureEncoder:
    """Pictures as a network wants them, and their vectors: of each picture and of its mirror image.

    A picture is squeezed or enlarged to ``size`` x ``size``, with nothing cut off; a grey one gets three
    equal channels. On a GPU the network runs in bf16.
    """

    views = 2

    def __init__(
        self,
        net: Callable[[Tensor], Any],
        device: torch.device,
        *,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        interpolation: str = "bilinear",
    ) -> None:
        self.net, self.device, self.size = net, device, size
        self.interpolation = interpolation if interpolation in ("bilinear", "bicubic") else "bicubic"
        self.mean, self.std = tuple(map(float, mean)), tuple(map(float, std))

    @property
    def use(self) -> str:
        return f"{self.size} px, {self.interpolation}, mean {self.mean}, std {self.std}, mirrored too"

    def prepare(self, pictures: np.ndarray) -> Tensor:
        """float32 (n, 3, size, size), normalised."""
        pixels = torch.from_numpy(np.ascontiguousarray(pictures)).to(self.device)
        pixels = pixels.permute(0, 3, 1, 2).float()
        if pixels.shape[1] not in (3, 4):
            pixels = pixels[:, :1].expand(-1, 3, -1, -1)
        pixels = pixels[:, :3]
        if tuple(pixels.shape[2:]) != (self.size, self.size):
            pixels = F.interpolate(
                pixels, (self.size, self.size), mode=self.interpolation, align_corners=False, antialias=True
            ).clamp(0, 255)  # bicubic goes beyond
        mean, std = (torch.tensor(v, device=self.device)[:, None, None] for v in (self.mean, self.std))
        return ((pixels / 255 - mean) / std).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def __call__(self, pictures: np.ndarray) -> Tensor:
        pixels = self.prepare(pictures)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return torch.stack([as_vectors(self.net(view)) for view in (pixels, pixels.flip(3))], 1)


def ready(net: Any, device: torch.device) -> Any:
    """On the device, channels last (1.5 times the pictures a second on a CPU), and never trained."""
    return net.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)


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


def weights_digest(weights: nn.Module | dict[str, Tensor]) -> str:
    """SHA-256 of all weights with their names, types and shapes, in the order of the names."""
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
