"""How many threads torch takes on a processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
