"""Open-set noise: exactly the rows it names are replaced."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tolerant.noise import replace_inputs


def images(num_rows: int, first: int) -> np.ndarray:
    """Pictures that tell their own number: first, first + 1, ..."""
    numbers = np.arange(first, first + num_rows, dtype=np.uint32)
    return numbers.view(np.uint8).reshape(num_rows, 2, 2, 1)


def numbers(pictures: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pictures).reshape(-1, 4).view(np.uint32)[:, 0].astype(np.int64)


INSIDE, OUTSIDE, TRUE = images(5000, 0), images(3000, 100_000), np.arange(5000) % 10


def test_replaced_rows_are_exactly_those_that_differ() -> None:
    result = replace_inputs(INSIDE, TRUE, OUTSIDE, 0.4, num_classes=10, seed=0)
    found = numbers(result.inputs)
    assert np.array_equal(found >= 100_000, result.replaced)
    assert np.array_equal(found[~result.replaced], np.flatnonzero(~result.replaced))
    assert np.array_equal(found[result.replaced] - 100_000, result.source[result.replaced])
    assert (result.source[~result.replaced] == -1).all()
    assert np.array_equal(result.given_labels, TRUE)
    assert np.array_equal(result.true_labels, np.where(result.replaced, -1, TRUE))
    assert result.realised_noise_rate == result.replaced.mean()
    assert stats.binomtest(int(result.replaced.sum()), 5000, 0.4).pvalue > 0.01
    assert np.array_equal(numbers(INSIDE), np.arange(5000))  # the originals are left alone
    result.manifest.verify(result.source)


def test_no_picture_twice_before_all_were_used() -> None:
    source = replace_inputs(INSIDE, TRUE, OUTSIDE, 0.4, num_classes=10, seed=0).source
    used = source[source >= 0]
    assert len(set(used.tolist())) == len(used)
    few = replace_inputs(INSIDE, TRUE, OUTSIDE[:100], 0.4, num_classes=10, seed=0).source
    counts = np.bincount(few[few >= 0], minlength=100)
    assert counts.max() - counts.min() <= 1


def test_labels_of_replaced_rows_are_random_for_the_picture() -> None:
    source_class = np.arange(3000) % 5
    result = replace_inputs(INSIDE, TRUE, OUTSIDE, 0.5, num_classes=10, seed=1)
    table = np.zeros((5, 10))
    rows = result.replaced
    np.add.at(table, (source_class[result.source[rows]], result.given_labels[rows]), 1)
    assert stats.chi2_contingency(table).pvalue > 0.01
    by_class = np.bincount(TRUE[rows], minlength=10)
    assert stats.chisquare(by_class).pvalue > 0.01


def test_first_rows_do_not_depend_on_how_many_follow() -> None:
    whole = replace_inputs(INSIDE, TRUE, OUTSIDE, 0.4, num_classes=10, seed=3)
    for n in (1, 777):
        part = replace_inputs(INSIDE[:n], TRUE[:n], OUTSIDE, 0.4, num_classes=10, seed=3)
        assert np.array_equal(part.source, whole.source[:n])
        assert np.array_equal(part.inputs, whole.inputs[:n])


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_none_and_all(rate: float, share: float) -> None:
    result = replace_inputs(INSIDE, TRUE, OUTSIDE, rate, num_classes=10, seed=0)
    assert result.realised_noise_rate == share


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": INSIDE[:10]}, "got 10 rows and 5000 labels"),
        ({"outside_inputs": OUTSIDE[:0]}, "at least one row"),
        ({"outside_inputs": OUTSIDE.astype(np.float32)}, "uint8 rows of shape .* got float32"),
        ({"outside_inputs": OUTSIDE[:, :1]}, r"got uint8 rows of shape \(1, 2, 1\)"),
        ({"true_labels": TRUE + 1}, "got 10 in row 9"),
        ({"rate": -0.1}, "rate"),
        ({"num_classes": "ten"}, "num_classes"),
        ({"seed": "zero"}, "seed"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    arguments = {
        "inputs": INSIDE,
        "true_labels": TRUE,
        "outside_inputs": OUTSIDE,
        "rate": 0.4,
        "num_classes": 10,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message):
        replace_inputs(**(arguments | change))
