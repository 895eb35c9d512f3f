"""How inputs become what the model takes, the same for new rows as for those it learnt from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from tolerant.checks import check_whole, check_words
from tolerant.data.dataset import Inputs, Kind, NoisyDataset
from tolerant.data.encoders.columns import TableEncoder
from tolerant.data.encoders.text import CharacterEncoder, TextEncoder

if TYPE_CHECKING:
    from tolerant.data.features import Extractor, Identity


class Unlabelled(NamedTuple):
    """New rows as a reader found them."""

    inputs: Inputs
    ids: np.ndarray | None
    kind: Kind
    texts: np.ndarray | None = None
    """Of a table, what its columns of text hold."""


@dataclass(frozen=True, eq=False)
class InputEncoder:
    """Pictures stay as they are, tables and texts go through an encoder that was fitted once.

    Pictures and texts may go through a pretrained extractor instead (`tolerant.data.features`), texts also
    through both: then its features are the columns "meaning" beside those of words and characters. A table
    with texts goes through both encoders: what its columns become is the part "columns" beside the words.
    """

    kind: Kind
    shape: tuple[int, ...]
    """The shape of a row as the model gets it."""
    class_names: tuple[str, ...]
    encoder: TableEncoder | None = None
    text: TextEncoder | None = None
    extractor: Identity | None = None
    picture_shape: tuple[int, ...] | None = None
    """(height, width, channels) of the pictures that the extractor was given."""
    at_most: int | None = None
    """How many pixels a side pictures may have (`tolerant.data.load`)."""
    characters: CharacterEncoder | None = None
    """What makes columns of runs of characters, beside those of words."""

    @classmethod
    def fit(
        cls,
        dataset: NoisyDataset,
        extractor: Extractor | None = None,
        at_most: int | None = None,
        *,
        with_characters: bool = False,
        with_words: bool = False,
    ) -> InputEncoder:
        """Learn from the rows to train on how they become inputs.

        ``with_characters``: texts have columns of runs of characters, too. ``with_words``: an extractor of
        texts gives its features beside words and characters, not instead of them.
        """
        kind, names, shape = dataset.kind, dataset.class_names, tuple(map(int, dataset.inputs.shape[1:]))
        found = dataset.free_texts
        given = dataset.inputs if found is None else found
        size = 0 if extractor is None else extractor(given[np.arange(1)]).shape[-1]
        if extractor is not None and not with_words:
            return cls(kind, (size,), names, None, None, extractor.identity, shape or None, at_most)
        if found is None:
            return cls(kind, shape, names, dataset.encoder, at_most=at_most)
        texts = np.asarray(found)
        text, characters = TextEncoder.fit(texts), CharacterEncoder.fit(texts) if with_characters else None
        size += len(text.vocabulary) + (len(characters.columns) if characters else 0) + sum(shape)
        identity = None if extractor is None else extractor.identity
        return cls(
            kind, (size,), names, dataset.encoder, text, identity, at_most=at_most, characters=characters
        )

    @property
    def encoded_kind(self) -> Kind:
        """What the model takes: pictures, or a table of numbers."""
        return "image" if self.kind == "image" and self.extractor is None else "table"

    @property
    def features_alone(self) -> bool:
        """Whether the model gets nothing but an extractor's features."""
        return self.extractor is not None and self.text is None

    def trainable(self, dataset: NoisyDataset, device: str = "cpu") -> NoisyDataset:
        """The rows as pictures or as a table of numbers, without what only a person looks at."""
        if self.encoded_kind == self.kind and self.text is None:
            return replace(dataset, cells=None)  # each fold would copy its rows of them
        return NoisyDataset(
            self._numbers(dataset.inputs, dataset.texts, dataset.ids, device),
            dataset.given_labels,
            dataset.true_labels,
            dataset.class_names,
            dataset.ids,
            encoder=self.encoder,
            groups=dataset.groups,
        )

    def _numbers(self, inputs: Any, texts: Any, ids: Any, device: str) -> Any:
        """The rows as the model takes them; ``texts``: those of a table."""
        rows, features, given = None, None, inputs if texts is None else texts
        if self.text is not None:
            rows = self.text.transform(np.asarray(given), ids, self.characters, alone=texts is None)
        if self.extractor is not None:
            from tolerant.data.features import extract, load_known

            kind: Literal["image", "text"] = "image" if self.kind == "image" else "text"
            features = extract(given, load_known(self.extractor, kind, device))
        if rows is None:
            return inputs if features is None else features
        if features is not None:
            rows = rows.beside("meaning", features[np.arange(len(features))])
        return rows if texts is None else rows.beside("columns", inputs, self._scale_of_columns)

    @property
    def _scale_of_columns(self) -> float:
        """What makes the columns of a row as long, on average, as its words: for networks, which would learn
        the longer ones first, and leave out rows whose label they do not explain."""
        if self.text is None or self.encoder is None or self.characters is not None:
            return 1.0  # nor are words scaled
        return float(self.text.scale / len(self.encoder.columns) ** 0.5)

    def unlabelled(self, rows: Unlabelled, where: Any, device: str = "cpu") -> NoisyDataset:
        """New rows for the model to label: all are given 0. ``device``: where an extractor runs."""
        if rows.kind != self.kind:
            raise self.other_kind(where)
        if rows.kind == "table" and self.text is not None and rows.texts is None:
            raise ValueError(
                f"{where} comes without texts, and the model was trained on a table with some. Say which "
                "columns hold them: text=... (--text)"
            )
        inputs: Any = self._numbers(rows.inputs, rows.texts, rows.ids, device)
        shape = tuple(map(int, inputs.shape[1:]))
        if shape != self.shape:
            raise ValueError(
                f"{where} has rows of shape {shape}; the model was trained on {self.shape}. "
                "Bring them to that shape first."
            )
        labels = np.zeros(len(inputs), np.int64)
        return NoisyDataset(inputs, labels, None, self.class_names, rows.ids, self.encoded_kind, self.encoder)

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
            "extractor": None if self.extractor is None else self.extractor.to_dict(),
            "picture_shape": self.picture_shape and list(self.picture_shape),
            "at_most": self.at_most,
            "characters": None if self.characters is None else self.characters.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Any) -> InputEncoder:
        from tolerant.data.features.extractor import Identity

        if value["kind"] not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}; got {value['kind']!r}.")
        return cls(
            value["kind"],
            _read_shape(value["shape"], "shape"),
            check_words(value["class_names"], "class_names"),
            None if value["encoder"] is None else TableEncoder.from_dict(value["encoder"]),
            None if value["text"] is None else TextEncoder.from_dict(value["text"]),
            Identity.from_dict(value["extractor"]) if value.get("extractor") else None,  # older runs: none
            _read_shape(value["picture_shape"], "picture_shape") if value.get("picture_shape") else None,
            None if value.get("at_most") is None else check_whole(value["at_most"], "at_most", least=1),
            CharacterEncoder.from_dict(value["characters"]) if value.get("characters") else None,
        )


def _read_shape(value: Any, name: str) -> tuple[int, ...]:
    return tuple(check_whole(size, name, least=1) for size in value)
