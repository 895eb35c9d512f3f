"""Which labels are probably wrong, most doubtful first, and how many in all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.csv_cells import csv_text
from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.noise.estimate import check_probs
from tolerant.suspects.arguments import check_names, read_ids, read_labels, read_optional
from tolerant.suspects.arrays import as_numpy
from tolerant.suspects.noise_model import fit_noise_model
from tolerant.suspects.rate import RateInterval, rate_interval

if TYPE_CHECKING:
    import pandas

FIT_ROWS = 20_000  # rows that the noise model is fitted to: a sampling error of 0.4 points at most
_COLUMNS = (
    "rank",
    "index",
    "id",
    "given_label",
    "suggested_label",
    "p_y",
    "confidence",
    "p_right",
    "kept",
    "pruned_at",
)


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
    num_reviewed: int = 0
    """Of the N rows, those whose label a person has decided. They are never listed."""

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        rate = self.noise_rate
        return (
            f"Suspects({len(self):,} of {self.num_rows:,} rows, noise rate {rate.estimate:.3f} between "
            f"{rate.low:.3f} and {rate.high:.3f}; to_frame() lists them)"
        )

    @property
    def num_rows(self) -> int:
        return len(self.p_right)

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

    def head(self, count: int) -> Suspects:
        """The `count` most doubtful; what is about all rows stays."""
        if count < 0:
            raise ValueError(f"count must be at least 0; got {count!r}.")
        return replace(
            self,
            index=self.index[:count],
            ids=self.ids[:count],
            given_labels=self.given_labels[:count],
            suggested_labels=self.suggested_labels[:count],
            p_y=self.p_y[:count],
            confidence=self.confidence[:count],
            kept=None if self.kept is None else self.kept[:count],
            pruned_at=None if self.pruned_at is None else self.pruned_at[:count],
        )

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `suspects.csv`, whole or not at all.

        An id or a label that a spreadsheet could run as a formula gets a leading apostrophe;
        `tolerant.csv_cells.unguard` takes it off.
        """
        write_atomic(path, csv_text(_COLUMNS, self._records()))

    def to_frame(self) -> pandas.DataFrame:
        """The suspects as a pandas frame, with the columns of the CSV."""
        pandas = extra("pandas")
        names = np.array(self.class_names, dtype=object)
        columns: tuple[Any, ...] = (
            np.arange(1, len(self) + 1),
            self.index,
            self.ids,
            names[self.given_labels],
            names[self.suggested_labels],
            self.p_y,
            self.confidence,
            self.p_right[self.index],
            pandas.array([None] * len(self) if self.kept is None else self.kept, dtype="boolean"),
            pandas.array(self.prune_epochs(), dtype="Int64"),
        )
        return pandas.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))

    def _records(self) -> list[list[str]]:
        kept = [None] * len(self) if self.kept is None else self.kept.tolist()
        words = {None: "", True: "yes", False: "no"}
        epochs = self.prune_epochs()
        return [
            [
                str(rank + 1),
                str(self.index[rank]),
                str(self.ids[rank]),
                self.class_names[self.given_labels[rank]],
                self.class_names[self.suggested_labels[rank]],
                f"{self.p_y[rank]:.4g}",
                f"{self.confidence[rank]:.4g}",
                f"{self.p_right[self.index[rank]]:.4g}",
                words[kept[rank]],
                "" if epochs[rank] is None else str(epochs[rank]),
            ]
            for rank in range(len(self))
        ]

    def prune_epochs(self) -> list[int | None]:
        """`pruned_at` with None for never."""
        if self.pruned_at is None:
            return [None] * len(self)
        return [epoch if epoch >= 0 else None for epoch in self.pruned_at.tolist()]


