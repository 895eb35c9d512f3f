"""Texts as features: TF-IDF of words and pairs of words, kept as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.data.encoders.sparse import SparseRows
from tolerant.data.standardise import unit_scale
from tolerant.extras import extra
from tolerant.hints import warn_caller

_MOST_FEATURES = 20_000


@dataclass(frozen=True)
class TextEncoder:
    """A fitted vocabulary.

    >>> encoder = TextEncoder.fit(["a red car", "a blue car", "a red bus"])
    >>> encoder.vocabulary
    ('car', 'red')
    >>> encoder.transform(["red red house"])[np.array([0])].round(3).tolist()
    [[0.0, 1.414...]]
    """

    vocabulary: tuple[str, ...]
    idf: tuple[float, ...]
    scale: float

    @classmethod
    def fit(cls, texts: Sequence[str] | np.ndarray) -> TextEncoder:
        """Learn words and pairs of words that occur in at least two texts, the 20,000 most frequent."""
        make = extra("sklearn.feature_extraction.text").TfidfVectorizer
        vectorizer = make(**_OPTIONS, min_df=2, max_features=_MOST_FEATURES)
        try:
            matrix = vectorizer.fit_transform(texts)
        except ValueError as error:
            raise ValueError(
                f"no word is in two of the {len(texts)} texts, so nothing can be learnt from them. "
                "Is this the column of text? Words are told apart by blanks: in Chinese, Japanese or Thai "
                "put blanks between them first."
            ) from error
        words = tuple(str(word) for word in vectorizer.get_feature_names_out())
        return cls(words, tuple(map(float, vectorizer.idf_)), unit_scale(matrix))

    def transform(
        self, texts: Sequence[str] | np.ndarray, ids: Sequence[Any] | np.ndarray | None = None
    ) -> SparseRows:
        """One row per text; words that were not fitted are ignored. A warning names a row by its id."""
        make = extra("sklearn.feature_extraction.text").TfidfVectorizer
        vectorizer = make(**_OPTIONS, vocabulary=self.vocabulary)
        vectorizer.idf_ = np.array(self.idf)
        matrix = vectorizer.transform(texts)
        unknown = np.flatnonzero(np.diff(matrix.indptr) == 0)
        if len(unknown):
            first = unknown[0] if ids is None else ids[unknown[0]]
            warn_caller(
                f"{len(unknown):,} of {len(texts):,} texts are empty or have no word that two training texts "
                f"have (first: the one with id {first}); their class is a guess"
            )
        return SparseRows(matrix, self.scale)

    def to_dict(self) -> dict[str, Any]:
        """A value for JSON, from which `from_dict` makes the same features."""
        return {"vocabulary": list(self.vocabulary), "idf": list(self.idf), "scale": self.scale}

    @classmethod
    def from_dict(cls, value: Any) -> TextEncoder:
        return cls(tuple(value["vocabulary"]), tuple(value["idf"]), float(value["scale"]))


_OPTIONS: dict[str, Any] = {"ngram_range": (1, 2), "sublinear_tf": True}
