"""Drawn labels: from the right distribution, row by row, and the same everywhere for ever."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats
from test_noise_transition import CIFAR10, CLASSES, FASHION, PAIRS, WITH_RATE

from tolerant.noise import (
    KINDS,
    Corruption,
    OpenSet,
    class_map,
    corrupt,
    make_transition,
    symmetric,
)
from tolerant.noise.corrupt import draw_column, normal_draws, permutation, uniform_draws

# What seed 0 gives, on every machine: changing one of these breaks every stored manifest.
DIGESTS = {
    "uniform": "637383d7f848314d",
    "symmetric": "9c5d841fb3e30d73",
    "class-dependent": "322012440f60d9ce",
    "circular": "070e34c1a380e3f7",
    "class-map": "322012440f60d9ce",
    "superclass": "9ff594de4dc3bf7e",
    "block5": "a2e2758d3e7757ef",
    "pair": "15fb863da93bf1d6",
    "matrix": "d1fc6bb3669d1ca5",
    "instance": "2a62edceff1d2685",
    "open-set": "f8e4a1c3d447ad0c",
    "none": "f4b723a53c892154",
    "fashion-mnist": "c73a910b484dffa5",
}


def matrix_of(kind: str, rate: float = 0.4) -> np.ndarray:
    if kind == "matrix":
        return np.random.default_rng(5).dirichlet(np.full(7, 2.0), 7)
    return make_transition(kind, rate, CLASSES.get(kind, CIFAR10), PAIRS.get(kind, ()))


def labels_of(num_rows: int, num_classes: int) -> np.ndarray:
    return np.arange(num_rows) % num_classes


@pytest.mark.parametrize("kind", [*WITH_RATE, "matrix"])
def test_labels_follow_the_matrix(kind: str) -> None:
    matrix = matrix_of(kind)
    true = labels_of(3000 * len(matrix), len(matrix))
    given = corrupt(true, matrix, seed=3, kind=kind).given_labels
    counts = np.zeros(matrix.shape)
    np.add.at(counts, (true, given), 1)
    expected = matrix * counts.sum(axis=1, keepdims=True)
    possible = expected > 0
    assert not counts[~possible].any()
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - len(matrix)
    # Two-sided: labels that fit too well were not drawn at random.
    assert 0.001 < stats.chi2.sf(statistic, freedom) < 0.999


def drawn(kind: str) -> Corruption | OpenSet:
    names = CLASSES.get(kind, CIFAR10)
    inputs = (np.arange(10_000 * 12) % 251).astype(np.uint8).reshape(-1, 2, 2, 3)
    given = {
        "rate": 0.4,
        "pairs": PAIRS["pair"],
        "matrix": np.arange(1, 10).reshape(3, 3) / [[6], [15], [24]],
        "inputs": inputs,
        "outside": inputs[:6000] + 1,
    }
    needed = {name: given[name] for name in KINDS[kind].needs}
    return KINDS[kind].draw(labels_of(10_000, len(names)), names, seed=0, **needed)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"human"}))
def test_digest_is_the_stored_one(kind: str) -> None:
    manifest = drawn(kind).manifest
    assert manifest.sha256[:16] == DIGESTS.get(kind), "pin the digest of a new kind"
    assert (manifest.generator, manifest.num_rows, manifest.kind) == ("PCG64/1", 10_000, kind)
    assert manifest.rate == (0.4 if "rate" in KINDS[kind].needs else None)


def test_digest_of_the_papers_other_map_is_the_stored_one() -> None:
    fashion = corrupt(labels_of(10_000, 10), class_map("fashion-mnist", 0.4, FASHION), seed=0)
    assert fashion.manifest.sha256[:16] == DIGESTS["fashion-mnist"]


def test_what_a_kind_needs_must_be_given_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="'pair' takes rate and pairs; got rate"):
        KINDS["pair"].draw([0, 1], ["a", "b"], seed=0, rate=0.5)
    with pytest.raises(ValueError, match="'matrix' takes matrix; got matrix and rate"):
        KINDS["matrix"].draw([0, 1], ["a", "b"], seed=0, matrix=np.eye(2), rate=0.5)
    with pytest.raises(ValueError, match="'human' cannot be drawn"):
        KINDS["human"].draw([0, 1], ["a", "b"], seed=0)


def test_raw_numbers_are_the_stored_ones() -> None:
    assert uniform_draws(0, 3, "labels").tolist() == [
        0.17620213693047537,
        0.25480408816531275,
        0.9986204939922959,
    ]
    assert permutation(0, 5, "sources").tolist() == [0, 3, 2, 1, 4]


@pytest.mark.parametrize("kind", [*WITH_RATE, "matrix"])
def test_first_rows_do_not_depend_on_how_many_follow(kind: str) -> None:
    matrix = matrix_of(kind)
    true = labels_of(2000, len(matrix))
    whole = corrupt(true, matrix, seed=1).given_labels
    for n in (1, 2, 999, 1999):
        assert np.array_equal(corrupt(true[:n], matrix, seed=1).given_labels, whole[:n])


def test_cat_and_dog_swap_once() -> None:
    """At rate 1 every cat is a dog and every dog a cat; two flips in turn would leave one class."""
    cat, dog = CIFAR10.index("cat"), CIFAR10.index("dog")
    true = np.array([cat, dog] * 500)
    given = corrupt(true, class_map("cifar10", 1.0), seed=0).given_labels
    assert np.array_equal(given, np.array([dog, cat] * 500))


def test_a_lower_rate_flips_a_part_of_the_same_rows() -> None:
    true = labels_of(20_000, 10)
    flipped = [corrupt(true, symmetric(10, rate), seed=4).flipped for rate in (0.1, 0.4, 0.8)]
    assert (flipped[0] <= flipped[1]).all()
    assert (flipped[1] <= flipped[2]).all()


def test_seeds_and_streams_are_independent() -> None:
    a, b = uniform_draws(0, 50_000, "labels"), uniform_draws(1, 50_000, "labels")
    c = uniform_draws(0, 50_000, "replaced")
    plain = np.random.Generator(np.random.PCG64(0)).random(50_000)  # what a split may have used
    for other in (b, c, plain):
        assert abs(np.corrcoef(a, other)[0, 1]) < 0.02
    assert stats.kstest(a, "uniform").pvalue > 0.01
    assert stats.kstest(normal_draws(0, 50_000, "x"), "norm").pvalue > 0.01
    assert np.array_equal(np.sort(permutation(0, 1000, "x")), np.arange(1000))


def test_a_zero_probability_is_never_drawn() -> None:
    u = np.array([0.0, 2.0**-53, 0.5, np.nextafter(1.0, 0.0)])
    probs = np.array([0.0, 0.1, 0.0, 0.2, 0.7 - 1e-9, 0.0])
    assert draw_column(u, probs).tolist() == [1, 1, 4, 4]
    assert draw_column(u, np.tile(probs, (4, 1))).tolist() == [1, 1, 4, 4]


def test_many_classes_are_not_compared_one_by_one():
    """A million labels of 10,000 classes took half a minute, and a table of rows and classes."""
    u = uniform_draws(0, 2000, "labels")
    probs = uniform_draws(1, 2000, "labels") * (np.arange(2000) % 3 > 0)
    tracemalloc.start()
    drawn = draw_column(u, probs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000  # bytes; the table has 4 million
    assert np.array_equal(drawn, draw_column(u, np.tile(probs, (2000, 1))))


def test_what_is_said_of_the_labels() -> None:
    true = labels_of(5000, 10).astype(np.uint8)
    before = true.copy()
    result = corrupt(true.tolist(), symmetric(10, 0.3), seed=2, kind="symmetric", rate=0.3)
    assert np.array_equal(true, before)
    assert result.given_labels.dtype == np.int64
    assert np.array_equal(result.flipped, result.given_labels != true)
    assert result.realised_noise_rate == result.flipped.mean() == result.manifest.realised_noise_rate
    assert abs(result.realised_noise_rate - 0.3) < 0.03
    assert (result.manifest.kind, result.manifest.rate, result.manifest.seed) == (
        "symmetric",
        0.3,
        2,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"true_labels": []}, "at least one label"),
        ({"true_labels": [[0, 1]]}, r"vector .* got shape \(1, 2\)"),
        ({"true_labels": [0.0, 1.0]}, "whole class numbers; got dtype float64"),
        ({"true_labels": ["cat", "dog"]}, "numpy.unique"),
        ({"true_labels": [True, False]}, "dtype bool"),
        ({"true_labels": [0, 3, 7]}, r"in 0 to 2 for 3 classes; got 3 in row 1 \(2 such rows\)"),
        ({"true_labels": [0, -1]}, "got -1 in row 1"),
        ({"transition": np.eye(3)[:2]}, "square"),
        ({"transition": np.ones((3, 3))}, "sum to 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"seed": True}, "seed must be a whole number of at least 0; got True"),
        ({"seed": 1.5}, "seed"),
        ({"seed": None}, "seed"),
        ({"rate": 40}, "rate .* Did you mean 0.4"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    arguments = {"true_labels": [0, 1, 2], "transition": symmetric(3, 0.4), "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        corrupt(**arguments)