def find_suspects(
    given_labels: ArrayLike,
    probs: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    kept: ArrayLike | None = None,
    pruned_at: ArrayLike | None = None,
    reviewed: ArrayLike | None = None,
    original_labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> Suspects:
    """Rank the rows whose given label a model does not believe.

    Args:
        given_labels: int [N]; or words, all of them among ``class_names``.
        probs: [N, C] predictions of models that did NOT train on the row they score, from
            cross-validation or a held-out part. In the end a network fits even the wrong labels it
            trains on: scored on its own training rows, it believes them and they are missed. Train without
            class weights: with them rare classes seem frequent, and rows between two classes wrong.
        ids: [N] what a person calls each row, all different; row numbers if not given.
        class_names: C names, all different; "0", "1", ... if not given.
        kept: bool [N], False for rows that were pruned at the end of training.
        pruned_at: int [N], the epoch before which a row was pruned, 0 for before training, -1 for never.
        reviewed: bool [N], True where a person has decided the label, which is then taken as right:
            the row is not listed, and noise rate and transition come from the others.
        original_labels: [N] like given_labels, as they were before the review. The noise is then fitted to
            these. Without them it is fitted to the rows that nobody has reviewed, and after a review of the
            most doubtful ones it is estimated far too low: the surest mistakes are gone.
        groups: [N] words or numbers: rows of one group were labelled together, such as the pictures of a
            patient, and the interval of the noise rate is so much wider.
        seed: of the resampling behind the interval, and of the rows the noise is fitted to when
            there are more than 20,000.

    A row is listed when the model's first choice is another label. The order is by the probability
    that the given label is right, which follows from p_y and from which labels are often mistaken for
    which, estimated from the same predictions (:mod:`tolerant.suspects.noise_model`).

    >>> probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.95, 0.05]])
    >>> suspects = find_suspects([0, 1, 0, 0], probs, class_names=("cat", "dog"))
    >>> [(s, suspects.class_names[label]) for s, label in
    ...  zip(suspects.index.tolist(), suspects.suggested_labels)]
    [(2, 'dog')]
    """
    probs = check_probs(as_numpy(probs))
    num_rows, num_classes = probs.shape
    names = check_names(class_names, num_classes)
    named = class_names is not None
    given = read_labels("given_labels", as_numpy(given_labels), num_rows, names, named=named)
    original = None
    if original_labels is not None:
        original = read_labels("original_labels", as_numpy(original_labels), num_rows, names, named=named)
    row_ids = read_ids(ids, num_rows)
    kept_rows = read_optional("kept", kept, num_rows, np.bool_)
    epochs = read_optional("pruned_at", pruned_at, num_rows, np.int64)
    decided = read_optional("reviewed", reviewed, num_rows, np.bool_)
    if decided is None:
        decided = np.zeros(num_rows, np.bool_)
    together = None if groups is None else np.asarray(as_numpy(groups))
    if together is not None and together.shape != (num_rows,):
        raise ValueError(f"groups must have a value for each of {num_rows} rows; got shape {together.shape}.")

    generator = np.random.default_rng(seed)
    sample = np.arange(num_rows)
    if original is None and not decided.all():
        sample = np.flatnonzero(~decided)
    if len(sample) > FIT_ROWS:
        sample = np.sort(generator.choice(sample, FIT_ROWS, replace=False))
    counted = ~decided[sample]
    if not counted.any():  # of no rows there is no share
        counted[:] = True
    fit_labels = given if original is None else np.where(decided, original, given)
    model = fit_noise_model(fit_labels[sample], probs[sample])
    log_odds = model.log_odds_right(given, probs)
    log_odds[decided] = np.inf
    rate = rate_interval(
        model,
        fit_labels[sample],
        probs[sample],
        generator,
        groups=None if together is None else together[sample],
        counted=counted,
    )

    choice = probs.argmax(axis=1)
    index = np.flatnonzero((choice != given) & ~decided)
    index = index[np.argsort(log_odds[index], kind="stable")]
    return Suspects(
        index=index,
        ids=row_ids[index],
        given_labels=given[index],
        suggested_labels=choice[index].astype(np.int64),
        p_y=probs[index, given[index]].astype(np.float64),
        confidence=probs[index, choice[index]].astype(np.float64),
        kept=None if kept_rows is None else kept_rows[index],
        pruned_at=None if epochs is None else epochs[index],
        class_names=names,
        p_right=1.0 / (1.0 + np.exp(-log_odds)),
        noise_rate=rate.times(float(np.mean(~decided))),
        transition=model.transition,
        kept_share=None if kept_rows is None else float(kept_rows.mean()),
        num_reviewed=int(decided.sum()),
    )
