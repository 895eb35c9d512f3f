"""How much a round may prune before its model is taken to be too weak to judge."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tolerant.checks import Domain, unwrap_numbers

_SHARE = Domain(0, 1, open_low=True, way_out="To train on all rows, do not prune.")


@dataclass(frozen=True, kw_only=True)
class Guards:
    """Limits of a round: labels are taken to be mostly right, and so are those of each class.

    They hold for the rows that p_y <= k would leave out after the round, before a class that loses all its
    rows gets its best ones back. Nothing is limited by ``None`` in their place, as in the paper.

    >>> Guards().hold_back(pruned=6, num_rows=10), Guards(at_most=0.7).hold_back(pruned=6, num_rows=10)
    (True, False)
    """

    # 2,000 rows of CIFAR-10, 40 % noise, q 0.7, means of seeds 20 to 22, with this limit, without it, cross
    # entropy: uniform 44.7, 38.9, 43.3 %; class-dependent 41.8, 39.4, 44.9 %
    # (results/bench/pictures_cpu.jsonl).
    at_most: float = 0.5
    """A round that would prune more than this share of all rows is left out, and all stay as they were."""
    # A model rightly gives a rare class little of a row's probability where the two overlap; pruned, the
    # class is unlearnt. Not a half: where a rare class gets a share of a frequent one's labels by mistake,
    # most of what carries its name is wrong.
    class_at_most: float = 0.75
    """The rows of a class of which a round would prune more than this share stay as they were."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        for field in fields(self):
            _SHARE.check(field.name, getattr(self, field.name))

    def hold_back(self, pruned: int, num_rows: int) -> bool:
        """Whether a round after which so many of all rows would be pruned is left out."""
        return pruned / num_rows > self.at_most

    def held_classes(self, pruned: np.ndarray, num_rows: np.ndarray) -> np.ndarray:
        """bool [C]: the classes whose rows stay as they were, given those pruned and all, by class."""
        held: np.ndarray = pruned / np.maximum(num_rows, 1) > self.class_at_most
        return held


MOSTLY_RIGHT = Guards()  # the default for labels that nobody has counted
