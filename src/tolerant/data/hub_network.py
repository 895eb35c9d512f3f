"""Whether the Hugging Face hub can be reached, known within seconds: its libraries try for minutes."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tolerant.extras import extra

_HUB = "https://huggingface.co"
_WAIT_S = 5.0


def unreachable() -> str:
    """Why the hub cannot be reached; empty if it can, or only a proxy knows."""
    if extra("huggingface_hub", install="datasets").constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    if any(os.environ.get(word) for word in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return ""
    where = urlsplit(os.environ.get("HF_ENDPOINT") or _HUB)
    port = where.port or (80 if where.scheme == "http" else 443)
    try:
        socket.create_connection((where.hostname, port), _WAIT_S).close()
    except OSError as error:
        return f"{where.hostname}: {error}"
    return ""


@contextmanager
def offline(wanted: bool) -> Iterator[None]:
    """Inside, the hub's libraries look only at what they have on this machine."""
    places = [extra("huggingface_hub").constants]
    if "datasets" in sys.modules:  # it keeps a copy of that setting
        places.append(sys.modules["datasets"].config)
    before = [place.HF_HUB_OFFLINE for place in places]
    for place, was in zip(places, before, strict=True):
        place.HF_HUB_OFFLINE = wanted or was
    try:
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = was
