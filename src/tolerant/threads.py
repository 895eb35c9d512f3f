"""How many cores there are, and how many threads libraries take of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tolerant.extras import extra


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


@contextmanager
def one_thread_in_libraries() -> Iterator[None]:
    """One thread for the loops of scikit-learn and the sums of NumPy and SciPy.

    Most are too short to be shared. On two cores that others used too, two threads took 100 s for gradient
    boosting of 1,728 rows, and one 0.4 s; for logistic regression on 384 features of 2,000 rows 4 s and 0.2.
    """
    extra("sklearn")  # a library that is loaded later would not be told
    with extra("threadpoolctl").ThreadpoolController().limit(limits=1):
        yield
