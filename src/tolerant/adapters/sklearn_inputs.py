"""What scikit-learn users pass as X, as the rows the trainer takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_matrix, issparse

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.sparse import SparseRows
from tolerant.data.features import Identity, default_extractor, extract, load_known
from tolerant.data.features.extractor import Kind
from tolerant.data.standardise import moments, standardise, unit_scale
from tolerant.own_data.choose_features import choose_extractor
from tolerant.own_data.classifiers.rows import OwnRows
from tolerant.suspects.arguments import as_numpy


@dataclass(frozen=True)
class InputReader:
    """Turns X into a data set, the same way for training and for new rows."""

    shape: tuple[int, ...]
    """The shape of a row."""
    sparse: bool
    mean: Any = 0.0
    deviation: Any = 1.0
    scale: float = 1.0
    """What sparse rows are multiplied by; they stay sparse, so no mean is subtracted."""
    own: bool = False
    """Whether the rows are for a classifier of the user's own, which gets X as it is."""

    @classmethod
    def fit(cls, X: Any, *, own: bool = False) -> InputReader:
        """Measure the training rows.

        Standardised here, in float64: a column of time stamps (1.7e9 and 1,000 apart) has nothing left of
        it in float32.
        """
        if own:
            return cls(tuple(X.shape[1:]), sparse=issparse(X), own=True)
        shape = _row_shape(X)
        if len(shape) > 1:
            return cls(shape, sparse=False)
        if issparse(X):
            return cls(shape, sparse=True, scale=unit_scale(X))
        mean, deviation = moments(X)
        return cls(shape, sparse=False, mean=mean, deviation=deviation)

    def dataset(self, X: Any, labels: np.ndarray, class_names: tuple[str, ...]) -> NoisyDataset:
        """The rows X with these labels."""
        if self.own:
            rows = OwnRows(X.tocsr() if issparse(X) else X)
            return NoisyDataset(rows, labels, None, class_names, None, "own")
        shape = _row_shape(X)
        if shape != self.shape:
            raise ValueError(f"X must have rows of shape {self.shape}, as in fit; got {shape}.")
        if len(shape) > 1:
            pictures = X[..., None] if X.ndim == 3 else X
            return NoisyDataset(pictures, labels, None, class_names, None, "image")
        if self.sparse:
            rows = X if issparse(X) else csr_matrix(X)
            return NoisyDataset(SparseRows(rows, self.scale), labels, None, class_names)
        if issparse(X):
            X = X.toarray()
        scaled = standardise(X, self.mean, self.deviation).astype(np.float32)
        scaled[np.isnan(scaled)] = 0  # a gap in a new row of a frame: the mean, as where training saw gaps
        return NoisyDataset(scaled, labels, None, class_names)


def pick_extractor(X: Any, wanted: str, device: str) -> Identity | None:
    """Which extractor the rows X are to be turned into features by; None for none."""
    if wanted == "none":
        return None
    if hasattr(X, "columns") and wanted != "auto":
        raise ValueError(
            f"features={wanted!r} is for pictures and for texts (n,); X is a data frame. Leave it out, or "
            "give a column of texts alone: X['...']."
        )
    rows = _raw(X)
    if wanted == "auto" and rows.kind == "text":  # there are no words to compare with
        wanted = default_extractor("text") or "none"
    found = choose_extractor(rows, wanted, device=device)
    return None if found is None else found.identity


def compute_features(X: Any, wanted: Identity, device: str) -> np.ndarray:
    """float32 (n, D), by the extractor of the training rows."""
    rows = _raw(X)
    if rows.kind == "table":
        raise ValueError(
            f"X must be pictures or texts (n,), as in fit, for features of {wanted.name}; got a table."
        )
    found = load_known(wanted, cast("Kind", rows.kind), device)
    features = extract(rows.inputs, found)
    return features[np.arange(len(features))]


def _raw(X: Any) -> NoisyDataset:
    """Pictures or texts as they are; anything else is a table."""
    X = as_numpy(X)
    rows = (
        np.asarray(X, object)
        if isinstance(X, list | tuple) and X and isinstance(X[0], str)
        else np.asarray(X)
    )
    labels, names = np.zeros(len(rows), np.int64), ("",)
    if rows.ndim in (3, 4):
        _row_shape(rows)  # channels first would be read as pictures of strange ones
        return NoisyDataset(rows[..., None] if rows.ndim == 3 else rows, labels, None, names, None, "image")
    if rows.ndim == 1:
        return NoisyDataset(rows, labels, None, names, None, "text")
    return NoisyDataset(np.zeros((len(rows), 1), np.float32), labels, None, names)


def frame_ids(X: Any) -> np.ndarray | None:
    """What a pandas frame calls its rows; None where it has no name for each, or X is no frame."""
    if not hasattr(X, "iloc") or len(set(map(str, X.index))) < len(X):
        return None
    names: np.ndarray = X.index.to_numpy(None if X.index.dtype.kind in "iu" else object)
    return names


def _row_shape(X: Any) -> tuple[int, ...]:
    shape = tuple(X.shape[1:])
    if len(shape) == 3 and shape[2] > 4:
        raise ValueError(
            f"pictures must be (n, height, width, channels) with at most 4 channels; got {X.shape}. "
            "Put the channels last: X.transpose(0, 2, 3, 1)."
        )
    return (*shape, 1) if len(shape) == 2 else shape


def check_no_missing(name: str, values: Any, way_out: str) -> None:
    """A ValueError that names the first row without a value.

    Words with None, NaN or pandas' NA among them fail in scikit-learn without a row being named.
    A list of words with NaN would even gain a class "nan". NaN among numbers scikit-learn refuses itself.
    """
    if getattr(getattr(values, "dtype", None), "kind", "O") in "biufcUS":
        return
    words = np.asarray(values, object)
    rows = [row for row, word in enumerate(words) if is_missing(word)] if words.ndim == 1 else []
    if rows:
        raise ValueError(
            f"{name} must have a value for every row; {len(rows)} are missing (first: {words[rows[0]]!r} in "
            f"row {rows[0]}). {way_out}"
        )


def is_missing(word: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, or pandas' NA or NaT."""
    is_nan = isinstance(word, float) and word != word
    return word is None or is_nan or type(word).__name__ in ("NAType", "NaTType")
