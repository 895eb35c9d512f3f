"""Ways to decide under which label a row trains, which bench_relabel and bench_rounds try.

Each is a change of rounds whose networks decide within their second half, too ("within"), a `Teacher` with
another decision, or both. "before" is what the package does: only the networks of the round before decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tolerant.experiment.papers.rounds.grids import decided_within
from tolerant.train import Round
from tolerant.train.engine import prepare
from tolerant.train.rounds.relabel import Teacher, count_transition, posterior

Rounds = Sequence[Round]


class Surest(Teacher):
    """T is counted among the surest four tenths."""

    def judge(self, probs: Tensor, given: Tensor) -> Tensor:
        return posterior(probs, given, count_transition(probs, given, surest=0.4))


class Thresholds(Teacher):
    """No T: labels believed by half stay, others that are `sure` change, and the rest is left out."""

    def judge(self, probs: Tensor, given: Tensor) -> Tensor:
        believed = (probs * given).sum(1) > 0.5
        return torch.where(believed[:, None], given, probs)


def unchanged(rounds: Rounds) -> Rounds:
    return rounds


@dataclass(frozen=True)
class Way:
    """How labels are decided: what changes about rounds that decide within, too, and who decides."""

    change: Callable[[Rounds], Rounds] = unchanged
    teacher: type[Teacher] = Teacher

    def of(self, rounds: Rounds) -> Rounds:
        """The package's rounds, decided this way."""
        return self.change(decided_within(rounds))

    @contextmanager
    def decides(self) -> Iterator[None]:
        """Inside, trainings have this teacher."""
        with patch.object(prepare, "Teacher", self.teacher):
            yield


def relabels(**values: Any) -> Callable[[Rounds], Rounds]:
    """Other values of each `Relabel`."""

    def change(rounds: Rounds) -> Rounds:
        return tuple(
            replace(each, relabel=replace(each.relabel, **values)) if each.relabel else each
            for each in rounds
        )

    return change


def told_before(rounds: Rounds) -> Rounds:
    """Only the networks of the round before decide."""
    return relabels(start_epoch=max(each.epochs for each in rounds))(rounds)


def sure_at_end(rounds: Rounds) -> Rounds:
    """The same, and rows are left out of the last round alone."""
    *others, last = told_before(rounds)
    return *relabels(sure=0.0)(others), last


def one_long(rounds: Rounds) -> Rounds:
    """One round in the place of those after the first, as long as all of them, decided from an eighth on."""
    first, *later = rounds
    epochs = sum(each.epochs for each in later)
    last = replace(later[-1], epochs=epochs)
    return relabels(start_epoch=epochs // 8, every=max(1, epochs // 50))((first, last))


def thresholds(rounds: Rounds) -> Rounds:
    """One long round without memory."""
    return relabels(soft=False, sure=0.7, carry=0.0)(one_long(rounds))


WAYS = {
    "within": Way(),
    "all-rows": Way(relabels(sure=0.0)),
    "sure-0.7": Way(relabels(sure=0.7)),
    "sure-0.9": Way(relabels(sure=0.9)),
    "before": Way(told_before),
    "sure-at-end": Way(sure_at_end),
    "all-rows-before": Way(lambda rounds: told_before(relabels(sure=0.0)(rounds))),
    "surest": Way(teacher=Surest),
    "hard": Way(relabels(soft=False)),
    "thresholds": Way(thresholds, Thresholds),
    "thresholds-in-rounds": Way(relabels(soft=False, sure=0.7), Thresholds),
}
