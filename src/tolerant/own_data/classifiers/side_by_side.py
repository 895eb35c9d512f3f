"""Classifiers at work side by side, in a thread each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from tolerant.extras import extra
from tolerant.own_data.classifiers.member import quietly
from tolerant.threads import cores, one_thread_in_libraries


def side_by_side(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What it returns for each of them, with as many at a time as there are cores.

    In threads of one process: most of what these classifiers do holds no lock.
    """

    def alone(item: Any) -> Any:
        with one_thread_in_libraries():  # OpenMP's number is one of each thread, so each sets it
            return function(item)

    joblib = extra("joblib")
    parallel = joblib.Parallel(max(1, min(len(items), cores())), prefer="threads")
    with quietly(), _filters_left_alone(), one_thread_in_libraries():
        return list(parallel(joblib.delayed(alone)(item) for item in items))


@contextmanager
def _filters_left_alone() -> Iterator[None]:
    """Forests do not set the filters of warnings, which all threads share, anew for each tree.

    Two that do so at once can empty them; then every tree warns, and no filter counts: so it does not help to
    have set some outside. No setting of scikit-learn or joblib turns this off, for it is done by what each
    tree is wrapped in, with one thread too. What is left is a lock, which would fit forests one after the
    other, or processes, each with a copy of the rows.
    """
    loops: Any = extra("sklearn.utils.parallel")
    as_they_are: dict[str, Any] = dict.fromkeys(
        ("resetwarnings", "simplefilter", "filterwarnings"), lambda *_, **__: None
    )
    loops.warnings = SimpleNamespace(
        warn=warnings.warn, filters=[()], catch_warnings=nullcontext, **as_they_are
    )
    try:
        yield
    finally:
        loops.warnings = warnings
