"""Which label each row trains under: its own, another one, or none.

A row's true label is a matter of what the model says of its inputs and of how labels go wrong. If the model
gives class c the probability p_c, and a row of class c is called y with probability T[c, y], then by Bayes

    P(c | inputs, given label y)  =  p_c T[c, y] / sum_b p_b T[b, y]

T is not known. Its likeliest value is no help: "the row is hard and its label right" explains a label as well
as "the row is easy and its label wrong" (`tolerant.suspects.anchors`). So T is counted: of the rows that the
model takes for class c and is surest of, how many are called y? With that T, predictions are sharpened or
flattened by the temperature that makes the given labels most likely, for mixup makes a model less sure than
it is right, and L_q surer.

Nothing is set by hand for a kind of noise. Where labels are right, T is near the identity, and a given label
outweighs any model. Where four in ten cats are called dogs, a given "dog" says nearly nothing between the
two, and still rules out lorries.

Rows of which neither model nor label makes one class probable are left out, until a later look. A network
that learns a wrong label finds it right afterwards, and so do its successors; of rows that it has not learnt
it can still say which label they have.

Of 10,000 photographs, people had labelled 59.7 % rightly. By the predictions of folds, the likeliest T and
temperature together name the right label of 71.5 %, a counted T of 83.1 %, the true T of 83.5 %
(results/bench/relabel.jsonl).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tolerant.checks import Domain, check_whole, unwrap_numbers
from tolerant.train.engine.device import Arriving
from tolerant.train.engine.mixup import one_hot

# The share of the rows taken for a class whose labels are counted, the surest first. Not fewer: people
# mislabel less of the surest quarter than of the others, and a model is surest where it agrees with what it
# was taught. Not all: the least sure rows are of other classes.
_SUREST = 0.7
_FIRST_RIGHT = 0.6  # of labels, before anything is known
_LEAST_P = 1e-6  # a model that rules out a class altogether is not believed
_TEMPERATURES = tuple(2.0 ** (half / 2) for half in range(-4, 5))  # 0.25 to 4
# A model that names the given label of a row no oftener than this, in the mean over classes and between
# guessing (0) and always (1), has learnt nothing that it could teach.
_LEAST_AGREEMENT = 0.05
_SHARE = Domain(0, 1, open_high=True)
_LEAST_OF_CLASS = 0.25  # of the rows given as a class; with fewer under its label they keep their own


@dataclass(frozen=True, kw_only=True)
class Relabel:
    """Decide before epoch ``start_epoch`` and then every ``every`` epochs what each row trains under.

    In a round that follows another one, the model before decides before the first epoch; it alone, if
    ``start_epoch`` is not before the round's end.

    >>> relabel = Relabel(start_epoch=20, every=3)
    >>> [epoch for epoch in range(30) if relabel.due(epoch)]
    [20, 23, 26, 29]
    """

    start_epoch: int = 16
    every: int = 3
    soft: bool = True
    """Rows train under the probabilities of all labels; otherwise under the most probable label alone."""
    sure: float = 0.8
    """A row whose most probable label is less probable than this is left out: a network that does not learn
    it judges it better next time. 0 leaves none out."""
    carry: float = 0.5
    """How much of the last decision's probabilities counts in the next: one epoch's mood decides nothing."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        check_whole(self.start_epoch, "start_epoch", least=0)
        check_whole(self.every, "every", least=1)
        if not isinstance(self.soft, bool):
            raise ValueError(f"soft must be true or false; got {self.soft!r}.")
        for name in ("sure", "carry"):
            _SHARE.check(name, getattr(self, name))

    def due(self, epoch: int) -> bool:
        """Whether to decide before ``epoch``, counted from 0."""
        return epoch >= self.start_epoch and (epoch - self.start_epoch) % self.every == 0


