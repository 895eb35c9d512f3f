"""Packages that `import tolerant` does not need, imported where they are used."""

from __future__ import annotations

import importlib
from types import ModuleType


def extra(module: str, *, install: str = "app") -> ModuleType:
    """Import `module`, or say in one sentence how to get it.

    >>> extra("json").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0] and missing.name != module:
            raise  # the package is installed, something it needs is not: its own message says more
        raise ModuleNotFoundError(
            f"this needs {missing.name}: pip install 'tolerant[{install}]'", name=missing.name
        ) from None
