"""Transition matrices: what each kind means, and what a bad one is told."""

from __future__ import annotations

import numpy as np
import pytest

from tolerant.checks import check_transition
from tolerant.class_names import CIFAR10, CIFAR100, CIFAR100_SUPERCLASSES
from tolerant.class_names import FASHION_MNIST as FASHION
from tolerant.noise import KINDS, make_transition
from tolerant.noise import transition as tr
from tolerant.noise.transition import PAPER_MAPS

WITH_RATE = [name for name, kind in KINDS.items() if kind.matrix is not None and "rate" in kind.needs]
CLASSES = {"superclass": CIFAR100, "block5": CIFAR100, "matrix": ("a", "b", "c")}
PAIRS = {"pair": [("cat", "dog"), ("dog", "cat"), ("ship", "truck")]}


def moves(transition: np.ndarray, names: tuple[str, ...]) -> set[tuple[str, str]]:
    """Every (true, given) pair of different classes that can happen, by name."""
    off = transition - np.diag(transition.diagonal())
    return {(names[i], names[j]) for i, j in np.argwhere(off > 0)}


@pytest.mark.parametrize("rate", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("kind", WITH_RATE)
def test_every_kind_is_a_valid_matrix(kind: str, rate: float) -> None:
    names = CLASSES.get(kind, CIFAR10)
    matrix = make_transition(kind, rate, names, PAIRS.get(kind, ()))
    assert np.array_equal(check_transition(matrix, len(names)), matrix)
    assert np.allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    if rate == 0.0:
        assert np.array_equal(matrix, np.eye(len(names)))


def test_symmetric_draws_from_the_others_and_uniform_from_all() -> None:
    assert np.allclose(1.0 - tr.symmetric(10, 0.4).diagonal(), 0.4)
    assert np.allclose(1.0 - tr.uniform(10, 0.4).diagonal(), 0.36)
    assert np.allclose(tr.uniform(10, 1.0), 0.1)
    assert np.allclose(tr.symmetric(10, 0.9), 0.1)


def test_paper_maps_by_name() -> None:
    assert moves(tr.class_map("cifar10", 0.3), CIFAR10) == {
        ("truck", "automobile"),
        ("bird", "airplane"),
        ("deer", "horse"),
        ("cat", "dog"),
        ("dog", "cat"),
    }
    assert moves(tr.class_map("fashion-mnist", 0.3), FASHION) == {
        ("Ankle boot", "Sneaker"),
        ("Sneaker", "Sandal"),
        ("Pullover", "Shirt"),
        ("Coat", "Dress"),
        ("Dress", "Coat"),
    }


@pytest.mark.parametrize("dataset", PAPER_MAPS)
def test_paper_maps_follow_the_names_not_the_numbers(dataset: str) -> None:
    names = PAPER_MAPS[dataset][0]
    other = tuple(name.upper().replace(" ", "_") for name in reversed(names))
    matrix = make_transition("class-map", 0.3, other)
    assert np.array_equal(matrix, tr.class_map(dataset, 0.3)[::-1, ::-1])
    assert np.array_equal(matrix, tr.class_map(dataset, 0.3, other))


def test_paper_maps_leave_the_other_classes_alone() -> None:
    matrix = tr.class_map("cifar10", 0.4)
    for name in ("airplane", "automobile", "frog", "horse", "ship"):
        assert matrix[CIFAR10.index(name), CIFAR10.index(name)] == 1.0
    assert np.allclose(matrix[CIFAR10.index("cat"), CIFAR10.index("cat")], 0.6)


def test_circular_is_the_next_class() -> None:
    matrix = tr.circular(100, 0.3)
    assert all(matrix[i, (i + 1) % 100] == 0.3 and matrix[i, i] == 0.7 for i in range(100))


def test_superclass_moves_stay_inside_and_form_one_circle_each() -> None:
    group_of = {name: group for group, names in CIFAR100_SUPERCLASSES.items() for name in names}
    found = dict(moves(tr.superclass(0.4), CIFAR100))
    assert len(group_of) == len(found) == len(set(found.values())) == 100
    assert all(group_of[a] == group_of[b] for a, b in found.items())
    for name in found:
        circle = [name]
        while found[circle[-1]] != name:
            circle.append(found[circle[-1]])
        assert len(circle) == 5


def test_no_block_of_five_is_a_superclass() -> None:
    blocks = [set(CIFAR100[i : i + 5]) for i in range(0, 100, 5)]
    assert not any(set(group) in blocks for group in CIFAR100_SUPERCLASSES.values())
    found = dict(moves(tr.block5(0.4), CIFAR100))
    number = CIFAR100.index
    assert all(number(a) // 5 == number(b) // 5 for a, b in found.items())
    assert len(set(found.values())) == 100


def test_superclasses_are_those_of_the_published_files(data_folder) -> None:
    folder = data_folder / "cifar-100-binary"
    fine = (folder / "fine_label_names.txt").read_text().split()
    coarse = (folder / "coarse_label_names.txt").read_text().split()
    rows = np.fromfile(folder / "test.bin", dtype=np.uint8).reshape(-1, 3074)[:, :2]
    published: dict[str, set[str]] = {}
    for c, f in np.unique(rows, axis=0):
        published.setdefault(coarse[c], set()).add(fine[f])
    assert tuple(fine) == CIFAR100
    assert {k: set(v) for k, v in CIFAR100_SUPERCLASSES.items()} == published


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, 0.0]], r"square matrix of at least 2 x 2; got shape \(1, 2\)"),
        ([1.0, 0.0], r"got shape \(2,\)"),
        ([[1.0]], r"got shape \(1, 1\)"),
        ([[1.0, 0.0], [1.0]], "square matrix of numbers"),
        ([["a", "b"], ["c", "d"]], "square matrix of numbers"),
        ([[1.0, 0.0], [np.nan, 1.0]], r"finite; got nan at \[1, 0\]"),
        ([[np.inf, 0.0], [0.0, 1.0]], r"finite; got inf at \[0, 0\]"),
        ([[1.2, -0.2], [0.0, 1.0]], r"at least 0; got -0.2 at \[0, 1\]"),
        ([[0.9, 0.1], [0.2, 0.7]], "row 1 sums to 0.9"),
        ([[0.9, 0.1], [0.3333, 0.6666]], "row 1 sums to 0.9999"),  # a digit left out is no rounding
        ([[0.9, 0.3], [0.1, 0.7]], "pass the transpose"),
        ([[8, 2], [3, 7]], "divide each row by its sum"),
        ([[0, 0], [3, 7]], "row 0 sums to 0.$"),
    ],
)
def test_bad_matrix(matrix: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        check_transition(matrix)
    assert "\n" not in str(caught.value)


def test_float32_rows_pass_and_the_size_is_checked() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(100), 100).astype(np.float32)
    assert check_transition(rows).dtype == np.float64
    with pytest.raises(ValueError, match="must be 10 x 10"):
        check_transition(rows, 10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tr.symmetric(1, 0.1), "num_classes must be a whole number of at least 2; got 1"),
        (lambda: tr.symmetric(True, 0.1), "num_classes"),
        (lambda: tr.uniform(2.5, 0.1), "num_classes .* got 2.5"),
        (
            lambda: tr.uniform(10, 40),
            r"rate must be a number in \[0, 1\]; got 40. Did you mean 0.4",
        ),
        (lambda: tr.uniform(10, -0.1), "rate .* got -0.1"),
        (lambda: tr.uniform(10, float("nan")), "rate .* got nan"),
        (lambda: tr.uniform(10, "0.4"), "rate .* got '0.4'"),
        (lambda: tr.uniform(10, None), "rate .* got None"),
        (lambda: tr.circular(0, 0.4), "num_classes"),
        (lambda: tr.pair(3, 0.4, {}), "at least one pair"),
        (lambda: tr.pair(3, 0.4, {0: 3}), "in 0 to 2; got 3"),
        (lambda: tr.pair(3, 0.4, {-1: 2}), "got -1"),
        (lambda: tr.pair(3, 0.4, {"cat": 2}), "got 'cat'"),
        (lambda: tr.pair(3, 0.4, {1.0: 2}), "got 1.0"),
        (lambda: tr.pair(3, 0.4, {1: 1}), "to another; got 1 -> 1"),
        (lambda: tr.class_map("mnist", 0.4), "one of cifar10, fashion-mnist; got 'mnist'"),
        (lambda: tr.class_map("cifar10", 0.4, ["cat", "dog"]), "must hold 'truck'; got cat, dog"),
        (lambda: tr.named_pairs(["a", "A"], 0.4, [("a", "b")]), "must all differ"),
        (lambda: tr.superclass(0.4, CIFAR10), "for the 100 classes of CIFAR-100"),
        (
            lambda: tr.named_pairs(["a", "b", "c"], 0.4, [("a", "b"), ("A", "c")]),
            "pairs must send each class to one other; got 'A' to 'b' and to 'c'",
        ),
        (lambda: tr.block5(0.4, 12), "multiple of 5"),
        (lambda: make_transition("asymmetric", 0.4, CIFAR10), "kind must be one of uniform, "),
        (lambda: make_transition("class-map", 0.4, ["a", "b"]), "classes of neither"),
        (lambda: make_transition("pair", 0.4, CIFAR10), "pairs must be given for kind 'pair'"),
        (lambda: make_transition("uniform", 0.4, CIFAR10, [("cat", "dog")]), "for no other"),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
