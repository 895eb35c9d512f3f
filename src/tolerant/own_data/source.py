"""Where rows come from: loaded with labels to train on, or read without them to predict."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.arrays import INPUTS, as_inputs, pick, read_npz
from tolerant.data.cards import CARDS
from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoder import TableEncoder
from tolerant.data.folder import SUFFIXES as PICTURES
from tolerant.data.folder import find_pictures, is_class, readable
from tolerant.data.frame import check_columns, check_table, read_frame, texts
from tolerant.data.pictures import read_pictures
from tolerant.data.sources import load, stripped
from tolerant.data.text import TextFeatures


@dataclass(frozen=True)
class Source:
    """A data set's name, folder or file, and the options it is read with."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `tolerant.data.load`: split, root, label, id, text, size ..."""

    def load(self, encoder: TableEncoder | None = None) -> NoisyDataset:
        """All rows with their given labels; ``encoder``: for a table, one that was fitted before."""
        fitted: dict[str, Any] = {} if encoder is None else {"encoder": encoder}
        return load(self.name, **self.options, **fitted)

    def absolute(self) -> Source:
        """The same source, whatever folder it is read from later."""
        options = dict(self.options)
        if options.get("root") is not None:
            options["root"] = _absolute(options["root"])
        return Source(self.name if self.name in CARDS else _absolute(self.name), options)


def _check_options(path: Path, options: Mapping[str, Any], *known: str) -> None:
    """A ValueError for the first option that means nothing for such rows."""
    for name in options:
        if name not in known:
            taken = ", ".join(known) or "none"
            raise ValueError(f"{path} takes no option {name!r} for rows of this run; it takes {taken}")


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.path.expanduser(path))


@dataclass(frozen=True, eq=False)
class Features:
    """How inputs become what the model takes: pictures as they are, tables and texts by a fitted encoder."""

    kind: str
    shape: tuple[int, ...]
    """Of one row as the model gets it."""
    class_names: tuple[str, ...]
    encoder: TableEncoder | None = None
    text: TextFeatures | None = None

    @classmethod
    def fit(cls, dataset: NoisyDataset) -> Features:
        """For the rows to train on."""
        text = TextFeatures.fit(np.asarray(dataset.inputs)) if dataset.kind == "text" else None
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

    def read(self, source: Source, like: Source | None = None) -> NoisyDataset:
        """New rows without labels: all are given 0.

        ``like`` is the source of the training rows: its options name the columns of files and texts, unless
        those of ``source`` do.
        """
        inputs, ids = self._read_inputs(source, {} if like is None else stripped(dict(like.options)))
        if self.text is not None:
            inputs = self.text.transform(inputs, ids)
        shape = tuple(map(int, inputs.shape[1:]))
        if shape != self.shape:
            raise ValueError(
                f"{source.name} has rows of shape {shape}; the model was trained on {self.shape}. "
                "Bring them to that shape first."
            )
        kind: Any = "image" if self.kind == "image" else "table"
        return NoisyDataset(inputs, np.zeros(len(inputs), np.int64), None, self.class_names, ids, kind)

    def _read_inputs(self, source: Source, remembered: dict[str, Any]) -> tuple[Any, Any]:
        options = stripped(dict(source.options))
        path = Path(source.name).expanduser()
        if source.name in CARDS:
            rows = load(source.name, **options)
            self._must_be(rows.kind, path)
            return rows.inputs, rows.ids
        if path.is_dir():
            self._must_be("image", path)
            _check_options(path, options, "split")
            folder = path / options["split"] if options.get("split") else path
            # A class may be a link to a folder, as in training.
            links = (entry for entry in folder.iterdir() if entry.is_symlink() and is_class(entry))
            found = sorted(p for top in (folder, *links) for p in find_pictures(top))
            if not found:
                raise ValueError(f"{folder} has no pictures ({', '.join(PICTURES[:4])} ...)")
            names = [readable(p.relative_to(folder).as_posix()) for p in found]
            return self._pictures(folder, found, names)
        if not path.exists():
            raise FileNotFoundError(f"{source.name!r} is not a data set, file or folder")
        if path.suffix.lower() == ".npz":
            _check_options(path, options)
            arrays = read_npz(path)
            inputs, kind = as_inputs(pick(arrays, None, INPUTS, "inputs", path), path)
            self._must_be(kind, path)
            return inputs, arrays.get("ids")
        check_table(path)
        known = {"image": ("file",), "text": ("text", "id"), "table": ("id",)}[self.kind]
        _check_options(path, options, *known)
        # The ids of the training rows may have had a column that the new rows lack.
        return self._from_frame(path, {**remembered, **options, "id": options.get("id")})

    def _from_frame(self, path: Path, options: dict[str, Any]) -> tuple[Any, Any]:
        frame = read_frame(path)
        name = options.get("id")
        check_columns(frame, path, id=name)
        ids = None if name is None else frame[name].to_numpy(object).astype(str)
        if self.encoder is not None:
            inputs = self.encoder.transform(frame)
            strange = self.encoder.strange_columns(frame)
            for column in strange:
                warnings.warn(
                    f"{path}: no word in the column {column!r} is known from training, so it tells the "
                    "model nothing. Are its words spelt as in the training rows?",
                    stacklevel=4,
                )
            for column, (rows, word) in self.encoder.new_words(frame).items():
                if column not in strange:
                    warnings.warn(
                        f"{path}: {rows:,} of {len(frame):,} rows have a word in the column {column!r} that "
                        f"training never saw (first: {word[:40]!r}); it counts as none of the known ones, "
                        "and the other columns decide",
                        stacklevel=4,
                    )
            for column, rows in self.encoder.new_gaps(frame).items():
                warnings.warn(
                    f"{path}: {rows:,} of {len(frame):,} rows have no value in the column {column!r}, in "
                    "which no training row had a missing one. A number or date counts as the mean of the "
                    "training rows, a word as none of the known ones",
                    stacklevel=4,
                )
            return inputs, ids
        if self.kind == "text":
            column = options.get("text") or "text"
            check_columns(frame, path, text=column)
            return texts(frame, column), ids
        self._must_be("image", path)
        column = options.get("file") or "file"
        check_columns(frame, path, file=column)
        names = [str(cell) for cell in frame[column]]
        return self._pictures(path, [path.parent / name for name in names], names)

    def _pictures(self, source: Path, files: list[Path], names: list[str]) -> tuple[Any, Any]:
        inputs, kept = read_pictures(source, files, names, (self.shape[0], self.shape[1]))
        return inputs, np.array([names[row] for row in kept])

    def _must_be(self, kind: str, path: Path) -> None:
        if kind != self.kind:
            raise ValueError(f"{path} does not hold rows of the kind the model was trained on ({self.kind})")

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "class_names": list(self.class_names),
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "text": None if self.text is None else self.text.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Any) -> Features:
        return cls(
            value["kind"],
            tuple(value["shape"]),
            tuple(value["class_names"]),
            None if value["encoder"] is None else TableEncoder.from_dict(value["encoder"]),
            None if value["text"] is None else TextFeatures.from_dict(value["text"]),
        )
