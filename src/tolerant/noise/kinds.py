"""The kinds of noise, one entry each: the command line, experiments and `make_transition` read this table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tolerant.checks import Transition, check_transition
from tolerant.noise.by_input import OpenSet, instance_dependent, replace_inputs
from tolerant.noise.corrupt import Corruption, corrupt
from tolerant.noise.transition import (
    block5,
    circular,
    class_dependent,
    named_pairs,
    paper_map,
    superclass,
    symmetric,
    uniform,
)

_FOR_MATRIX = ("rate", "pairs", "matrix")


@dataclass(frozen=True)
class NoiseKind:
    """One kind of noise: what it is, its matrix, what it needs and how it is drawn.

    Args:
        name: as in `--kind`, `RunSpec.noise`, manifests and stored rows.
        help: one line for people.
        matrix: the transition matrix, from the class names and those of rate, pairs and matrix that it
            needs, by name; None where it differs from row to row, or nobody knows it.
        needs: what it takes beside the true labels, the class names and a seed. "rate" is the noise rate,
            "pairs" are (true, given) class names, "matrix" is a transition matrix, "inputs" are those of the
            rows, "outside" are inputs of other data, which show none of the classes.
        draw_rows: where labels are not drawn by the matrix: from the true labels and the class names, with
            the seed and all that it needs by name.
    """

    name: str
    help: str
    matrix: Callable[..., Transition] | None = None
    needs: tuple[str, ...] = ("rate",)
    draw_rows: Callable[..., Corruption | OpenSet] | None = None

    def transition(self, class_names: Sequence[str], **given: Any) -> Transition | None:
        """The matrix by which labels are wrong; None where no matrix says it."""
        if self.matrix is None:
            return None
        return self.matrix(class_names, **{name: given[name] for name in self.needs if name in _FOR_MATRIX})

    def draw(
        self, true_labels: ArrayLike, class_names: Sequence[str], *, seed: int, **given: Any
    ) -> Corruption | OpenSet:
        """Noise of this kind on `true_labels`; ``given``: what it needs, by the names in `needs`.

        >>> KINDS["circular"].draw([0, 1, 2, 0, 1, 2], ["a", "b", "c"], seed=1, rate=1.0).given_labels
        array([1, 2, 0, 1, 2, 0])
        """
        if set(given) != set(self.needs):
            raise ValueError(
                f"noise {self.name!r} takes {' and '.join(self.needs) or 'nothing'}; got "
                f"{' and '.join(given) or 'nothing'}."
            )
        if self.draw_rows is not None:
            return self.draw_rows(true_labels, class_names, seed=seed, **given)
        transition = self.transition(class_names, **given)
        if transition is None:
            raise ValueError(f"noise {self.name!r} cannot be drawn: its labels are as they were found.")
        return corrupt(true_labels, transition, seed=seed, kind=self.name, rate=given.get("rate"))


def _by_number(build: Callable[[int, float], Transition]) -> Callable[..., Transition]:
    return lambda names, rate: build(len(names), rate)


KINDS: dict[str, NoiseKind] = {
    kind.name: kind
    for kind in (
        NoiseKind(
            "uniform",
            "with probability rate a label from all classes, the true one included",
            _by_number(uniform),
        ),
        NoiseKind("symmetric", "with probability rate one of the other classes", _by_number(symmetric)),
        NoiseKind(
            "class-dependent",
            "the paper's, class-map for CIFAR-10 and Fashion-MNIST, circular for others",
            class_dependent,
        ),
        NoiseKind("circular", "each class becomes the next, the last the first", _by_number(circular)),
        NoiseKind("class-map", "the paper's pairs of classes of CIFAR-10 and Fashion-MNIST", paper_map),
        NoiseKind(
            "superclass",
            "each class of CIFAR-100 becomes the next of its superclass",
            lambda names, rate: superclass(rate, names),
        ),
        NoiseKind(
            "block5",
            "each class becomes the next of its five consecutive numbers",
            lambda names, rate: block5(rate, len(names)),
        ),
        NoiseKind("pair", "one class becomes another, by name", named_pairs, ("rate", "pairs")),
        NoiseKind(
            "matrix",
            "a transition matrix of one's own",
            lambda names, matrix: check_transition(matrix, len(names)),
            ("matrix",),
        ),
        NoiseKind(
            "instance",
            "some rows are easier to get wrong than others, as their inputs say",
            needs=("rate", "inputs"),
            draw_rows=lambda labels, names, *, seed, rate, inputs: instance_dependent(
                inputs, labels, rate, num_classes=len(names), seed=seed
            ),
        ),
        NoiseKind(
            "open-set",
            "inputs are replaced by outside ones, which show none of the classes",
            # An outside picture's label is a draw from all classes, so the matrix is uniform noise's.
            _by_number(uniform),
            ("rate", "inputs", "outside"),
            lambda labels, names, *, seed, rate, inputs, outside: replace_inputs(
                inputs, labels, outside, rate, num_classes=len(names), seed=seed
            ),
        ),
        NoiseKind("none", "no noise", lambda names: np.eye(len(names)), ()),
        NoiseKind("human", "people's own mistakes: the labels as they were found", None, ()),
    )
}


def make_transition(
    kind: str, rate: float, class_names: Sequence[str], pairs: Sequence[tuple[str, str]] = ()
) -> Transition:
    """The matrix of a kind that has one, for classes of these names; `pairs` only for kind "pair".

    >>> make_transition("pair", 0.2, ["no", "yes"], [("yes", "no")])
    array([[1. , 0. ], [0.2, 0.8]])
    """
    known = [name for name, each in KINDS.items() if each.matrix is not None and "rate" in each.needs]
    if kind not in known:
        raise ValueError(f"kind must be one of {', '.join(known)}; got {kind!r}.")
    if bool(pairs) != (kind == "pair"):
        raise ValueError(
            "pairs must be given for kind 'pair' and for no other; "
            f"got kind {kind!r} and pairs {list(pairs)!r}."
        )
    transition = KINDS[kind].transition(class_names, rate=rate, pairs=pairs)
    assert transition is not None
    return transition
