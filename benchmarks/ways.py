"""Ways to decide under which label a row trains, which bench_relabel and bench_rounds try.

Each is a change of the rounds, a `Teacher` with another decision, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tolerant.train import Round
from tolerant.train.engine import prepare
from tolerant.train.engine.mixup import one_hot
from tolerant.train.rounds.relabel import Teacher, count_transition, posterior

Rounds = Sequence[Round]


class Sure(Teacher):
    """Shares of labels, but rows whose largest is under `sure` are left out."""

    def keep(self, post: Tensor) -> Tensor:
        return post.amax(1) >= self.relabel.sure


class Balanced(Teacher):
    """Of the rows that go by a label, the surest four fifths: as many of easy classes as of hard ones."""

    def keep(self, post: Tensor) -> Tensor:
        largest, label = post.max(1)
        order = largest.argsort(descending=True, stable=True)
        order = order[label[order].argsort(stable=True)]
        sizes = one_hot(label, post.shape[1]).sum(0)
        place = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[label[order]]
        kept = torch.zeros_like(order, dtype=torch.bool)
        kept[order] = place < 0.8 * sizes[label[order]]
        return kept


class Tempered(Teacher):
    """The shares' square root: half as sure."""

    def judge(self, probs: Tensor, given: Tensor) -> Tensor:
        return torch.softmax(super().judge(probs, given).clamp_min(1e-9).log() / 2, 1)


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
    """How labels are decided: what changes about the rounds, and who decides."""

    change: Callable[[Rounds], Rounds] = unchanged
    teacher: type[Teacher] = Teacher

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
    """Only the network of the round before decides."""
    return relabels(start_epoch=max(each.epochs for each in rounds))(rounds)


def one_long(rounds: Rounds) -> Rounds:
    """One round in the place of those after the first, as long as all of them, decided from an eighth on."""
    first, *later = rounds
    epochs = sum(each.epochs for each in later)
    last = replace(later[-1], epochs=epochs)
    return relabels(start_epoch=epochs // 8, every=max(1, epochs // 50))((first, last))


def robust(rounds: Rounds) -> Rounds:
    """L_q with a small q in the place of cross entropy, against labels that are surer than right."""
    return rounds[0], *(replace(each, loss="lq", loss_args={"q": 0.4}) for each in rounds[1:])


def thresholds(rounds: Rounds) -> Rounds:
    """One long round without memory."""
    return relabels(soft=False, carry=0.0)(one_long(rounds))


WAYS = {
    "ours": Way(),
    "surest": Way(teacher=Surest),
    "hard": Way(relabels(soft=False)),
    "thresholds": Way(thresholds, Thresholds),
    "one-long": Way(one_long),
    "before": Way(told_before),
    "surest-before": Way(told_before, Surest),
    "sure": Way(teacher=Sure),
    "surer": Way(relabels(sure=0.9), Sure),
    "doubts": Way(relabels(soft=False), Thresholds),
    "robust": Way(robust),
    "slow": Way(relabels(carry=0.8)),
    "tempered": Way(teacher=Tempered),
    "balanced": Way(teacher=Balanced),
}
