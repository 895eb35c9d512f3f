"""Instance-dependent noise: the published distribution, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from tolerant.noise import by_input, instance_dependent
from tolerant.noise.corrupt import normal_draws


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 1.0])
def test_flip_rates_are_truncated_normal(rate: float) -> None:
    drawn = by_input._truncated_normal(rate, 0.1, seed=0, count=20_000)
    published = stats.truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
    assert stats.kstest(drawn, published.cdf).pvalue > 0.01
    assert drawn.min() >= 0.0
    assert drawn.max() <= 1.0


def test_labels_follow_the_published_algorithm() -> None:
    """Few different inputs, many times each: their label counts against q times softmax."""
    kinds = np.array([[0.5, -1.0, 0.2], [1.0, 1.0, -0.4]])
    num_classes, repeats = 4, 10_000
    which = np.arange(2 * num_classes * repeats) % 2
    true = np.arange(len(which)) // 2 % num_classes
    result = instance_dependent(kinds[which], true, 0.4, num_classes=num_classes, seed=2)
    flip_rate = stats.truncnorm(-4, 6, loc=0.4, scale=0.1).mean()
    for label in range(num_classes):
        directions = normal_draws(2, 3 * num_classes, f"direction {label}").reshape(3, num_classes)
        for kind in range(2):
            scores = kinds[kind] @ directions
            scores[label] = -np.inf
            expected = flip_rate * softmax(scores)
            expected[label] = 1 - flip_rate
            rows = (which == kind) & (true == label)
            counts = np.bincount(result.given_labels[rows], minlength=num_classes)
            assert stats.chisquare(counts, expected * repeats).pvalue > 0.001


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (0.1, 0.129), (0.2, 0.206), (0.4, 0.4)])
def test_share_of_flipped_rows_is_the_documented_one(rate: float, share: float) -> None:
    inputs = np.random.default_rng(0).normal(size=(30_000, 5))
    result = instance_dependent(inputs, np.arange(30_000) % 3, rate, num_classes=3, seed=0)
    assert abs(result.realised_noise_rate - share) < (0.01 if rate else 1e-12)
    assert result.manifest.kind == "instance"


def test_the_input_decides_where_to() -> None:
    inputs = np.random.default_rng(0).normal(size=(4000, 50))
    true = np.zeros(4000, dtype=int)
    first, second = (
        instance_dependent(x, true, 0.9, num_classes=5, seed=0).given_labels for x in (inputs, inputs[::-1])
    )
    both = (first > 0) & (second > 0)
    assert (first[both] != second[both]).mean() > 0.5


def test_first_rows_do_not_depend_on_how_many_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_input, "_CHUNK", 64)
    inputs = np.random.default_rng(0).integers(0, 256, size=(900, 4, 4, 1), dtype=np.uint8)
    true = np.arange(900) % 3
    whole = instance_dependent(inputs, true, 0.4, num_classes=3, seed=5).given_labels
    for n in (1, 100, 899):
        part = instance_dependent(inputs[:n], true[:n], 0.4, num_classes=3, seed=5)
        assert np.array_equal(part.given_labels, whole[:n])


def test_bytes_count_as_0_to_1_and_rows_may_come_on_demand() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(300, 8), dtype=np.uint8)

    class OnDemand:
        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: np.ndarray) -> np.ndarray:
            assert index.dtype == np.int64
            return pixels[index]

    results = [
        instance_dependent(inputs, np.arange(300) % 3, 0.5, num_classes=3, seed=0).manifest
        for inputs in (pixels, pixels / 255.0, OnDemand())
    ]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.zeros((5, 2))}, "got 5 rows and 4 labels"),
        ({"inputs": np.array(["a", "b", "c", "d"])}, "inputs must be numbers; got dtype <U1"),
        ({"inputs": np.array([[0.0], [1.0], [np.nan], [1.0]])}, "finite; row 2 is not"),
        ({"true_labels": [0, 1, 2, 3]}, "got 2 in row 2"),
        ({"rate": 1.5}, "rate"),
        ({"std": 0.0}, "std must be a finite number above 0; got 0.0"),
        ({"std": "wide"}, "std"),
        ({"num_classes": 1}, "num_classes"),
        ({"seed": -3}, "seed"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    arguments = {
        "inputs": np.zeros((4, 2)),
        "true_labels": [0, 1, 0, 1],
        "rate": 0.4,
        "num_classes": 2,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message):
        instance_dependent(**(arguments | change))
