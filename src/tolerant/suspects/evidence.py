"""What the neighbours of a suspect say, where rows are features in which near means alike.

Similarity is the cosine of the angle between two rows, seen from the mean of all. Up to 50,000 rows every
candidate is looked at; of more, 50,000 are drawn, since three good examples are enough for a person to see
why, and an approximate index would be one more library for a gain that nobody sees.

Whether a row is far from all is told by angles seen from the origin, and among believed rows. Seen from the
mean, two rows that hold little (an even picture, a drawn digit) are near to each other and to all that is
plain; and rows of no class may be many, but few of their labels are believed. (Digits, fashion, static, even
pictures and things, 3 to 4 % among photographs of animals and vehicles with 40 % wrong labels, features of
`lite0`: the chance that one of them is farther than another suspect is 94 % of 600 rows and 88 % of 2,500;
seen from the mean and among all rows 30 and 51 %.)
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
_CHUNK = 256
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
    all_rows = np.asarray(features[others], np.float32)
    mean = all_rows.mean(0)
    rows = _Rows.seen_from(mean, all_rows, others)
    asked = _Rows.seen_from(mean, np.asarray(features[index], np.float32), index)
    believed = np.flatnonzero(~suspects.is_suspect[others])
    near = {}
    for name, wanted in (("given", suspects.given_labels), ("suggested", suspects.suggested_labels)):
        near[name] = np.full((len(index), EXAMPLES), -1, np.int64)
        for label in np.unique(wanted[: len(index)]):
            these = np.flatnonzero(wanted[: len(index)] == label)
            candidates = believed[given_labels[others[believed]] == label]
            near[name][these] = _nearest(asked.some(these), rows.some(candidates))
    twin, closeness = _look_around(asked, rows, believed, given_labels)
    sample = np.sort(draw.permutation(len(others))[:1000])
    _, usual = _look_around(rows.some(sample), rows, believed, given_labels)
    median = np.median(usual)
    spread = np.median(np.abs(usual - median))
    return Evidence(near["given"], near["suggested"], twin, closeness < median - _FAR * spread).padded(
        len(suspects)
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows as they are seen from the mean of all."""

    number: NDArray[np.int64]
    """In the data set."""
    direction: NDArray[np.float32]
    """[n, D], of length 1."""
    distance: NDArray[np.float32]
    """[n] from the mean."""
    towards: NDArray[np.float32]
    """[n] the inner product with the mean, less half of the mean's own."""
    length: NDArray[np.float32]
    """[n] from the origin."""

    @classmethod
    def seen_from(
        cls, mean: NDArray[np.float32], rows: NDArray[np.float32], number: NDArray[np.int64]
    ) -> _Rows:
        """``rows`` are overwritten: those of 50,000 photographs take half a gigabyte."""
        towards, length = rows @ mean - np.float32(mean @ mean / 2), _lengths(rows)
        rows -= mean
        distance = _lengths(rows)
        rows /= distance[:, None]
        return cls(number, rows, distance, towards, length)

    def some(self, index: NDArray[np.int64] | slice) -> _Rows:
        return _Rows(
            self.number[index],
            self.direction[index],
            self.distance[index],
            self.towards[index],
            self.length[index],
        )

    def alike(self, others: _Rows) -> NDArray[np.float32]:
        """[n, m] the cosines seen from the mean; -inf where it is the row itself."""
        found = self.direction @ others.direction.T
        found[self.number[:, None] == others.number] = -np.inf
        return found

    def alike_from_the_origin(
        self, others: _Rows, which: NDArray[np.int64], alike: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Those to ``which`` of the others, seen from the origin."""
        found = alike[:, which]
        found *= self.distance[:, None] * others.distance[which]
        found += self.towards[:, None] + others.towards[which]
        found /= self.length[:, None] * others.length[which]
        return found


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.float32(1e-12))


def _nearest(asked: _Rows, known: _Rows) -> NDArray[np.int64]:
    """int64 [n, 3]: the numbers of the nearest ``known`` rows, nearest first; -1 where there are fewer."""
    found = np.full((len(asked.number), EXAMPLES), -1, np.int64)
    for start in range(0, len(found), _CHUNK):
        part = slice(start, start + _CHUNK)
        alike = asked.direction[part] @ known.direction.T
        best = np.argsort(-alike, axis=1, kind="stable")[:, :EXAMPLES]
        found[part, : best.shape[1]] = known.number[best]
    return found


def _look_around(
    asked: _Rows, rows: _Rows, believed: NDArray[np.int64], given_labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest row with another label if it is nearly the same, else -1; and how near are the nearest five
    of the believed ones, seen from the origin."""
    twin, closeness = np.full(len(asked.number), -1, np.int64), np.ones(len(asked.number))
    count = min(_NEIGHBOURS, len(believed) - 1)
    for start in range(0, len(twin), _CHUNK):
        part = slice(start, start + _CHUNK)
        here = asked.some(part)
        alike = here.alike(rows)
        if count > 0:
            cosines = here.alike_from_the_origin(rows, believed, alike)
            closeness[part] = np.partition(cosines, -count, axis=1)[:, -count:].mean(1)
        alike[given_labels[here.number, None] == given_labels[rows.number]] = -np.inf
        best = alike.argmax(1)
        same = alike[np.arange(len(best)), best] > _TWIN
        twin[part] = np.where(same, rows.number[best], -1)
    return twin, closeness
