"""Torch's global generator, from which initialisations and dropout draw, lent to one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LENT = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The CPU's generator starts from ``seed``; afterwards it is where the caller had it.

    All threads of a process share it: without the lock, of two that train at once (joblib's threads), one
    would draw its weights from the other's seed.

    >>> with seeded(0):
    ...     first = torch.rand(1)
    >>> with seeded(0):
    ...     bool(torch.rand(1) == first)
    True
    """
    with _LENT, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
