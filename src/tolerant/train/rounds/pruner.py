r"""Pruning: the w-step of the paper's alternating search (algorithm 1), for any training loop.

Truncated L_q is minimised by turns (Zhang & Sabuncu 2018, eq. 13): train on the kept rows, then
keep the rows whose given label the model believes with p_y > k. A loop needs two lines::

    if schedule.due(epoch):
        pruner.update(ids, p_y)  # of the best noisy-validation model, eval mode, plain inputs

For fixed parameters the best w_i is 1 where p_y > k and 0 where p_y < k. At p_y = k both give the
same objective; the paper's text keeps such a row (section 3.3, "f >= k"), but its truncated loss
gives it no gradient (eq. 9, "f <= k"). Here it is pruned, so that pruning and loss agree.

The search never increases the objective and ends where neither step helps. That need not be the
global minimum the paper promises for convex losses: with 60 labels "1", 40 labels "0", a constant
prediction, cross entropy and k = 0.3 it stops at p = (0.6, 0.4), everything kept, objective -53.1;
pruning the 40 would give -72.2 (``tests/test_theory.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tolerant.train.rounds.gather import gather_rows
from tolerant.train.rounds.guards import Guards
from tolerant.train.rounds.pruner_input import number_ids, read_p_y, read_positions, small_labels
from tolerant.train.rounds.sampler import KeptSampler
from tolerant.train.rounds.schedule import check_k

_BLOCK = 1 << 20  # rows counted at once: temporaries stay at 8 MiB for any number of rows


class Pruner:
    r"""Which rows train: all of them at first, then those whose last reported p_y is above ``k``.

    Args:
        ids_or_num_rows: the number of rows N, whose ids are then 0 .. N-1 (state: 5 bytes per row, 1
            to 4 more with labels); or their ids, any distinct hashable values such as file names
            (a dictionary besides, about 100 bytes per row).
        given_labels: int [N]. A class that would lose all its rows (without labels: the whole set) keeps
            the one of highest p_y, of equals the first, with a warning.
        k: threshold in (0, 1). p_y and k are compared in float32.
        guards: how much an update may prune; None prunes all that p_y <= k says.
        class_names: by which messages call the classes; their numbers if not given.

    Under ``torch.distributed``, ``update`` is a collective: every rank calls it with the rows it
    has scored, possibly none, and all ranks end in the same state.

    >>> pruner = Pruner(["a.png", "b.png", "c.png"], k=0.5)
    >>> pruner.update(["c.png", "a.png"], torch.tensor([0.5, 0.9]))
    True
    >>> pruner.kept  # a: 0.9 > k; b: not scored yet; c: 0.5 is not above k
    tensor([ True,  True, False])
    >>> list(pruner.sampler(order=[2, 1, 0]))
    [1, 0]
    """

    def __init__(
        self,
        ids_or_num_rows: int | Sequence[Hashable] | np.ndarray | Tensor,
        given_labels: Sequence[int] | np.ndarray | Tensor | None = None,
        *,
        k: float = 0.5,
        guards: Guards | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        check_k(k)
        self.k = float(k)
        self.guards = guards
        self.num_rows, self._position, self._digest = number_ids(ids_or_num_rows)
        self._labels = None if given_labels is None else small_labels(given_labels, self.num_rows)
        self._p_y = np.full(self.num_rows, np.nan, dtype=np.float32)  # NaN: not scored yet
        self._kept = np.ones(self.num_rows, dtype=np.bool_)
        self._kept_is_lent = False
        self._rescued = np.empty(0, dtype=np.int64)
        self._above = self._count_kept()  # by class: rows kept by the rule p_y > k alone
        self._class_sizes = self._above.copy()
        self._names = list(map(str, range(len(self._above)) if class_names is None else class_names))
        if len(self._names) < len(self._above):
            raise ValueError(
                f"class_names must name the {len(self._above)} classes of given_labels; "
                f"got {len(self._names)} names."
            )

    def __repr__(self) -> str:
        return f"Pruner({self.num_rows} rows, {self.num_kept} kept, k={self.k})"

    @property
    def kept(self) -> Tensor:
        """bool [N], True trains. Read only; a later ``update`` does not change this tensor."""
        self._kept_is_lent = True
        return torch.from_numpy(self._kept)

    @property
    def num_kept(self) -> int:
        return int(self._above.sum()) + len(self._rescued)

    @property
    def rescued(self) -> Tensor:
        """int64: the rows kept although p_y <= k, since their class would have kept none."""
        return torch.from_numpy(self._rescued.copy())

    @property
    def p_y(self) -> Tensor:
        """float32 [N]: the last reported probability of the given label, NaN where none is."""
        return torch.from_numpy(self._p_y.copy())

    @property
    def weights(self) -> Tensor:
        """float32 [N], 1 where kept and 0 elsewhere: for loops that weigh rows, not skip them.

        For a batch: ``loss(logits, labels, sample_weight=pruner.weights[pruner.index(ids)])``.
        """
        return torch.from_numpy(self._kept.astype(np.float32))

    def index(self, ids: Iterable[Hashable] | np.ndarray | Tensor) -> Tensor:
        """int64 [n]: where the rows of these ids sit in ``kept`` and in the data set."""
        return torch.tensor(self._index(ids), device="cpu")

    def update(
        self,
        ids: Iterable[Hashable] | np.ndarray | Tensor,
        p_y: Sequence[float] | np.ndarray | Tensor,
    ) -> bool:
        """Take in p_y of some or all rows and decide anew; the other rows keep their last state.

        Of an id named twice the last value counts; of an id named by two ranks, the same one's
        value on every rank. Returns whether it counts: False where ``guards`` left it out.
        """
        error: Exception | None = None
        index, values = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        try:
            index = self._index(ids)
            values = read_p_y(p_y, len(index))
        except (TypeError, ValueError) as e:
            error = e  # raised once all ranks have met, or the others would wait for ever
        pieces = gather_rows(index, values, self.num_rows, error)
        self._own_kept()
        self._kept[self._rescued] = False
        before: list[tuple[np.ndarray, np.ndarray]] = []
        guards = self.guards
        for index, values in pieces:
            if guards is not None:
                before.append((index, self._p_y[index]))
            self._write(index, values)
        pruned = self._class_sizes - self._above
        if guards is not None and guards.hold_back(int(pruned.sum()), self.num_rows):
            self._take_back(before)
            self._rescue()
            return False
        if guards is not None and self._labels is not None:
            self._take_back(before, guards.held_classes(pruned, self._class_sizes))
        missing = self._rescue()
        if missing:
            num_rows = len(self._rescued)
            warnings.warn(f"{missing}; its rows of highest p_y ({num_rows}) stay.", stacklevel=2)
        return True

    def sampler(
        self,
        order: Sequence[int] | np.ndarray | Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> KeptSampler:
        """A ``DataLoader`` sampler of the kept rows, asked anew at the start of every epoch.

        It filters an order of ALL rows, so that pruning some leaves the order of the others as it
        was: ``order`` where given, else a fresh permutation per epoch from ``generator`` (default:
        torch's global one). With several ranks each takes its share, all of equal length.
        """
        return KeptSampler(self, order, generator, num_replicas, rank)

    def state_dict(self) -> dict[str, Any]:
        """A tensor, numbers and strings, from which ``kept`` follows."""
        return {"p_y": self.p_y, "k": self.k, "num_rows": self.num_rows, "ids": self._digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; refused where its rows, ids or k are not these."""
        for name, own in (("num_rows", self.num_rows), ("ids", self._digest), ("k", self.k)):
            if state.get(name) != own:
                raise ValueError(
                    f"{name} of the pruning state is {state.get(name)!r}, of this Pruner {own!r}. "
                    "Build it from the same ids in the same order, with the same k."
                )
        p_y = torch.as_tensor(state["p_y"], dtype=torch.float32, device="cpu").numpy()
        if p_y.shape != self._p_y.shape:
            raise ValueError(f"p_y must have shape {self._p_y.shape}; got {p_y.shape}.")
        self._p_y = p_y.copy()
        self._decide()

    def _index(self, ids: Iterable[Hashable] | np.ndarray | Tensor) -> np.ndarray:
        if self._position is None:
            return read_positions("ids", ids, self.num_rows)
        names = ids.tolist() if isinstance(ids, np.ndarray | Tensor) else ids
        try:
            return np.array([self._position[row_id] for row_id in names], dtype=np.int64)
        except KeyError as e:
            raise ValueError(
                f"ids must be among those this Pruner was built with; got {e.args[0]!r}."
            ) from None

    def _own_kept(self) -> None:
        """Before a change: copy `kept` if it was handed out, since that tensor must not change."""
        if self._kept_is_lent:
            self._kept = self._kept.copy()
            self._kept_is_lent = False

    def _write(self, index: np.ndarray, values: np.ndarray) -> None:
        # Of a row named twice the last value counts, and it must be counted once. Sorting would
        # cost 10 times the rest, so every row notes the last place that names it, in the four
        # bytes of its p_y, which is about to be overwritten.
        place = np.arange(len(index), dtype=np.uint32)
        note = self._p_y.view(np.uint32)
        note[index] = place
        last = note[index] == place
        if not last.all():
            index, values = index[last], values[last]
        self._above -= self._tally(index[self._kept[index]])
        self._p_y[index] = values
        self._kept[index] = self._rule(values)
        self._above += self._tally(index[self._kept[index]])

    def _take_back(
        self, before: list[tuple[np.ndarray, np.ndarray]], classes: np.ndarray | None = None
    ) -> None:
        """Give the rows of these classes (None: all) the p_y from before an update."""
        for index, values in reversed(before):
            if classes is not None and self._labels is not None:
                theirs = classes[self._labels[index]]
                index, values = index[theirs], values[theirs]
            self._write(index, values)

    def _rule(self, p_y: np.ndarray) -> np.ndarray:
        return ~(p_y <= np.float32(self.k))  # not "p_y > k": NaN, a row without a score, is kept

    def _tally(self, index: np.ndarray) -> np.ndarray:
        if self._labels is None:
            return np.array([len(index)])
        return np.bincount(self._labels[index], minlength=len(self._above))

    def _count_kept(self) -> np.ndarray:
        if self._labels is None:
            return np.array([np.count_nonzero(self._kept)])
        counts = np.zeros(int(self._labels.max()) + 1, dtype=np.int64)
        for block in _blocks(self.num_rows):
            labels = self._labels[block][self._kept[block]]
            counts += np.bincount(labels, minlength=len(counts))
        return counts

    def _decide(self) -> None:
        """Decide about all rows from their p_y."""
        self._own_kept()
        for block in _blocks(self.num_rows):
            self._kept[block] = self._rule(self._p_y[block])
        self._above = self._count_kept()
        self._rescue()

    def _rescue(self) -> str:
        """Give each class that has no row its best one back; returns what would be missing, or ""."""
        lost = np.flatnonzero((self._above == 0) & (self._class_sizes > 0))
        self._rescued = self._best_of(lost) if len(lost) else np.empty(0, dtype=np.int64)
        self._kept[self._rescued] = True
        if not len(lost):
            return ""
        names = ", ".join(self._names[label] for label in lost[:10]) + (" ..." if len(lost) > 10 else "")
        of = "" if self._labels is None else f" of class {names}"
        return f"pruning at k={self.k} would keep no row{of}"

    def _best_of(self, lost: np.ndarray) -> np.ndarray:
        """The row of highest p_y, of equals the first, of each of these classes; all its rows are pruned."""
        if self._labels is None:
            return np.array([self._p_y.argmax()])
        wanted = np.zeros(len(self._above), dtype=np.bool_)
        wanted[lost] = True
        rows = np.flatnonzero(wanted[self._labels])
        # Sorted once, by class and then p_y: a search for the rows of each class costs rows times classes.
        rows = rows[np.lexsort((-self._p_y[rows], self._labels[rows]))]
        best: np.ndarray = rows[np.searchsorted(self._labels[rows], lost)]
        return best


def _blocks(num_rows: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, num_rows, _BLOCK))
