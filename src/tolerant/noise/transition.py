"""Transition matrices: `transition[i, j]` is the probability that true class i is given label j."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tolerant.checks import Transition, check_num_classes, check_rate, check_whole
from tolerant.class_names import CIFAR10, CIFAR100, CIFAR100_SUPERCLASSES, FASHION_MNIST

Names = Sequence[str]
Pairs = Sequence[tuple[str, str]]

# Data set -> (class names in the data set's order, the paper's pairs of section 4.2).
PAPER_MAPS: dict[str, tuple[Names, Pairs]] = {
    "cifar10": (
        CIFAR10,
        (("truck", "automobile"), ("bird", "airplane"), ("deer", "horse"), ("cat", "dog"), ("dog", "cat")),
    ),
    "fashion-mnist": (
        FASHION_MNIST,
        (
            ("Ankle boot", "Sneaker"),
            ("Sneaker", "Sandal"),
            ("Pullover", "Shirt"),
            ("Coat", "Dress"),
            ("Dress", "Coat"),
        ),
    ),
}


def symmetric(num_classes: int, rate: float) -> Transition:
    """With probability `rate` one of the other classes: `rate` of the labels are wrong.

    The "uniform noise" of the paper's section 3.1 and of its theory; that of its section 4.2, the
    experiments, reads as `uniform`.

    >>> symmetric(3, 0.5)
    array([[0.5 , 0.25, 0.25], [0.25, 0.5 , 0.25], [0.25, 0.25, 0.5 ]])
    """
    num_classes, rate = check_num_classes(num_classes), check_rate(rate)
    transition = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(transition, 1.0 - rate)
    return transition


def uniform(num_classes: int, rate: float) -> Transition:
    """With probability `rate` a label drawn from ALL classes, the true one included.

    So we read section 4.2 of the paper, "a random label through uniform sampling". Of the labels
    rate * (num_classes - 1) / num_classes are wrong, 0.36 for a rate of 0.4 and ten classes.

    >>> uniform(2, 0.5)
    array([[0.75, 0.25], [0.25, 0.75]])
    """
    num_classes, rate = check_num_classes(num_classes), check_rate(rate)
    transition = np.full((num_classes, num_classes), rate / num_classes)
    np.fill_diagonal(transition, 1.0 - rate + rate / num_classes)
    return transition


def pair(num_classes: int, rate: float, mapping: Mapping[int, int]) -> Transition:
    """Each class of `mapping` becomes its partner with probability `rate`; the others stay clean.

    >>> pair(3, 0.4, {0: 2})
    array([[0.6, 0. , 0.4], [0. , 1. , 0. ], [0. , 0. , 1. ]])
    """
    num_classes, rate = check_num_classes(num_classes), check_rate(rate)
    if not mapping:
        raise ValueError("mapping must hold at least one pair of classes, such as {3: 5, 5: 3}.")
    transition = np.eye(num_classes)
    for source, target in mapping.items():
        for name in (source, target):
            if check_whole(name, "a class in mapping", least=0) >= num_classes:
                raise ValueError(f"mapping must hold class numbers in 0 to {num_classes - 1}; got {name!r}.")
        if source == target:
            raise ValueError(f"mapping must send a class to another; got {source} -> {target}.")
        transition[source, source] = 1.0 - rate
        transition[source, target] = rate
    return transition


def circular(num_classes: int, rate: float) -> Transition:
    """Each class becomes the next, the last the first: the paper's noise for CIFAR-100.

    >>> circular(3, 0.4)
    array([[0.6, 0.4, 0. ], [0. , 0.6, 0.4], [0.4, 0. , 0.6]])
    """
    num_classes = check_num_classes(num_classes)
    return pair(num_classes, rate, {i: (i + 1) % num_classes for i in range(num_classes)})


def paper_map(class_names: Names, rate: float) -> Transition:
    """`class_map` of the data set that has these classes, whatever their order.

    >>> paper_map(["no", "yes"], 0.4)
    Traceback (most recent call last):
    ValueError: kind 'class-map' is the paper's noise for CIFAR-10 and Fashion-MNIST, and these are ...
    """
    dataset = _paper_data_set(class_names)
    if dataset is None:
        raise ValueError(
            "kind 'class-map' is the paper's noise for CIFAR-10 and Fashion-MNIST, and these are the "
            "classes of neither. Use kind 'pair' with your own pairs."
        )
    return class_map(dataset, rate, class_names)


def class_dependent(class_names: Names, rate: float) -> Transition:
    """The paper's class-dependent noise: `class_map` where section 4.2 has pairs, else `circular`.

    >>> class_dependent(["0", "1", "2"], 0.4)
    array([[0.6, 0.4, 0. ], [0. , 0.6, 0.4], [0.4, 0. , 0.6]])
    """
    if _paper_data_set(class_names) is None:
        return circular(len(class_names), rate)
    return paper_map(class_names, rate)


def class_map(dataset: str, rate: float, class_names: Names | None = None) -> Transition:
    """The paper's class-dependent noise (section 4.2) for "cifar10" or "fashion-mnist".

    The pairs are kept by name, so `class_names` may come in any order; without it the data
    set's own order is taken.

    >>> class_map("cifar10", 0.4)[3]  # cat -> dog
    array([0. , 0. , 0. , 0.6, 0. , 0.4, 0. , 0. , 0. , 0. ])
    """
    if dataset not in PAPER_MAPS:
        raise ValueError(f"dataset must be one of {', '.join(PAPER_MAPS)}; got {dataset!r}.")
    names, pairs = PAPER_MAPS[dataset]
    return named_pairs(names if class_names is None else class_names, rate, pairs)


def named_pairs(class_names: Names, rate: float, pairs: Pairs) -> Transition:
    """`pair` with the classes called by name.

    >>> named_pairs(["cat", "dog"], 0.3, [("cat", "dog")])
    array([[0.7, 0.3], [0. , 1. ]])
    """
    number = {_same_name(name): i for i, name in enumerate(class_names)}
    if len(number) != len(class_names):
        raise ValueError(f"class_names must all differ; got {', '.join(map(str, class_names))}.")
    for name in (name for both in pairs for name in both):
        if _same_name(name) not in number:
            raise ValueError(f"class_names must hold {name!r}; got {', '.join(map(str, class_names))}.")
    mapping: dict[int, int] = {}
    for true, given in pairs:
        known = mapping.setdefault(number[_same_name(true)], number[_same_name(given)])
        if known != number[_same_name(given)]:
            raise ValueError(
                f"pairs must send each class to one other; got {true!r} to {class_names[known]!r} and to "
                f"{given!r}. For several, write a matrix (kind 'matrix')."
            )
    return pair(len(class_names), rate, mapping)


def superclass(rate: float, class_names: Names | None = None) -> Transition:
    """CIFAR-100: each class becomes the next of its own superclass (five classes, circular).

    >>> T = superclass(0.4)
    >>> T[4].nonzero()[0]  # beaver (4) -> dolphin (30), both aquatic mammals
    array([ 4, 30])
    """
    pairs = [
        (group[i], group[(i + 1) % len(group)])
        for group in CIFAR100_SUPERCLASSES.values()
        for i in range(len(group))
    ]
    if class_names is not None and {*map(_same_name, CIFAR100)} != {*map(_same_name, class_names)}:
        raise ValueError(
            "kind 'superclass' is for the 100 classes of CIFAR-100, and these are others. "
            "Use kind 'pair' with your own pairs."
        )
    return named_pairs(CIFAR100 if class_names is None else class_names, rate, pairs)


def block5(rate: float, num_classes: int = 100) -> Transition:
    """Each class becomes the next in its block of five consecutive numbers, circular.

    What most public code calls superclass noise on CIFAR-100. The numbers are alphabetical, so
    none of the 20 blocks is a superclass: only for comparison with numbers made that way.

    >>> block5(0.4)[4].nonzero()[0]  # beaver (4) -> apple (0)
    array([0, 4])
    """
    num_classes = check_num_classes(num_classes)
    if num_classes % 5:
        raise ValueError(f"num_classes must be a multiple of 5 for block5; got {num_classes}.")
    return pair(num_classes, rate, {i: i - i % 5 + (i + 1) % 5 for i in range(num_classes)})


def _paper_data_set(class_names: Names) -> str | None:
    found = {_same_name(name) for name in class_names}
    for dataset, (names, _) in PAPER_MAPS.items():
        if found == {_same_name(name) for name in names}:
            return dataset
    return None


def _same_name(name: str) -> str:
    """The form in which two spellings of a class meet: "Ankle boot" and "ankle_boot"."""
    return str(name).strip().lower().replace(" ", "_").replace("-", "_")
