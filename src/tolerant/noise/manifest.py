"""What was drawn, as a few lines of JSON by which labels can be verified."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from tolerant.files import read_json, write_json


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
