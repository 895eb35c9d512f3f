"""Packages that `import tolerant` does not need, imported where they are used."""

from __future__ import annotations

import functools
import importlib
import json
from importlib import metadata
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit


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
            f"this needs {missing.name}: {install_command(install)}", name=missing.name
        ) from None


@functools.cache
def install_command(extras: str) -> str:
    """What installs them: from the checkout in use, or by name where the package came from an index.

    A name that an index does not have yet could be anybody's tomorrow.
    """
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install -e '{checkout}[{extras}]'"
    try:
        origin = json.loads(metadata.distribution("tolerant").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:  # on the path, but not installed
        origin = {}
    where = unquote(urlsplit(origin["url"]).path) if "dir_info" in origin else "tolerant"
    return f"pip install '{where}[{extras}]'"
