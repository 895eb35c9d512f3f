"""The list of suspects: what is said of each, and the same list as a CSV file or a pandas frame."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tolerant.csv_cells import write_csv
from tolerant.extras import extra
from tolerant.suspects.evidence import Evidence
from tolerant.suspects.rate import RateInterval

if TYPE_CHECKING:
    import pandas

# Of the fields of `Suspects`, those with an entry for each suspect.
_BY_SUSPECT = (
    *("index", "ids", "given_labels", "suggested_labels", "p_y", "confidence", "kept", "pruned_at"),
    "trained_as",
)
_YES_NO = {None: "", True: "yes", False: "no"}


@dataclass(frozen=True, eq=False, repr=False)
class Suspects:
    """The rows a model would label otherwise, most doubtful first; S of the N rows.

    To go on in pandas: ``suspects.to_frame().query("p_right < 0.1")``, or ``pandas.read_csv`` of
    ``suspects.csv`` with ``dtype={"id": str}``. In cleanlab:
    ``CleanLearning(model).fit(X, given_labels, label_issues=suspects.is_suspect)``.
    """

    index: NDArray[np.int64]
    """[S] where each suspect sits in the data set."""
    ids: NDArray[Any]
    given_labels: NDArray[np.int64]
    suggested_labels: NDArray[np.int64]
    """[S] the model's own choice; never the given label."""
    p_y: NDArray[np.float64]
    """[S] the model's probability of the given label."""
    confidence: NDArray[np.float64]
    """[S] the model's probability of the suggested label."""
    kept: NDArray[np.bool_] | None
    """[S] False where training pruned the row; None where nothing was pruned."""
    pruned_at: NDArray[np.int64] | None
    """[S] the epoch before which the row was pruned, -1 where it never was."""
    class_names: tuple[str, ...]
    p_right: NDArray[np.float64]
    """[N], all rows: the probability that the given label is right. What the ranking goes by."""
    noise_rate: RateInterval
    transition: NDArray[np.float64]
    """[C, C] estimated, [i, j] = P(given = j given that true = i); before a review, if that is known."""
    kept_share: float | None
    """The share of all N rows that training kept."""
    trained_as: NDArray[np.int64] | None = None
    """[S] the label that a row was trained under, its own or another; None where rows kept theirs."""
    evidence: Evidence | None = None
    """What the suspects' neighbours say; None where rows are not features in which near means alike."""
    num_reviewed: int = 0
    """How many of the N rows a person has decided. They are never listed."""

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        rate = self.noise_rate
        bound = "at least " if rate.at_least else ""
        return (
            f"Suspects({len(self):,} of {self.num_rows:,} rows, noise rate {bound}{rate.estimate:.3f} "
            f"between {rate.low:.3f} and {rate.high:.3f}; to_frame() lists them)"
        )

    @property
    def num_rows(self) -> int:
        return len(self.p_right)

    @property
    def num_kept(self) -> int:
        """How many of the N rows training kept."""
        return self.num_rows if self.kept_share is None else round(self.kept_share * self.num_rows)

    @property
    def weak(self) -> bool:
        """Most rows are listed: as most labels are right, the model is too weak, and only the top counts."""
        return 2 * len(self) > self.num_rows

    @property
    def is_suspect(self) -> NDArray[np.bool_]:
        """[N] True for the rows listed here."""
        listed = np.zeros(self.num_rows, dtype=np.bool_)
        listed[self.index] = True
        return listed

    def with_lower_bound(self) -> Suspects:
        """The same, with a noise rate that is a lower bound: mistakes that follow a rule do not show."""
        return replace(self, noise_rate=replace(self.noise_rate, at_least=True))

    def head(self, count: int) -> Suspects:
        """The `count` most doubtful; what is about all rows stays."""
        if count < 0:
            raise ValueError(f"count must be at least 0; got {count!r}.")
        first: dict[str, Any] = {}
        for name in _BY_SUSPECT:
            entries = getattr(self, name)
            first[name] = None if entries is None else entries[:count]
        return replace(self, evidence=None if self.evidence is None else self.evidence.head(count), **first)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `suspects.csv`, whole or not at all.

        An id or a label that a spreadsheet could run as a formula gets a leading apostrophe;
        `tolerant.csv_cells.unguard` takes it off.
        """
        as_text: dict[str, Callable[[Any], str]] = {
            **dict.fromkeys(("p_y", "confidence", "p_right"), "{:.4g}".format),
            "kept": _YES_NO.__getitem__,
            "pruned_at": lambda epoch: "" if epoch is None else str(epoch),
        }
        columns = self._columns()
        cells = [list(map(as_text.get(name, str), column)) for name, column in columns.items()]
        write_csv(path, tuple(columns), zip(*cells, strict=True))

    def to_frame(self) -> pandas.DataFrame:
        """The suspects as a pandas frame, with the columns of the CSV."""
        pandas = extra("pandas")
        columns = self._columns()
        for name, dtype in (("kept", "boolean"), ("pruned_at", "Int64")):
            columns[name] = pandas.array(columns[name], dtype=dtype)
        return pandas.DataFrame(columns)

    def _columns(self) -> dict[str, Any]:
        names = np.array(self.class_names, dtype=object)
        return {
            "rank": np.arange(1, len(self) + 1),
            "index": self.index,
            "id": self.ids,
            "given_label": names[self.given_labels],
            "suggested_label": names[self.suggested_labels],
            "p_y": self.p_y,
            "confidence": self.confidence,
            "p_right": self.p_right[self.index],
            "kept": [None] * len(self) if self.kept is None else self.kept,
            "pruned_at": self.prune_epochs(),
            **({} if self.trained_as is None else {"trained_as": self._trained_as(names)}),
            **({} if self.evidence is None else {"note": self.evidence.notes()}),
        }

    def _trained_as(self, names: NDArray[Any]) -> list[str]:
        """Names of labels; empty for a row that was left out."""
        kept = np.ones(len(self), np.bool_) if self.kept is None else self.kept
        return np.where(kept, names[self.trained_as], "").tolist()

    def prune_epochs(self) -> list[int | None]:
        """`pruned_at` with None for never."""
        if self.pruned_at is None:
            return [None] * len(self)
        return [epoch if epoch >= 0 else None for epoch in self.pruned_at.tolist()]
