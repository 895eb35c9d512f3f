"""What the neighbours of a suspect say, where rows are features in which near means alike.

Similarity is the cosine of the angle between two rows, seen from the mean of all. Up to 50,000 rows every
candidate is looked at; of more, 50,000 are drawn, since three good examples are enough for a person to see
why, and an approximate index would be one more library for a gain that nobody sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tolerant.suspects.suspect_list import Suspects

EXAMPLES = 3
_MOST_CANDIDATES = 50_000
_MOST_SUSPECTS = 5_000  # as many as the page shows
_CHUNK = 512
# Of 5,000 photographs of CIFAR-10, by `lite0`, the 16 nearest pairs down to here show the same thing twice.
_TWIN = 0.87
_FAR = 4.0  # median deviations below the median of how near a row's neighbours are
_NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class Evidence:
    """An entry for each suspect, in their order; rows are numbers in the data set, -1 for none."""

    near_given: NDArray[np.int64]
    """[S, 3] the nearest believed rows of the given class."""
    near_suggested: NDArray[np.int64]
    """[S, 3] the nearest believed rows of the suggested class."""
    twin: NDArray[np.int64]
    """[S] a row that is nearly the same and has another label."""
    lonely: NDArray[np.bool_]
    """[S] far from every row: maybe none of the classes."""

    def notes(self) -> list[str]:
        """One of "", "same with another label" and "maybe none of the classes" for each suspect."""
        said = np.where(self.lonely, "maybe none of the classes", "")
        return np.where(self.twin >= 0, "same with another label", said).tolist()

    def head(self, count: int) -> Evidence:
        return Evidence(*(part[:count] for part in self._parts()))

    def padded(self, count: int) -> Evidence:
        """The same for a longer list of ``count`` suspects, the last of which have no evidence."""
        more = count - len(self.twin)
        filled = [
            np.concatenate(
                [part, np.full((more, *part.shape[1:]), -1 if part.dtype != bool else 0, part.dtype)]
            )
            for part in self._parts()
        ]
        return Evidence(*filled)

    def _parts(self) -> tuple[NDArray[Any], ...]:
        return self.near_given, self.near_suggested, self.twin, self.lonely


def find_evidence(features: Any, given_labels: NDArray[np.int64], suspects: Suspects) -> Evidence:
    """Look at the neighbours of each of the ``suspects`` among all rows.

    ``features`` are float32 [N, D], an array or anything that takes an array of row numbers.

    >>> from tolerant.suspects import find_suspects
    >>> x = np.float32([[3, 0], [3, 1], [2, 0], [0, 3], [1, 3], [0, 2], [3, 0.1]])
    >>> labels, probs = np.array([0, 0, 0, 1, 1, 1, 1]), np.eye(2)[[0, 0, 0, 1, 1, 1, 0]] * 0.8 + 0.1
    >>> suspects = find_suspects(labels, probs)
    >>> found = find_evidence(x, labels, suspects)
    >>> suspects.index.tolist(), found.near_suggested.tolist(), found.twin.tolist()
    ([6], [[0, 1, 2]], [0])
    """
    num_rows, draw = len(given_labels), np.random.default_rng(0)
    index = suspects.index[:_MOST_SUSPECTS]
    others = np.arange(num_rows)
    if num_rows > _MOST_CANDIDATES:
        others = np.sort(draw.permutation(num_rows)[:_MOST_CANDIDATES])
    rows, asked = (np.asarray(features[which], np.float32) for which in (others, index))
    mean = rows.mean(0)
    for some in (rows, asked):  # in their place: of 50,000 photographs they take half a gigabyte
        some -= mean
        some /= np.maximum(np.sqrt(np.einsum("ij,ij->i", some, some)), 1e-12)[:, None]
    believed = ~suspects.is_suspect[others]
    near = {}
    for name, wanted in (("given", suspects.given_labels), ("suggested", suspects.suggested_labels)):
        near[name] = np.full((len(index), EXAMPLES), -1, np.int64)
        for label in np.unique(wanted[: len(index)]):
            these = np.flatnonzero(wanted[: len(index)] == label)
            candidates = np.flatnonzero(believed & (given_labels[others] == label))
            near[name][these] = _nearest(asked[these], rows[candidates], others[candidates])
    twin, closeness = _look_around(asked, index, rows, others, given_labels)
    sample = np.sort(draw.permutation(len(others))[:1000])
    _, usual = _look_around(rows[sample], others[sample], rows, others, given_labels)
    median = np.median(usual)
    spread = np.median(np.abs(usual - median))
    return Evidence(near["given"], near["suggested"], twin, closeness < median - _FAR * spread).padded(
        len(suspects)
    )


def _nearest(
    asked: NDArray[np.float32], known: NDArray[np.float32], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """int64 [n, 3]: the numbers of the nearest ``known`` rows, nearest first; -1 where there are fewer."""
    found = np.full((len(asked), EXAMPLES), -1, np.int64)
    for start in range(0, len(asked), _CHUNK):
        part = slice(start, start + _CHUNK)
        best = np.argsort(-(asked[part] @ known.T), axis=1, kind="stable")[:, :EXAMPLES]
        found[part, : best.shape[1]] = numbers[best]
    return found


def _look_around(
    asked: NDArray[np.float32],
    index: NDArray[np.int64],
    rows: NDArray[np.float32],
    others: NDArray[np.int64],
    given_labels: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest row with another label if it is nearly the same, else -1; how near the nearest five are."""
    twin, closeness = np.full(len(asked), -1, np.int64), np.ones(len(asked))
    count = min(_NEIGHBOURS, len(others) - 1)
    for start in range(0, len(asked), _CHUNK):
        part = slice(start, start + _CHUNK)
        alike = asked[part] @ rows.T
        alike[index[part, None] == others] = -np.inf
        if count:
            closeness[part] = np.partition(alike, -count, axis=1)[:, -count:].mean(1)
        alike[given_labels[index[part], None] == given_labels[others]] = -np.inf
        best = alike.argmax(1)
        same = alike[np.arange(len(best)), best] > _TWIN
        twin[part] = np.where(same, others[best], -1)
    return twin, closeness
