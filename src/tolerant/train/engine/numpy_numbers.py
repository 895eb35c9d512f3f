"""Settings given as numpy numbers, as by a search over `numpy.arange` or `scipy.stats`."""

from __future__ import annotations

from typing import Any

import numpy as np


def unwrap_numbers(settings: Any) -> None:
    """Make them Python numbers, as JSON and checks of types want them, in a frozen dataclass."""
    for name, value in vars(settings).items():
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())
