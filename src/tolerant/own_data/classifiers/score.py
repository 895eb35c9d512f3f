"""Members fitted in folds: what each says of rows that it has not seen, and in how many seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.extras import extra
from tolerant.own_data.classifiers.member import Member, all_probs, quietly
from tolerant.own_data.classifiers.rows import take
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.threads import cores

Parts = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Scored:
    """A member, and what it says out of fold."""

    name: str
    out_of_fold: OutOfFold
    time_s: float


def score_member(
    member: Member,
    dataset: NoisyDataset,
    parts: Parts,
    *,
    seed: int,
    sample_weight: np.ndarray | None,
    trusted: np.ndarray | None = None,
    believed: np.ndarray | None = None,
) -> Scored:
    """Fit it to the first rows of each of the ``parts``, if ``believed``, and ask for those of the second.

    Labels that are ``trusted`` stay as they are.

    The folds go side by side, in threads: most of what these classifiers do holds no lock.
    """
    start = time.perf_counter()
    X, labels = member.rows(dataset), dataset.given_labels

    def fold(number: int) -> np.ndarray:
        train, held_out = parts[number]
        if believed is not None and len(np.unique(labels[train[believed[train]]])) >= 2:
            train = train[believed[train]]
        where = f"fold {number + 1} of {len(parts)}"
        model = _naming(member, where, lambda: _fit(member, dataset, X, train, sample_weight, trusted, seed))
        return _naming(member, where, lambda: all_probs(model, take(X, held_out), dataset.num_classes))

    found = OutOfFold.none_of(dataset)
    with side_by_side(len(parts)) as run:
        for (_, held_out), probs in zip(parts, run(fold, range(len(parts))), strict=True):
            found.probs[held_out], found.held_out[held_out] = probs, True
    return Scored(member.name, found.unweighted(labels, sample_weight), time.perf_counter() - start)


def fit_member(
    member: Member,
    dataset: NoisyDataset,
    used: np.ndarray,
    *,
    seed: int,
    sample_weight: np.ndarray | None,
    trusted: np.ndarray | None = None,
) -> Any:
    """The member fitted to the rows ``used``."""
    X = member.rows(dataset)
    with quietly():
        return _naming(
            member, "all rows", lambda: _fit(member, dataset, X, used, sample_weight, trusted, seed)
        )


def _fit(
    member: Member,
    dataset: NoisyDataset,
    X: Any,
    index: np.ndarray,
    sample_weight: np.ndarray | None,
    trusted: np.ndarray | None,
    seed: int,
) -> Any:
    weight, kept = (None if each is None else each[index] for each in (sample_weight, trusted))
    labels = dataset.given_labels[index]
    return member.fit(take(X, index), labels, weight, lambda: member.make(dataset, seed), kept)


def _naming(member: Member, where: str, work: Callable[[], Any]) -> Any:
    """What ``work`` returns; if it fails, the error says which classifier it was, and where."""
    try:
        return work()
    except (ValueError, TypeError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(
            f"the classifier {member.name!r} failed on {where}: {error}. If it cannot take missing values or "
            "words, put an imputer or encoder before it: sklearn.pipeline.make_pipeline(...)."
        ) from error


@contextmanager
def side_by_side(most: int) -> Iterator[Callable[[Callable[[int], Any], Sequence[int]], list[Any]]]:
    """``run(function, items)`` in as many threads as there are cores, at the ``most`` so many.

    Each has one thread of its own for its sums: with as many as cores, small models wait for each other.
    OpenMP's number is one of each thread, so each sets it: gradient boosting of 12,000 rows took three times
    as long, and four times where others used the cores, too.
    """
    joblib, limits = extra("joblib"), extra("threadpoolctl").ThreadpoolController()

    def alone(function: Callable[[int], Any], item: int) -> Any:
        with limits.limit(limits=1, user_api="openmp"):
            return function(item)

    parallel = joblib.Parallel(max(1, min(most, cores())), prefer="threads")
    with limits.limit(limits=1), quietly():
        yield lambda function, items: list(parallel(joblib.delayed(alone)(function, item) for item in items))
