"""The values that a hyper-parameter may take; below, those of the losses here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Domain:
    """An interval; open ends are left out of it.

    >>> Domain(0, 1).check("q", 0.7)
    >>> Domain(0, 1, open_low=True).check("k", 0)
    Traceback (most recent call last):
    ValueError: k must be in (0, 1]; got 0.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    integer: bool = False
    way_out: str = ""

    @property
    def kind(self) -> type[float]:
        return int if self.integer else float

    def __contains__(self, value: object) -> bool:
        number = int if self.integer else (int, float)
        # Not math.isfinite: torch.compile cannot follow it once a number differs from call to call.
        if isinstance(value, bool) or not isinstance(value, number) or not abs(value) < math.inf:
            return False
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def check(self, name: str, value: object) -> None:
        if value not in self:
            raise ValueError(f"{name} must be in {self}; got {value!r}. {self.way_out}".rstrip())

    def __str__(self) -> str:
        left = "(" if self.open_low or math.isinf(self.low) else "["
        right = ")" if self.open_high or math.isinf(self.high) else "]"
        whole = " (whole numbers)" if self.integer else ""
        return f"{left}{self.low:g}, {self.high:g}{right}{whole}"


Q = Annotated[float, Domain(0, 1, way_out="For cross entropy use q=0, for (half of) MAE q=1.")]
K = Annotated[float, Domain(0, 1, open_low=True, open_high=True, way_out="Without truncation use lq.")]
LogZero = Annotated[float, Domain(high=0, open_high=True, way_out="It stands for log 0; the paper has -4.")]
NotNegative = Annotated[float, Domain(0)]
Positive = Annotated[float, Domain(0, open_low=True)]
AboveOne = Annotated[float, Domain(1, open_low=True)]
Share = Annotated[float, Domain(0, 1)]
Inside = Annotated[float, Domain(0, 1, open_low=True, open_high=True)]
Order = Annotated[int, Domain(1, 1000, integer=True)]
