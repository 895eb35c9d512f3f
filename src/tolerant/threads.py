"""How many cores there are, and how many threads torch takes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """One thread while small networks train.

    Their steps take less than threads need to find each other: on two cores that others used too, a dense
    network took 53 to 79 s with two threads, 7 to 11 s with one.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    threads = torch.get_num_threads()
    if when:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
