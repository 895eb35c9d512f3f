"""Texts as features: TF-IDF of words and pairs of words, or of runs of characters, kept as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.checks import check_numbers, check_whole, check_words
from tolerant.data.encoders.sparse import SparseRows
from tolerant.data.standardise import unit_scale
from tolerant.extras import extra
from tolerant.hints import warn_caller

_MOST_FEATURES, _MOST_FEATURES_OF_MANY = 20_000, 100_000
_MOST_TO_FIT = 50_000  # texts that tell which words there are: all pairs of words of a million take gigabytes
_BLOCK = 20_000  # texts that are encoded at a time: on the way each takes three times the memory of the end


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
        """Learn words and pairs of words that occur in at least two texts, the 20,000 most frequent.

        Of more than 50,000 texts so many at random are looked at, and the 100,000 most frequent are kept.
        """
        most = _MOST_FEATURES if len(texts) <= _MOST_TO_FIT else _MOST_FEATURES_OF_MANY
        make = extra("sklearn.feature_extraction.text").TfidfVectorizer
        vectorizer = make(**_OPTIONS, min_df=2, max_features=most)
        texts = _to_fit(texts)
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
        self,
        texts: Sequence[str] | np.ndarray,
        ids: Sequence[Any] | np.ndarray | None = None,
        characters: CharacterEncoder | None = None,
        *,
        alone: bool = True,
    ) -> SparseRows:
        """One row per text; words that were not fitted are ignored. A warning names a row by its id.

        With ``characters`` their columns follow those of words, and nothing is scaled. ``alone``: whether
        there is nothing else by which such a row could be judged.
        """
        words = _in_blocks(self._transformer().transform, texts)
        if characters is None:
            _warn_of_unknown(np.diff(words.indptr), ids, alone)
            return SparseRows(words, self.scale, "words")
        runs = characters.transform(texts)
        _warn_of_unknown(np.diff(words.indptr) + np.diff(runs.indptr), ids, alone)
        return SparseRows(words, 1.0, "words").beside("characters", runs)

    def _transformer(self) -> Any:
        make = extra("sklearn.feature_extraction.text").TfidfVectorizer
        vectorizer = make(**_OPTIONS, vocabulary=self.vocabulary)
        vectorizer.idf_ = np.array(self.idf)
        return vectorizer

    def to_dict(self) -> dict[str, Any]:
        """A value for JSON, from which `from_dict` makes the same features."""
        return {"vocabulary": list(self.vocabulary), "idf": list(self.idf), "scale": self.scale}

    @classmethod
    def from_dict(cls, value: Any) -> TextEncoder:
        words = check_words(value["vocabulary"], "vocabulary")
        (scale,) = check_numbers([value["scale"]], "scale", many=1)
        return cls(words, check_numbers(value["idf"], "idf", many=len(words)), scale)


def _to_fit(texts: Sequence[str] | np.ndarray) -> Sequence[str] | np.ndarray:
    if len(texts) <= _MOST_TO_FIT:
        return texts
    return np.asarray(texts, object)[np.random.default_rng(0).permutation(len(texts))[:_MOST_TO_FIT]]


def _in_blocks(transform: Callable[[Any], Any], texts: Sequence[str] | np.ndarray) -> Any:
    """A CSR matrix, float32."""
    starts = range(0, max(1, len(texts)), _BLOCK)
    blocks = [transform(texts[start : start + _BLOCK]).astype(np.float32) for start in starts]
    return blocks[0] if len(blocks) == 1 else extra("scipy.sparse").vstack(blocks, "csr")


def _warn_of_unknown(cells: np.ndarray, ids: Sequence[Any] | np.ndarray | None, alone: bool) -> None:
    """``cells``: of each text, how many of its features are not zero."""
    unknown = np.flatnonzero(cells == 0)
    if len(unknown):
        first = unknown[0] if ids is None else ids[unknown[0]]
        warn_caller(
            f"{len(unknown):,} of {len(cells):,} texts are empty or have no word that two training "
            f"texts have (first: the one with id {first}); "
            f"{'their class is a guess' if alone else 'the other columns decide'}"
        )


_OPTIONS: dict[str, Any] = {"ngram_range": (1, 2), "sublinear_tf": True}


@dataclass(frozen=True)
class CharacterEncoder:
    """TF-IDF of runs of two to five characters within words, each in one of 131,072 columns by its hash.

    No vocabulary is kept: of 100,000 texts it would have millions of runs. Columns that fewer than two of the
    fitted texts have are left out.

    >>> encoder = CharacterEncoder.fit(["red", "read", "blue"])
    >>> encoder.transform(["red"]).shape[1] == len(encoder.columns) > 3
    True
    """

    columns: tuple[int, ...]
    idf: tuple[float, ...]

    @classmethod
    def fit(cls, texts: Sequence[str] | np.ndarray) -> CharacterEncoder:
        texts = _to_fit(texts)
        counts = _hashed(texts)
        frequency = np.bincount(counts.indices, minlength=_HASHED)
        columns = np.flatnonzero(frequency >= 2)
        idf = np.log((1 + len(texts)) / (1 + frequency[columns])) + 1
        return cls(tuple(columns.tolist()), tuple(idf.tolist()))

    def transform(self, texts: Sequence[str] | np.ndarray) -> Any:
        """A CSR matrix, a row of length 1 for each text."""
        return _in_blocks(self._transform, texts)

    def _transform(self, texts: Sequence[str] | np.ndarray) -> Any:
        found = _hashed(texts)[:, np.array(self.columns, np.int64)]
        np.log(found.data, out=found.data)
        found.data += 1
        found.data *= np.array(self.idf, np.float32)[found.indices]
        return extra("sklearn.preprocessing").normalize(found, copy=False)

    def to_dict(self) -> dict[str, Any]:
        """A value for JSON, from which `from_dict` makes the same features."""
        return {"columns": list(self.columns), "idf": list(self.idf)}

    @classmethod
    def from_dict(cls, value: Any) -> CharacterEncoder:
        columns = tuple(check_whole(column, "a column of characters", least=0) for column in value["columns"])
        return cls(columns, check_numbers(value["idf"], "idf", many=len(columns)))


_HASHED = 2**17


def _hashed(texts: Sequence[str] | np.ndarray) -> Any:
    make = extra("sklearn.feature_extraction.text").HashingVectorizer
    return make(
        analyzer="char_wb",
        ngram_range=(2, 5),
        n_features=_HASHED,
        alternate_sign=False,
        norm=None,
        dtype=np.float32,
    ).transform(texts)
