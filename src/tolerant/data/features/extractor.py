"""What an extractor is: rows go in, and one vector for each view of a row comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

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
