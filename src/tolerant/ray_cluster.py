"""A connection to Ray: the one that is there, the cluster at an address, or a Ray of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tolerant.extras import extra


@contextmanager
def connected(address: str | None = None, *, object_bytes: int | None = None) -> Iterator[Any]:
    """The module ray, connected to ``address``, else to RAY_ADDRESS, else to a new Ray of this machine.

    What is started here is also ended here. ``object_bytes``: what a new one may keep objects in; by default
    Ray takes a third of the memory.
    """
    ray = extra("ray", install="ray")
    if ray.is_initialized():
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": "error"}
    address = address or os.environ.get("RAY_ADDRESS")
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init("local", include_dashboard=False, object_store_memory=object_bytes, **quiet)
    else:
        ray.init(address, **quiet)
    try:
        yield ray
    finally:
        ray.shutdown()
