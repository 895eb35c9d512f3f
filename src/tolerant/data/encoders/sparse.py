"""Sparse rows for a trainer that wants dense ones: made dense when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tolerant.data.digest import row_digest
from tolerant.extras import extra


class SparseRows:
    """A SciPy CSR matrix that looks like a float32 array (N, D), its rows dense only batch by batch.

    Everything is multiplied by one ``scale``, such as `tolerant.data.standardise.unit_scale`.

    >>> import scipy.sparse
    >>> rows = SparseRows(scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 0.0]]), scale=0.5)
    >>> rows[np.array([1, 0])].tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """

    dtype = np.dtype(np.float32)

    def __init__(self, matrix: Any, scale: float, parts: Mapping[str, slice] | None = None) -> None:
        self._scale = scale
        self.parts = dict(parts or {})
        """By name, which columns belong together: those of words, of characters, of meaning."""
        self._matrix = (matrix.tocsr() * scale).astype(np.float32)
        self._matrix.sum_duplicates()
        self._matrix.eliminate_zeros()  # now equal rows are stored alike
        self.shape: tuple[int, int] = tuple(matrix.shape)

    @property
    def matrix(self) -> Any:
        """The CSR matrix, scaled."""
        return self._matrix

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.ascontiguousarray(self._matrix[index].toarray())

    @property
    def num_cells(self) -> int:
        """How many are not zero."""
        return int(self._matrix.nnz)

    def beside(self, name: str, columns: np.ndarray) -> SparseRows:
        """The same rows with these columns behind the others, as the part ``name``."""
        sparse, width = extra("scipy.sparse"), self.shape[1]
        both = sparse.hstack([self.unscaled(), sparse.csr_matrix(columns)], "csr", np.float32)
        return SparseRows(both, self._scale, {**self.parts, name: slice(width, width + columns.shape[1])})

    def unscaled(self) -> Any:
        """The matrix as it was given, float32."""
        return self._matrix if self._scale == 1 else self._matrix / np.float32(self._scale)

    @property
    def digests(self) -> np.ndarray:
        """For `tolerant.data.digest.row_digests`, from what is stored: no row is made dense."""
        matrix = self._matrix
        cells = np.empty(matrix.nnz, [("column", np.int64), ("value", np.float32)])
        cells["column"], cells["value"] = matrix.indices, matrix.data
        rows = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
        return np.fromiter((row_digest(cells[start:end]) for start, end in rows), np.int64, len(self))
