"""Settings given as numpy's numbers: a search over `numpy.arange` or `scipy.stats` hands out such."""

from __future__ import annotations

from typing import Any

import numpy as np


def unwrap_numbers(settings: Any) -> None:
    """Make them Python's own, which JSON holds and checks of types know, in a frozen dataclass."""
    for name, value in vars(settings).items():
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())
