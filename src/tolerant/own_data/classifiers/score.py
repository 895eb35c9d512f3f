"""Members fitted in folds: what each says of rows that it has not seen, and in how many seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tolerant.own_data.classifiers.member import Member, all_probs
from tolerant.own_data.classifiers.rows import take
from tolerant.own_data.classifiers.side_by_side import side_by_side
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.own_data.task import Task

Parts = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Scored:
    """A member, and what it says out of fold."""

    name: str
    out_of_fold: OutOfFold
    time_s: float


def score_member(member: Member, task: Task, parts: Parts, believed: np.ndarray | None = None) -> Scored:
    """Fit it to the first rows of each of the ``parts``, if ``believed``, and ask for those of the second."""
    start, dataset = time.perf_counter(), task.dataset
    X, labels = member.rows(dataset), dataset.given_labels

    def fold(number: int) -> np.ndarray:
        train, held_out = parts[number]
        if believed is not None and len(np.unique(labels[train[believed[train]]])) >= 2:
            train = train[believed[train]]
        where = f"fold {number + 1} of {len(parts)}"
        model = _naming(member, where, lambda: _fit(member, task, X, train))
        return _naming(member, where, lambda: all_probs(model, take(X, held_out), dataset.num_classes))

    found = OutOfFold.none_of(dataset)
    for (_, held_out), probs in zip(parts, side_by_side(fold, range(len(parts))), strict=True):
        found.probs[held_out], found.held_out[held_out] = probs, True
    return Scored(member.name, found.unweighted(labels, task.sample_weight), time.perf_counter() - start)


def fit_member(member: Member, task: Task, used: np.ndarray) -> Any:
    """The member fitted to the rows ``used``."""
    X = member.rows(task.dataset)
    return _naming(member, "all rows", lambda: _fit(member, task, X, used))


def _fit(member: Member, task: Task, X: Any, index: np.ndarray) -> Any:
    """Labels that a person has decided stay as they are."""
    weight, trusted = (None if each is None else each[index] for each in (task.sample_weight, task.reviewed))
    labels = task.dataset.given_labels[index]
    make = partial(member.make, task.dataset, task.settings.seed)
    return member.fit(take(X, index), labels, weight, make, trusted)


def _naming(member: Member, where: str, work: Callable[[], Any]) -> Any:
    """What ``work`` returns; if it fails, the error says which classifier it was, and where."""
    who = f"the classifier {member.title or repr(member.name)} failed on {where}"
    try:
        return work()
    except (ValueError, TypeError) as error:
        why = str(error).rstrip(". \n")
        raise (TypeError if isinstance(error, TypeError) else ValueError)(
            f"{who}: {why}. {_way_out(why)}".rstrip()
        ) from error
    except Exception as error:  # of a library or a user's own: its kind may be caught by name
        error.add_note(f"{who[0].upper()}{who[1:]}.")
        raise


def _way_out(why: str) -> str:
    """Advice for what most classifiers cannot take."""
    if any(words in why for words in ("NaN", "missing", "string to float", "dtype")):
        return (
            "If it cannot take missing values or words, put an imputer or encoder before it: "
            "sklearn.pipeline.make_pipeline(...)."
        )
    return ""
