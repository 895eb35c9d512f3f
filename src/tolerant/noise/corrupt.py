"""Draw given labels from true ones, the same on every machine, with a manifest to verify them by."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_labels, check_rate, check_seed, check_transition
from tolerant.files import read_json, write_json

GENERATOR = "PCG64/1"  # the name in manifests: a change in how numbers are drawn below means a new one


@dataclass(frozen=True)
class Manifest:
    """How noise was made and the digest of the result; one seed gives one manifest everywhere.

    `sha256` is of the given labels as little-endian int64; for open-set noise, whose labels
    stay, of the rows the inputs came from (`OpenSet.source`). `rate` is None for a matrix.

    >>> from tolerant.noise import corrupt, symmetric
    >>> drawn = corrupt([0, 1, 2, 0, 1, 2], symmetric(3, 0.5), seed=1, kind="symmetric", rate=0.5)
    >>> drawn.manifest.verify(drawn.given_labels)
    >>> drawn.manifest.verify([0, 1, 2, 0, 1, 2])
    Traceback (most recent call last):
    ValueError: these are not the labels of the manifest (symmetric, rate 0.5, seed 1): ...
    """

    kind: str
    rate: float | None
    seed: int
    generator: str
    num_rows: int
    num_classes: int
    realised_noise_rate: float
    sha256: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest as JSON, with a digest of its own values."""
        write_json(path, asdict(self) | {"manifest_sha256": self._digest()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest back; a damaged or changed one gives a ValueError that names it."""
        stored = read_json(path)
        names = [field.name for field in fields(cls)]
        if not isinstance(stored, dict) or set(stored) != {*names, "manifest_sha256"}:
            raise ValueError(f"{path} is not a noise manifest: it must hold {', '.join(names)}.")
        digest = stored.pop("manifest_sha256")
        manifest = cls(**stored)
        if manifest._digest() != digest:
            raise ValueError(
                f"{path} was changed after it was written: its values do not match its "
                "manifest_sha256. Make the noise again with `tolerant noise`."
            )
        return manifest

    def verify(self, drawn: ArrayLike) -> None:
        """Raise a ValueError unless `drawn` is what this manifest was made for."""
        array = np.asarray(drawn)
        if array.shape != (self.num_rows,):
            raise ValueError(
                f"the manifest is for {self.num_rows} rows; got an array of shape {array.shape}."
            )
        found = label_digest(array)
        if found != self.sha256:
            raise ValueError(
                f"these are not the labels of the manifest ({self.kind}, rate {self.rate}, seed "
                f"{self.seed}): their sha256 is {found[:12]}..., not {self.sha256[:12]}..."
            )

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def label_digest(labels: ArrayLike) -> str:
    """sha256 of whole numbers as little-endian int64.

    >>> label_digest([0, 1])[:12]
    '9d34149fbd1f'
    """
    array = np.asarray(labels)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be whole numbers; got dtype {array.dtype}.")
    return hashlib.sha256(array.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Corruption:
    """Given labels, where they differ from the true ones, how often, and how they were made."""

    given_labels: NDArray[np.int64]
    flipped: NDArray[np.bool_]
    realised_noise_rate: float
    manifest: Manifest


def corrupt(
    true_labels: ArrayLike,
    transition: ArrayLike,
    *,
    seed: int,
    kind: str = "matrix",
    rate: float | None = None,
) -> Corruption:
    """Give each row a label drawn from the row of `transition` of its true class.

    One draw a row decides, from the true label alone: no label flips twice, and the first n
    labels do not depend on how many rows follow. The true class takes the low end of the draw,
    so with one seed the rows flipped at a lower rate are flipped at a higher one too. `kind` and
    `rate` only go into the manifest.

    >>> from tolerant.noise import symmetric
    >>> corrupt([0, 1, 2, 0, 1, 2], symmetric(3, 0.5), seed=1).given_labels
    array([1, 2, 2, 1, 2, 2])
    """
    transition = check_transition(transition)
    true = check_labels(true_labels, len(transition), "true_labels")
    seed = check_seed(seed)
    u = uniform_draws(seed, len(true), "labels")
    given = np.empty_like(true)
    for label, rows in rows_by_class(true):
        given[rows] = draw_from_true(u[rows], transition[label], label)
    return with_manifest(true, given, len(transition), kind=kind, rate=rate, seed=seed)


def rows_by_class(labels: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each class that occurs, with its rows in ascending order."""
    order = np.argsort(labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True))


def draw_from_true(u: NDArray[np.float64], probs: NDArray[np.float64], true_label: int) -> NDArray[np.int64]:
    """A label for each u: [0, 1) is shared out among the classes, the true one first, then the next ones."""
    return (true_label + draw_column(u, np.roll(probs, -true_label, axis=-1))) % probs.shape[-1]


def with_manifest(
    true: NDArray[np.int64],
    given: NDArray[np.int64],
    num_classes: int,
    *,
    kind: str,
    rate: float | None,
    seed: int,
) -> Corruption:
    """The drawn labels with their noise rate and manifest."""
    flipped = given != true
    realised = float(flipped.mean())
    manifest = Manifest(
        kind=kind,
        rate=None if rate is None else check_rate(rate),
        seed=seed,
        generator=GENERATOR,
        num_rows=len(true),
        num_classes=num_classes,
        realised_noise_rate=realised,
        sha256=label_digest(given),
    )
    return Corruption(given, flipped, realised, manifest)


def _bits(seed: int, count: int, stream: str) -> NDArray[np.uint64]:
    # The name of the stream is part of its seed: one seed gives flips, replaced rows and a
    # validation split that know nothing of each other.
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(stream.encode()))
    return np.random.PCG64(sequence).random_raw(count)


def uniform_draws(seed: int, count: int, stream: str) -> NDArray[np.float64]:
    """`count` numbers in [0, 1); the first n do not depend on how many follow.

    Made from the raw bits, which numpy promises never to change; its distributions may change.
    """
    return (_bits(seed, count, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal_draws(seed: int, count: int, stream: str) -> NDArray[np.float64]:
    """`count` standard normal numbers (Box and Muller)."""
    u = uniform_draws(seed, 2 * count, stream)
    return np.sqrt(-2.0 * np.log1p(-u[:count])) * np.cos(2.0 * np.pi * u[count:])


def permutation(seed: int, count: int, stream: str) -> NDArray[np.int64]:
    """The numbers 0 to count - 1 in random order."""
    return np.argsort(_bits(seed, count, stream), kind="stable").astype(np.int64)


def draw_column(u: NDArray[np.float64], probs: NDArray[np.float64]) -> NDArray[np.int64]:
    """The column of `probs` ([C] or [N, C]) that each u in [0, 1) falls into.

    A column of probability zero is never drawn, not even by rounding: the cumulated sum is
    divided by its own end, so it reaches exactly 1 at the last column that can be drawn.
    """
    cumulated = np.cumsum(probs, axis=-1)
    cumulated /= cumulated[..., -1:]
    if cumulated.ndim == 1:  # by bisection: a comparison with each class costs rows times classes
        return np.searchsorted(cumulated, u, side="right")
    return (cumulated <= u[:, None]).sum(axis=-1)
