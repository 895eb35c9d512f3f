"""One data set: inputs, the labels as found and as they should be where known; which rows validate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from tolerant.checks import check_labels
from tolerant.printable import printable

if TYPE_CHECKING:
    from tolerant.data.encoders.columns import TableEncoder

Kind = Literal["image", "table", "text", "own"]


class Inputs(Protocol):
    """What rows are read from: an array, a memory map, or files that are decoded on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any:
        """The rows that an int64 array names."""


@dataclass(frozen=True, eq=False, repr=False)
class NoisyDataset:
    """Rows with given labels, and true labels where they are known.

    Args:
        inputs: images uint8 (N, H, W, C), tables float32 (N, D), texts (N,) of str. Images may be
            anything with `len`, `shape`, `dtype` and `[int64 array]`, so they need not fit in memory.
        given_labels: int64 (N,), the labels as found.
        true_labels: int64 (N,), -1 for a row that belongs to none of the classes; None where unknown.
        class_names: what label 0, 1, ... is called.
        ids: (N,), what a person calls each row: its file, or its number (the default).
        kind: "image", "table", "text", or "own": whatever a classifier of the user's own takes.
        encoder: for a table, what turned its columns into inputs and will do so again for new rows.
        files: (N,), paths of the pictures that the inputs were made from, or the cells that hold them
            (`StoredPicture`), to show to a person.
        cells: for a table, a DataFrame of N rows to show to a person; columns the encoder does not know
            are marked as not used.
        groups: (N,), words or numbers: rows of one group, such as the pictures of a patient, are never split
            between the rows that train a model and those that validate or are judged.
        texts: for a table with columns of free text, (N,) of str: what stands in them, which is no input.
        text_columns: the names of these columns.

    >>> rows = NoisyDataset(np.zeros((3, 2), np.float32), [0, 1, 1], [0, 1, 0], ("a", "b"))
    >>> len(rows), rows.num_classes, rows.flipped.tolist()
    (3, 2, [False, False, True])
    """

    inputs: Inputs
    given_labels: np.ndarray
    true_labels: np.ndarray | None
    class_names: tuple[str, ...]
    ids: Any = None
    kind: Kind = "table"
    encoder: TableEncoder | None = None
    files: np.ndarray | None = None
    cells: Any = None
    groups: Any = None
    texts: np.ndarray | None = None
    text_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        num_rows = len(self.inputs)
        names = tuple(str(name) for name in self.class_names)
        if len(set(names)) != len(names):
            raise ValueError(f"class_names must differ from each other; got {names!r}")
        ids = np.arange(num_rows) if self.ids is None else np.asarray(self.ids)
        if ids.shape != (num_rows,):
            raise ValueError(f"ids must have shape ({num_rows},); got {ids.shape}")
        if self.files is not None and len(self.files) != num_rows:
            raise ValueError(f"files must have {num_rows} paths; got {len(self.files)}")
        if self.cells is not None and len(self.cells) != num_rows:
            raise ValueError(f"cells must have {num_rows} rows; got {len(self.cells)}")
        if self.texts is not None and len(self.texts) != num_rows:
            raise ValueError(f"texts must have {num_rows} rows; got {len(self.texts)}")
        groups = None if self.groups is None else np.asarray(self.groups)
        if groups is not None and groups.shape != (num_rows,):
            raise ValueError(f"groups must have shape ({num_rows},); got {groups.shape}")
        if groups is not None and groups.dtype.kind not in "iu":
            groups = np.unique(groups.astype(str), return_inverse=True)[1]
        if self.kind == "image":
            shape, dtype = tuple(self.inputs.shape), self.inputs.dtype
            if len(shape) != 4 or dtype != np.uint8:
                raise ValueError(
                    f"images must be uint8 (N, H, W, C); got {dtype} {shape}. "
                    "Scale to 0..255 and put the channels last."
                )
        elif self.kind == "table":
            shape, dtype = tuple(self.inputs.shape), self.inputs.dtype
            if len(shape) != 2 or dtype != np.float32:
                raise ValueError(f"tables must be float32 (N, D); got {dtype} {shape}")
        elif self.kind not in ("text", "own"):
            raise ValueError(f"kind must be 'image', 'table', 'text' or 'own'; got {self.kind!r}")
        set_field = object.__setattr__  # the dataclass is frozen for everyone else
        set_field(self, "class_names", names)
        set_field(self, "ids", ids)
        set_field(self, "groups", groups)
        given = check_labels(self.given_labels, len(names), "given_labels", num_rows=num_rows)
        set_field(self, "given_labels", given)
        if self.true_labels is not None:
            true = check_labels(self.true_labels, len(names), "true_labels", num_rows=num_rows, lowest=-1)
            set_field(self, "true_labels", true)

    def __len__(self) -> int:
        return len(self.given_labels)

    def __repr__(self) -> str:
        names = printable(", ".join(self.class_names[:5]), one_line=True) + (
            ", ..." if self.num_classes > 5 else ""
        )
        shape = "" if self.kind == "text" else f" {tuple(self.inputs.shape[1:])}"
        return f"NoisyDataset({len(self):,} rows of {self.kind}{shape}, {self.num_classes} classes: {names})"

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def free_texts(self) -> Any:
        """What people wrote: the inputs of a set of texts, or the columns of text of a table; else None."""
        return self.inputs if self.kind == "text" else self.texts

    @property
    def flipped(self) -> np.ndarray:
        """Where the given label is not the true one; bool (N,)."""
        if self.true_labels is None:
            raise ValueError("flipped needs true_labels, and this data set has none")
        return self.given_labels != self.true_labels

    def subset(self, index: Any) -> NoisyDataset:
        """The rows of `index` (int64 array, or bool (N,)), in that order.

        Inputs in memory are copied; memory maps and files stay where they are.
        """
        index = np.asarray(index)
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        return replace(
            self,
            inputs=_some_rows(self.inputs, index),
            given_labels=self.given_labels[index],
            true_labels=None if self.true_labels is None else self.true_labels[index],
            ids=self.ids[index],
            files=None if self.files is None else self.files[index],
            cells=None if self.cells is None else self.cells.iloc[index],
            groups=None if self.groups is None else self.groups[index],
            texts=None if self.texts is None else self.texts[index],
        )

    def with_given_labels(self, given_labels: Any) -> NoisyDataset:
        """The same rows with other given labels."""
        return replace(self, given_labels=given_labels)