class Teacher:
    """What each row trains under, from what models say of it."""

    def __init__(
        self,
        relabel: Relabel,
        given_labels: Tensor,
        num_classes: int,
        *,
        follows: bool = False,
        trusted: np.ndarray | None = None,
    ) -> None:
        self.relabel, self._follows = relabel, follows
        self._given, self._num_classes = given_labels, num_classes
        device = given_labels.device
        self._trusted = None if trusted is None else torch.from_numpy(trusted).to(device)
        self.targets = one_hot(given_labels, num_classes) if relabel.soft else given_labels.clone()
        """float32 (N, C) or int64 [N], what each row trains under; always the same tensor, on the device."""
        self.kept = torch.ones(len(given_labels), dtype=torch.bool)
        """bool [N], on the host: False for rows that are left out."""
        self.labels_on_host = given_labels.cpu()
        """int64 [N]: the most probable labels."""
        self._given_on_host = self.labels_on_host
        self._probs: Tensor | None = None

    def due(self, epoch: int) -> bool:
        """Whether to decide before ``epoch`` of this round, counted from 0."""
        return (self._follows and epoch == 0) or self.relabel.due(epoch)

    @torch.no_grad()
    def decide(self, probs: Tensor) -> None:
        """Take in what a model says of the rows, (N, C); `arrive` then brings the decision to the host."""
        probs = probs.clamp_min(_LEAST_P)
        given = one_hot(self._given, self._num_classes)
        if self._probs is not None:
            probs = torch.lerp(probs, self._probs, self.relabel.carry)
        self._probs = probs
        post = self.judge(probs, given)
        fixed = self._fixed(probs, post, given)
        post = torch.where(fixed[:, None], given, post)
        kept = self.keep(post)
        label = torch.where(kept, post.argmax(1), self._given)
        self.targets.copy_(post if self.relabel.soft else label)
        self._arriving = Arriving(torch.stack([kept.long(), label]))

    def judge(self, probs: Tensor, given: Tensor) -> Tensor:
        """float32 (N, C): how probable each label is, by what the model says and the given ones, one-hot."""
        return posterior(probs, given, count_transition(probs, given))

    def keep(self, post: Tensor) -> Tensor:
        """bool [N]: the rows that train, by how probable their labels are."""
        return post.amax(1) >= self.relabel.sure

    def arrive(self) -> Generator[bool, None, None]:
        """Yields False until the decision is on the host."""
        kept, self.labels_on_host = yield from self._arriving.wait()
        self.kept = kept.bool()

    @property
    def relabelled_fraction(self) -> float:
        """The share of rows whose most probable label is not the given one."""
        return float((self.labels_on_host != self._given_on_host).double().mean())

    def _fixed(self, probs: Tensor, post: Tensor, given: Tensor) -> Tensor:
        """bool [N]: rows that train under their given label, whatever the model says.

        All of them if the model is too weak to teach; those of a class that would all but vanish; and those
        that somebody has checked.
        """
        sizes = given.sum(0)
        agrees = (probs.argmax(1) == self._given).float() @ given
        agreement = (agrees / sizes.clamp_min(1)).sum() / (sizes > 0).sum()
        chance = 1 / self._num_classes
        weak = (agreement - chance) / (1 - chance) < _LEAST_AGREEMENT
        vanishing = (post * self.keep(post)[:, None]).sum(0) < _LEAST_OF_CLASS * sizes
        fixed = vanishing[self._given] | weak
        return fixed if self._trusted is None else fixed | self._trusted

    def state_dict(self) -> dict[str, Tensor]:
        """What the next decisions follow from."""
        state = {"targets": self.targets, "kept": self.kept, "labels": self.labels_on_host}
        return state if self._probs is None else state | {"probs": self._probs}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a ``state_dict`` of the same rows."""
        self.targets.copy_(state["targets"])
        self.kept, self.labels_on_host = state["kept"], state["labels"]
        if "probs" in state:
            self._probs = state["probs"].to(self.targets.device)


def count_transition(probs: Tensor, given: Tensor, surest: float = _SUREST) -> Tensor:
    """T, (C, C), by the given labels, one-hot, of the rows that the model is surest of: this share.

    >>> sure = torch.eye(2).repeat_interleave(50, 0).clamp(1e-6)  # fifty rows a class
    >>> labels = torch.arange(100) // 50
    >>> labels[4:50:5] = 1  # ten are called wrongly
    >>> count_transition(sure, one_hot(labels, 2)).round(decimals=2)
    tensor([[0.7900, 0.2100],
            [0.0100, 0.9900]])
    """
    num_classes, top = probs.shape[1], probs.topk(2, 1)
    choice, (first, second) = top.indices[:, 0], top.values.unbind(1)
    order = (second / first).argsort(stable=True)
    order = order[choice[order].argsort(stable=True)]  # class by class, the surest rows first
    choice = choice[order]
    taken = one_hot(choice, num_classes)
    num_taken = taken.sum(0)
    place = torch.arange(len(order), device=probs.device) - (num_taken.cumsum(0) - num_taken)[choice]
    counted = place < surest * num_taken[choice]
    counts = (taken * counted[:, None]).T @ given[order]
    # As much as one row more: of a class that the model takes no row for, nothing is known.
    wrong = (1 - _FIRST_RIGHT) / (num_classes - 1)
    counts += torch.full_like(counts, wrong).fill_diagonal_(_FIRST_RIGHT)
    return counts / counts.sum(1, keepdim=True)


def posterior(probs: Tensor, given: Tensor, transition: Tensor) -> Tensor:
    """P(true label | inputs, given label), (N, C), at the temperature that makes the labels likeliest.

    ``given`` are the given labels, one-hot.
    """
    log_probs, by_label = probs.log(), given @ transition.T
    best, most = probs, probs.new_full((), -math.inf)
    for temperature in _TEMPERATURES:
        joint = torch.softmax(log_probs / temperature, 1) * by_label
        likelihood = joint.sum(1).log().mean()
        better = likelihood > most  # on the device: no look at a value
        most, best = torch.where(better, likelihood, most), torch.where(better, joint, best)
    return best / best.sum(1, keepdim=True)
