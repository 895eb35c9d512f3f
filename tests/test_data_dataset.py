"""The data set itself: what it refuses, subsets, labels from words, splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tolerant.data import CARDS, NoisyDataset, load, split_validation
from tolerant.data.dataset import LazySubset
from tolerant.data.readers.labels import encode_labels


def table(**changes: Any) -> NoisyDataset:
    fields: dict[str, Any] = {
        "inputs": np.arange(8, dtype=np.float32).reshape(4, 2),
        "given_labels": np.array([0, 1, 1, 0]),
        "true_labels": np.array([0, 1, 0, -1]),
        "class_names": ("a", "b"),
        "ids": None,
        "kind": "table",
    }
    return NoisyDataset(**(fields | changes))


def test_fields() -> None:
    data = table()
    assert (len(data), data.num_classes) == (4, 2)
    assert data.flipped.tolist() == [False, False, True, True]
    assert data.ids.tolist() == [0, 1, 2, 3]
    assert data.given_labels.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"given_labels": [0, 1, 1]},
            r"a vector of 4 labels, one for each row; got shape \(3,\)",
        ),
        ({"given_labels": [0, 1, 1, 2]}, "given_labels must be in 0 to 1 for 2 classes; got 2 in row 3"),
        ({"given_labels": [0, 1, 1, -1]}, "given_labels must be in"),
        ({"given_labels": [0.0, 1.0, 1.0, 0.0]}, "must be whole class numbers; got dtype float64"),
        ({"true_labels": [0, 1, 1, -2]}, "true_labels must be in -1 to 1 for 2 classes"),
        ({"class_names": ("a", "a")}, "class_names must differ"),
        ({"ids": [1, 2]}, "ids must have shape"),
        ({"kind": "sound"}, "kind must be"),
        ({"kind": "image"}, r"images must be uint8 \(N, H, W, C\)"),
        ({"inputs": np.zeros((4, 2))}, "tables must be float32"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table(**changes)


def test_unknown_true_labels() -> None:
    with pytest.raises(ValueError, match="flipped needs true_labels"):
        _ = table(true_labels=None).flipped


def test_subset_and_with_given_labels() -> None:
    data = table()
    part = data.subset([2, 0])
    assert part.inputs.tolist() == [[4, 5], [0, 1]]
    assert part.ids.tolist() == [2, 0]
    assert part.flipped.tolist() == [True, False]
    assert data.subset(np.array([True, False, False, True])).ids.tolist() == [0, 3]
    assert data.with_given_labels([1, 1, 1, 1]).given_labels.tolist() == [1, 1, 1, 1]
    assert data.given_labels.tolist() == [0, 1, 1, 0]


def test_subset_of_a_memory_map_reads_nothing(tmp_path: Path) -> None:
    stored = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 2))
    stored[:] = table().inputs
    part = table(inputs=stored).subset([3, 1]).subset([1, 0])
    assert isinstance(part.inputs, LazySubset)
    assert part.inputs.shape == (2, 2)
    assert part.inputs[np.array([0])].tolist() == [[2, 3]]
    assert isinstance(part.inputs._inputs, np.memmap), "a subset of a subset looks up once"


def test_labels_from_words() -> None:
    labels, names = encode_labels(["b", "a", "b", "a"], "x")
    assert (labels.tolist(), names) == ([1, 0, 1, 0], ("a", "b"))
    labels, names = encode_labels(["10", "9", "-1"], "x", min_per_class=1)
    assert (labels.tolist(), names) == ([2, 1, 0], ("-1", "9", "10"))
    labels, names = encode_labels(["--5", "1"], "x", min_per_class=1)
    assert (labels.tolist(), names) == ([0, 1], ("--5", "1"))
    labels, names = encode_labels(["b"], "x", class_names=["c", "b"])
    assert (labels.tolist(), names) == ([1], ("c", "b"))


@pytest.mark.parametrize(
    ("words", "class_names", "message"),
    [
        (["a", "a", "catt"], None, r"x\.csv: label 'catt' has fewer than the 2 rows .* min_per_class=1"),
        (["a", "b", "c", "c"], None, r"label 'a' .* \(so have 1 other labels\)"),
        (["a", "a"], None, "at least two"),
        ([], None, "there is no row; at least two"),
        (["a", "d"], ["a", "b"], r"label 'd' is none of the classes \['a', 'b'\]"),
    ],
)
def test_labels_refused(words: list[str], class_names: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_labels(words, "x.csv", class_names)


def test_split_is_seeded_disjoint_and_sorted() -> None:
    train, validation = split_validation(1000, 0.1, seed=3)
    assert (len(train), len(validation)) == (900, 100)
    assert np.array_equal(np.union1d(train, validation), np.arange(1000))
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()
    again = split_validation(1000, 0.1, seed=3)
    assert np.array_equal(train, again[0])
    assert not np.array_equal(train, split_validation(1000, 0.1, seed=4)[0])
    # Stored, so that no version of numpy or Python changes which rows validate.
    assert split_validation(20, 0.25, seed=0)[1].tolist() == [2, 4, 6, 13, 19]


@pytest.mark.parametrize(("rows", "fraction"), [(10, 0.0), (10, 1.0), (3, 0.1), (0, 0.5)])
def test_split_refuses(rows: int, fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        split_validation(rows, fraction)


def test_digits() -> None:
    train, test = load("digits"), load("digits", split="test")
    assert train.inputs.shape == (1438, 8, 8, 1)
    assert train.inputs.max() == 255
    assert not np.intersect1d(train.ids, test.ids).size
    assert len(train) + len(test) == 1797
    assert train.flipped.sum() == 0
    assert np.bincount(test.given_labels).min() > 25


def test_unknown_names_and_splits(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Did you mean 'cifar10'"):
        load("cifar-10")
    with pytest.raises(FileNotFoundError, match="There is no folder no/such"):
        load("no/such/thing")
    with pytest.raises(ValueError, match="takes no option 'labels'"):
        load("digits", labels="worse")
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(ValueError, match="are read"):
        load(tmp_path / "x.bin")
    (tmp_path / "x.csv").write_text("a,label\n1,2\n")
    with pytest.raises(ValueError, match="split is for named"):
        load(tmp_path / "x.csv", split="test")


@pytest.mark.parametrize("name", CARDS)
def test_no_other_split(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split must be 'train' or 'test'; got 'val'"):
        load(name, split="val", root=tmp_path)


def test_it_is_shown_in_one_line() -> None:
    shown = repr(load("digits"))
    assert shown == "NoisyDataset(1,438 rows of image (8, 8, 1), 10 classes: 0, 1, 2, 3, 4, ...)"
    assert "2 rows of text, 1 classes: a" in repr(
        NoisyDataset(np.array(["x", "y"]), [0, 0], None, ("a",), None, "text")
    )
