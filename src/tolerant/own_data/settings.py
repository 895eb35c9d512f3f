"""What a user may set of a training on rows of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from tolerant.checks import unwrap_numbers
from tolerant.train.engine.recipe import Precision

TRUNCATED = "truncated-lq"
ModelFactory = Callable[[tuple[int, ...], int], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may set; what is None or "auto" is chosen by the data."""

    model: str | ModelFactory = "auto"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    loss: str | nn.Module = TRUNCATED
    """A name of the registry. "truncated-lq" trains by the paper's algorithm: L_q, and pruning at k."""
    q: float | Literal["auto"] = "auto"
    """"auto": :func:`~tolerant.own_data.default_q.choose_q`, by the number of classes; at most 0.3 for a few
    thousand photographs."""
    k: float | Literal["auto"] = 0.5
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float = 1e-4
    validation_fraction: float = 0.1
    standardise: bool = True
    """Tables: subtract each column's mean and divide by its deviation. Not for sparse rows, which would lose
    their zeros."""
    pretrained: bool = False
    """The rows are features of a pretrained extractor: a linear model is enough, and dropout keeps it from
    learning single rows."""
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        if self.q != "auto" and not (isinstance(self.q, float | int) and 0 <= self.q <= 1):
            raise ValueError(
                f"q must be in [0, 1] or 'auto'; got {self.q!r}. For cross entropy use loss='cce'."
            )
        if self.k != "auto" and not (isinstance(self.k, float | int) and 0 < self.k < 1):
            raise ValueError(f"k must be in (0, 1) or 'auto'; got {self.k!r}.")
        if not isinstance(self.loss, str | nn.Module):
            raise ValueError(f"loss must be a name or a loss such as LqLoss(q=0.7); got {self.loss!r}.")
        for name in ("epochs", "batch_size", "lr"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, or None to have it chosen; got {value!r}.")