def is_in_memory(inputs: Inputs) -> bool:
    """Whether the rows are an array in memory, not a memory map or files."""
    return isinstance(inputs, np.ndarray) and not isinstance(inputs, np.memmap)


class LazySubset:
    """Some rows of inputs that are not in memory, read when asked for."""

    _inputs: Inputs
    _index: np.ndarray

    def __init__(self, inputs: Inputs, index: np.ndarray) -> None:
        self.shape = (len(index), *inputs.shape[1:])
        self.dtype = inputs.dtype
        if isinstance(inputs, LazySubset):  # a subset of a subset looks up once
            index, inputs = inputs._index[index], inputs._inputs
        self._inputs, self._index = inputs, index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self._inputs[self._index[index]])


def _some_rows(inputs: Any, index: np.ndarray) -> Inputs:
    if hasattr(inputs, "subset"):  # `SparseRows`, which stay sparse, and keep their parts
        some: Inputs = inputs.subset(index)
        return some
    return inputs[index] if is_in_memory(inputs) else LazySubset(inputs, index)


def split_validation(
    num_rows: int, fraction: float = 0.1, seed: int = 0, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers for training and for validation: disjoint, sorted, the same for the same seed.

    With ``groups`` (N,) no group is in both: in random order, each that still fits validates, or if none does
    the smallest. A single group is split by its rows.

    >>> train, validation = split_validation(10, fraction=0.2, seed=0)
    >>> len(train), len(validation), sorted({*train, *validation}) == list(range(10))
    (8, 2, True)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be in (0, 1); got {fraction!r}")
    num_validation = round(num_rows * fraction)
    if not 0 < num_validation < num_rows:
        raise ValueError(
            f"{num_rows} rows cannot be split: a fraction of {fraction} for validation is "
            f"{num_validation} of them. Use more rows or another fraction"
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    if groups is not None:
        _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(sizes) > 1:
            held_out = _whole_groups(sizes, num_validation, generator)[group]
            return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    order = generator.permutation(num_rows)
    return np.sort(order[num_validation:]), np.sort(order[:num_validation])


def _whole_groups(sizes: np.ndarray, num_validation: int, generator: np.random.Generator) -> np.ndarray:
    """bool, by group: held out, at most `num_validation` rows unless every group has more."""
    held_out = np.zeros(len(sizes), bool)
    for group in generator.permutation(len(sizes)):
        if sizes[group] <= num_validation:
            held_out[group] = True
            num_validation -= sizes[group]
    if not held_out.any():
        held_out[sizes.argmin()] = True
    return held_out
