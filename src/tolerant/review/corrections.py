"""The decisions of a reviewer, checked against the data and applied to its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Correction:
    """One decision; `given_label` and `decision` are None if a hand-written file leaves them out."""

    id: str
    new_label: str
    given_label: str | None = None
    decision: str | None = None


@dataclass(frozen=True)
class CorrectedLabels:
    """The labels after review."""

    given_labels: NDArray[np.int64]
    """[N] with the reviewer's labels put in."""
    reviewed: NDArray[np.bool_]
    """[N] True where a person decided, for the given label or against it."""
    changed: NDArray[np.bool_]
    """[N] True where the label is now another one."""


def apply_corrections(
    given_labels: ArrayLike,
    corrections: Sequence[Correction],
    *,
    ids: ArrayLike,
    class_names: Sequence[str],
) -> CorrectedLabels:
    """Put reviewed labels into `given_labels`; nothing is applied unless everything fits.

    A ValueError for an id or a label that the data does not have, for an id decided twice, and for a given
    label other than the data's (the file was made for other labels), unless the data already has the new one.

    >>> fixed = apply_corrections([0, 1, 1], [Correction("b.png", "cat")],
    ...                           ids=["a.png", "b.png", "c.png"], class_names=("cat", "dog"))
    >>> fixed.given_labels.tolist(), fixed.changed.tolist()
    ([0, 0, 1], [False, True, False])
    """
    labels = np.array(given_labels, dtype=np.int64)
    row_of = {str(row_id): row for row, row_id in enumerate(np.asarray(ids).tolist())}
    if len(row_of) != labels.size:
        raise ValueError(
            f"ids must name each of the {labels.size} rows once; got {len(row_of)} different ids."
        )
    label_of = {str(name): label for label, name in enumerate(class_names)}
    _check_known("id", [c.id for c in corrections], row_of)
    _check_known("label", [c.new_label for c in corrections], label_of)

    before = labels.copy()
    reviewed = np.zeros(labels.size, dtype=np.bool_)
    for correction in corrections:
        row = row_of[correction.id]
        if reviewed[row]:
            raise ValueError(f"the id {correction.id!r} occurs twice; leave one decision for each id.")
        found = str(class_names[before[row]])
        if correction.given_label not in (None, found) and correction.new_label != found:
            raise ValueError(
                f"the corrections say that {correction.id!r} was labelled "
                f"{correction.given_label!r}, but the data says {found!r}: "
                "they were made for other labels; review the present ones instead."
            )
        labels[row] = label_of[correction.new_label]
        reviewed[row] = True
    return CorrectedLabels(labels, reviewed, labels != before)


def _check_known(what: str, values: Sequence[str], known: Mapping[str, int]) -> None:
    unknown = list(dict.fromkeys(value for value in values if value not in known))
    if unknown:
        shown = ", ".join(repr(value) for value in unknown[:3])
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        article = "an" if what == "id" else "a"
        first = ", ".join(repr(value) for value in list(known)[:3])
        raise ValueError(
            f"the corrections have {article} {what} that the data does not have: {shown}{more}; "
            f"the data's {what}s start with {first}."
        )
