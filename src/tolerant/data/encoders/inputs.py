"""How inputs become what the model takes, the same for new rows as for those it learnt from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tolerant.data.dataset import Inputs, Kind, NoisyDataset
from tolerant.data.encoders.columns import TableEncoder
from tolerant.data.encoders.text import TextEncoder


class Unlabelled(NamedTuple):
    """New rows as a reader found them."""

    inputs: Inputs
    ids: np.ndarray | None
    kind: Kind


@dataclass(frozen=True, eq=False)
class InputEncoder:
    """Pictures stay as they are, tables and texts go through an encoder that was fitted once."""

    kind: Kind
    shape: tuple[int, ...]
    """Of one row as the model gets it."""
    class_names: tuple[str, ...]
    encoder: TableEncoder | None = None
    text: TextEncoder | None = None

    @classmethod
    def fit(cls, dataset: NoisyDataset) -> InputEncoder:
        """For the rows to train on."""
        text = TextEncoder.fit(np.asarray(dataset.inputs)) if dataset.kind == "text" else None
        shape = (len(text.vocabulary),) if text else tuple(map(int, dataset.inputs.shape[1:]))
        return cls(dataset.kind, shape, dataset.class_names, dataset.encoder, text)

    def trainable(self, dataset: NoisyDataset) -> NoisyDataset:
        """The rows as pictures or as a table of numbers, without what only a person looks at."""
        if self.text is None:
            return replace(dataset, cells=None)  # each fold would copy its rows of them
        return NoisyDataset(
            self.text.transform(np.asarray(dataset.inputs), dataset.ids),
            dataset.given_labels,
            dataset.true_labels,
            dataset.class_names,
            dataset.ids,
            groups=dataset.groups,
        )

    def unlabelled(self, rows: Unlabelled, where: Any) -> NoisyDataset:
        """New rows for the model to label: all are given 0."""
        if rows.kind != self.kind:
            raise self.other_kind(where)
        inputs: Any = rows.inputs
        if self.text is not None:
            inputs = self.text.transform(inputs, rows.ids)
        shape = tuple(map(int, inputs.shape[1:]))
        if shape != self.shape:
            raise ValueError(
                f"{where} has rows of shape {shape}; the model was trained on {self.shape}. "
                "Bring them to that shape first."
            )
        kind: Kind = "image" if self.kind == "image" else "table"
        return NoisyDataset(inputs, np.zeros(len(inputs), np.int64), None, self.class_names, rows.ids, kind)

    def other_kind(self, where: Any) -> ValueError:
        """What to raise for rows that this model cannot take."""
        return ValueError(f"{where} does not hold rows of the kind the model was trained on ({self.kind})")

    def to_dict(self) -> dict[str, Any]:
        """A value for JSON, from which `from_dict` makes the same encoder."""
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "class_names": list(self.class_names),
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "text": None if self.text is None else self.text.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Any) -> InputEncoder:
        return cls(
            value["kind"],
            tuple(value["shape"]),
            tuple(value["class_names"]),
            None if value["encoder"] is None else TableEncoder.from_dict(value["encoder"]),
            None if value["text"] is None else TextEncoder.from_dict(value["text"]),
        )
