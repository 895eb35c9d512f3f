"""Sparse rows for a trainer that wants dense ones: made dense when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from tolerant.data.digest import row_digest
from tolerant.extras import extra

_BLOCK = 10_000  # rows whose digests are made at a time: of 100,000 texts all cells once more take a gigabyte


class SparseRows:
    """A SciPy CSR matrix that looks like a float32 array (N, D), its rows dense only batch by batch.

    Everything is multiplied by ``scale``, such as `tolerant.data.standardise.unit_scale`; columns that stand
    beside others have their own.

    >>> import scipy.sparse
    >>> rows = SparseRows(scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 0.0]]), scale=0.5)
    >>> rows[np.array([1, 0])].tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """

    dtype = np.dtype(np.float32)

    def __init__(self, matrix: Any, scale: float, name: str = "") -> None:
        """``name``: of these columns, such as "words", if others are to stand beside them."""
        own = matrix.tocsr()
        if scale != 1:
            own = own * scale
        own = own.astype(np.float32, copy=False)
        if not (own.has_canonical_format and own.data.all()):
            own = own.copy()  # it may be a user's
            own.sum_duplicates()
            own.eliminate_zeros()  # now equal rows are stored alike
        self._scales, self._parts = {name: scale}, {name: own}
        self.shape: tuple[int, int] = tuple(matrix.shape)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the groups of columns: words, characters, meaning, columns (of a table)."""
        return tuple(name for name in self._parts if name)

    def part(self, name: str) -> Any:
        """The columns of that name as they were given, float32: a CSR matrix."""
        found, scale = self._parts[name], self._scales[name]
        return found if scale == 1 else found / np.float32(scale)

    @property
    def matrix(self) -> Any:
        """The CSR matrix of all columns, scaled."""
        return _side_by_side([*self._parts.values()])

    def unscaled(self) -> Any:
        """The same as it was given."""
        return _side_by_side([self.part(name) for name in self._parts])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.hstack([part[index].toarray() for part in self._parts.values()])

    def num_cells(self, part: str | None = None) -> int:
        """How many are not zero, of a part or, where there is no such one, of all."""
        some = [self._parts[part]] if part in self._parts else self._parts.values()
        return sum(int(own.nnz) for own in some)

    def beside(self, name: str, columns: Any, scale: float = 1.0) -> SparseRows:
        """The same rows with these columns, times ``scale``, behind the others, as the part ``name``.

        Parts are not put together in one matrix: to take one out again would copy it.
        """
        found, other = copy(self), SparseRows(extra("scipy.sparse").csr_matrix(columns), scale, name)
        found._parts, found._scales = self._parts | other._parts, self._scales | other._scales
        found.shape = (len(self), self.shape[1] + other.shape[1])
        return found

    def subset(self, index: np.ndarray) -> SparseRows:
        """Some rows, with the same parts, still sparse."""
        found = copy(self)
        found._parts = {name: own[index] for name, own in self._parts.items()}
        found.shape = (len(index), self.shape[1])
        return found

    @property
    def digests(self) -> np.ndarray:
        """What `tolerant.data.digest.row_digests` asks for, made without a dense row."""
        blocks = [np.empty(0, np.int64)]
        for first in range(0, len(self), _BLOCK):
            matrix = _side_by_side([own[first : first + _BLOCK] for own in self._parts.values()])
            cells = np.empty(matrix.nnz, [("column", np.int64), ("value", np.float32)])
            cells["column"], cells["value"] = matrix.indices, matrix.data
            rows = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
            found = (row_digest(cells[start:end]) for start, end in rows)
            blocks.append(np.fromiter(found, np.int64, matrix.shape[0]))
        return np.concatenate(blocks)


def _side_by_side(matrices: Sequence[Any]) -> Any:
    return matrices[0] if len(matrices) == 1 else extra("scipy.sparse").hstack(matrices, "csr", np.float32)
