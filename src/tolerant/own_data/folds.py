"""Which fold each row is in: classes evenly, copies of a row and rows of a group together."""

from __future__ import annotations

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.digest import row_digests


def choose_folds(dataset: NoisyDataset, folds: int, seed: int) -> np.ndarray:
    """int64 [N]: the fold of each row; copies are in one fold, and so are the rows of a group.

    Groups are dealt out by their most frequent label.

    >>> x = np.arange(6, dtype=np.float32)[:, None]
    >>> rows = NoisyDataset(x, [0, 1, 0, 0, 1, 1], None, ("a", "b"), groups=list("pqprqs"))
    >>> choose_folds(rows, 2, seed=0).tolist()
    [0, 0, 0, 1, 0, 1]
    """
    numbers, labels = np.arange(len(dataset)), dataset.given_labels
    first = first_copies(dataset)
    sizes = None
    if dataset.groups is not None:
        first = connected_rows(first, dataset.groups)
        sizes = np.bincount(first, minlength=len(numbers))
        labels = most_frequent_labels(labels, first)
    is_first = first == numbers
    fold = np.empty(len(numbers), np.int64)
    fold[is_first] = deal_folds(labels[is_first], folds, seed, None if sizes is None else sizes[is_first])
    return fold[first]


def deal_folds(
    given_labels: np.ndarray, folds: int, seed: int, sizes: np.ndarray | None = None
) -> np.ndarray:
    """int64 [N]: the fold of each row, every class dealt out evenly; ``sizes``: from the largest down.

    >>> deal_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0).tolist()
    [1, 0, 0, 1, 1, 0]
    """
    order = np.random.Generator(np.random.PCG64([seed, folds])).permutation(len(given_labels))
    if sizes is not None:
        order = order[np.argsort(-sizes[order], kind="stable")]
    order = order[np.argsort(given_labels[order], kind="stable")]
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds  # goes on from class to class: folds of equal size
    return fold


def first_copies(dataset: NoisyDataset) -> np.ndarray:
    """int64 [N]: the first row of which each is a copy, label included; its own number if it is none.

    Oversampling makes such copies. In different folds, one would be scored by a model that trained on the
    other and believes its label. But rows may also be equal by nature, such as those of a few yes-no columns.
    Then their labels, given one by one, differ here and there, or no class has many different rows: such rows
    do not count as copies.

    >>> rows = NoisyDataset(np.float32([[1], [2], [1], [3], [4]]), [0, 1, 0, 1, 0], None, ("a", "b"))
    >>> first_copies(rows).tolist()
    [0, 1, 0, 3, 4]
    """
    numbers, labels = np.arange(len(dataset)), dataset.given_labels
    _, first, which = np.unique(row_digests(dataset.inputs), return_index=True, return_inverse=True)
    alike = first[which]
    by_class, different = np.bincount(labels), np.bincount(labels[alike == numbers])
    richest = different.argmax()  # of classes made equally large, the one that was the largest
    differ = (labels != labels[alike]).sum()
    if different[richest] < by_class[richest] / 2 or differ > (alike != numbers).sum() / 100:
        return numbers
    return np.where(labels == labels[alike], alike, numbers)


def connected_rows(first_copy: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """int64 [N]: the first of the rows that each must stay with.

    Those are its copies (``first_copy``: the first of each) and its group, but also the groups of its copies.
    """
    _, group = np.unique(groups, return_inverse=True)
    first = first_copy
    while True:
        least = np.full(group.max() + 1, len(first))
        np.minimum.at(least, group, first)
        merged = least[group]
        least = np.full(len(first), len(first))
        np.minimum.at(least, first_copy, merged)
        merged = least[first_copy]
        if np.array_equal(merged, first):
            return first
        first = merged


def most_frequent_labels(labels: np.ndarray, first: np.ndarray) -> np.ndarray:
    """int64 [N]: at the ``first`` row of those that stay together the most frequent label of them."""
    num_classes = labels.max() + 1
    pairs, counts = np.unique(first * num_classes + labels, return_counts=True)
    place, label = pairs // num_classes, pairs % num_classes
    found = labels.copy()
    order = np.argsort(counts, kind="stable")
    found[place[order]] = label[order]  # the last one written is that of the largest count
    return found
