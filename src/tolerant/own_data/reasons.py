"""Why a label is doubted: the words of a text, or the columns of a table row, that speak for the suggestion.

Each word is taken away in turn, each value replaced by one that is usual for the given label, and the model
asked again. That holds for any model, and for several together.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder
from tolerant.review.page import Reason, columns_and_values
from tolerant.suspects import Suspects

Probs = Callable[[NoisyDataset], np.ndarray]
_MOST_TEXTS, _MOST_ROWS = 1_500, 20_000  # that the model is asked of: less than a second
_MOST_WORDS = 40  # of a text
_MOST_COLUMNS = 2_000  # of a table; with 100,000, one row without each of them in turn would take 37 GiB
_MOST_TO_KNOW = 1_000  # rows of a class that tell what is usual in it
_MOST_REASONS = 3
_LEAST = 0.1  # of the log-odds: less changes nobody's mind
_WORD = re.compile(r"\w[\w'’-]*")


def find_reasons(
    probs: Probs,
    dataset: NoisyDataset,
    encoder: InputEncoder,
    suspects: Suspects,
    *,
    by_network: bool = False,
) -> list[list[Reason]]:
    """What speaks most for the suggestion and against the given label, for the first suspects.

    ``probs`` are those of the model for trainable rows; ``dataset`` holds texts as texts. Pictures, and rows
    that are features, have none: there neighbours are shown. Nor have rows of very many columns. A row of a
    table with texts has words and columns; its words are not asked of a network that takes features, too,
    since those of so many changed texts would take half a minute. Classifiers can be asked without them.
    """
    if not len(suspects) or encoder.features_alone or dataset.kind == "image":
        return []
    tried = []
    if dataset.free_texts is not None and (encoder.extractor is None or not by_network):
        tried.append(_words(probs, dataset, replace(encoder, extractor=None), suspects))
    if dataset.kind == "table":
        known = encoder if by_network else replace(encoder, extractor=None)
        tried.append(_columns(probs, dataset, known, suspects))
    tried = [found for found in tried if found]  # of very many columns there is none
    return [
        _most([change for some in found for change in some]) for found in zip_longest(*tried, fillvalue=[])
    ]


def _most(changes: Sequence[tuple[float, Reason]]) -> list[Reason]:
    """What changes the model's mind most."""
    order = sorted(changes, key=lambda change: -change[0])[:_MOST_REASONS]
    return [name for fall, name in order if fall > _LEAST]


def _words(
    probs: Probs, dataset: NoisyDataset, encoder: InputEncoder, suspects: Suspects
) -> list[list[tuple[float, Reason]]]:
    texts: list[str] = []
    names: list[list[str]] = []
    total = 0
    for text in map(str, dataset.free_texts[suspects.index]):
        found = list(dict.fromkeys(_WORD.findall(text)))[:_MOST_WORDS]
        total += 1 + len(found)
        if total > _MOST_TEXTS and names:
            break
        names.append(found)
        texts += [text, *(_WORD.sub(partial(_other_than, word), text) for word in found)]
    place = np.repeat(suspects.index[: len(names)], [1 + len(found) for found in names])
    changed: dict[str, Any] = {"inputs" if dataset.kind == "text" else "texts": np.array(texts, object)}
    rows = replace(dataset.subset(place), **changed, ids=np.arange(len(texts)), cells=None, groups=None)
    with warnings.catch_warnings(action="ignore"):  # of texts without a known word
        found_probs = probs(encoder.trainable(rows))
    return _changes(found_probs, [[(word, "") for word in found] for found in names], suspects)


def _other_than(word: str, match: re.Match[str]) -> str:
    return " " if match[0] == word else match[0]


def _columns(
    probs: Probs, dataset: NoisyDataset, encoder: InputEncoder, suspects: Suspects
) -> list[list[tuple[float, Reason]]]:
    blocks = _blocks(dataset)
    if len(blocks) > _MOST_COLUMNS:
        return []
    most = _MOST_ROWS if dataset.texts is None else _MOST_TEXTS
    index = suspects.index[: max(1, most // (1 + len(blocks)))]
    usual = _usual_rows(dataset, blocks)[dataset.given_labels[index]]
    repeated = np.repeat(np.asarray(dataset.inputs[index]), 1 + len(blocks), axis=0)
    for number, block in enumerate(blocks.values()):
        repeated[1 + number :: 1 + len(blocks), block.features] = usual[:, block.features]
    rows = replace(
        dataset.subset(np.repeat(index, 1 + len(blocks))), inputs=repeated, cells=None, groups=None
    )
    rows = replace(rows, ids=np.arange(len(rows)), files=None)
    titles, values = columns_and_values(dataset, index)
    shown = [dict(zip(titles, row, strict=True)) for row in values]
    names = [[(name, row.get(name, "")) for name in blocks] for row in shown]
    with warnings.catch_warnings(action="ignore"):  # of texts without a known word
        found_probs = probs(encoder.trainable(rows))
    return _changes(found_probs, names, suspects)


@dataclass(frozen=True)
class _Block:
    """Where the features of a column lie; of a category there is one for each word."""

    features: slice
    is_category: bool


def _blocks(dataset: NoisyDataset) -> dict[str, _Block]:
    """Where the features of each column lie, by its name."""
    if dataset.encoder is None:
        return {
            f"feature {number + 1}": _Block(slice(number, number + 1), is_category=False)
            for number in range(dataset.inputs.shape[1])
        }
    lie = zip(dataset.encoder.columns, dataset.encoder.slices, strict=True)
    return {column.name: _Block(features, bool(column.categories)) for column, features in lie}


def _usual_rows(dataset: NoisyDataset, blocks: Mapping[str, _Block]) -> np.ndarray:
    """float [C, D]: of each given label the median of a number, and of a category the features of its most
    frequent word."""
    usual = np.zeros((dataset.num_classes, dataset.inputs.shape[1]), np.float32)
    for label in range(dataset.num_classes):
        own = np.flatnonzero(dataset.given_labels == label)
        if not len(own):
            continue
        rows = np.asarray(dataset.inputs[own[:: max(1, len(own) // _MOST_TO_KNOW)]])
        usual[label] = np.median(rows, axis=0)
        for block in blocks.values():
            if block.is_category:
                words, counts = np.unique(rows[:, block.features], axis=0, return_counts=True)
                usual[label, block.features] = words[counts.argmax()]
    return usual


def _changes(
    probs: np.ndarray, names: Sequence[Sequence[Reason]], suspects: Suspects
) -> list[list[tuple[float, Reason]]]:
    """By how much the absence of each name lowers the log-odds of the suggestion; ``probs``: of each row as
    it is, then without each of its names."""
    changes, start = [], 0
    for rank, some in enumerate(names):
        here = np.log(np.maximum(probs[start : start + 1 + len(some)].astype(np.float64), 1e-6))
        start += 1 + len(some)
        odds = here[:, suspects.suggested_labels[rank]] - here[:, suspects.given_labels[rank]]
        changes.append(list(zip((odds[0] - odds[1:]).tolist(), some, strict=True)))
    return changes
