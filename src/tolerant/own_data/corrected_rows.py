"""The rows of a source as `tolerant train` found them, with what people have corrected in their labels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np

from tolerant.checks import check_ids
from tolerant.data import InputEncoder, NoisyDataset, Source
from tolerant.data.digest import content_digests, dataset_digests, label_digest
from tolerant.data.features import extract
from tolerant.data.features.extract import Compute
from tolerant.data.readers.pictures import suitable_side
from tolerant.own_data.choose_features import AUTO, NONE, Say, choose_extractor
from tolerant.own_data.settings import Settings
from tolerant.own_data.text_features import reads_characters
from tolerant.review import CorrectedLabels, apply_corrections, read_corrections
from tolerant.review.corrections import check_there


@dataclass(frozen=True, eq=False)
class CorrectedRows:
    """All that a training on a source depends on, beside its settings."""

    source: Source
    dataset: NoisyDataset
    """Texts as texts, labels uncorrected, without the rows that a person has dropped."""
    encoder: InputEncoder
    corrections: tuple[str | os.PathLike[str], ...]
    """The files, oldest first."""
    corrected: CorrectedLabels
    """What people have decided about the rows of `dataset`."""
    dropped: np.ndarray
    """int64: the places in the source of the rows that a person has dropped."""
    label_digest: str
    """A digest of the labels in the source, before any correction."""

    @classmethod
    def read(
        cls,
        source: Source,
        corrections: Sequence[str | os.PathLike[str]] = (),
        *,
        features: str = NONE,
        picture_sides: Sequence[int] | None = None,
        device: str = "cpu",
        say: Say = lambda line: None,
        with_characters: bool | Literal["auto"] = False,
        compute: Compute | None = None,
    ) -> CorrectedRows:
        """Load the rows; ids and corrections that do not fit are refused now, not after hours of training.

        ``features``: the name of an extractor, "auto" or "none" (`choose_extractor`).
        ``picture_sides``: how large pictures are wanted, ``at_most`` of `Source.load`.
        ``compute``: where features are computed, that of `extract`.
        ``with_characters``: texts are read as words and as characters, which classifiers take; "auto": unless
        there are so many that this takes gigabytes.
        """
        for path in corrections:  # before a hundred thousand pictures are decoded
            check_there(path)
        dataset = source.load(at_most=picture_sides)
        check_ids(dataset.ids)
        digest = label_digest(dataset.ids, dataset.given_labels)
        corrected = correct(dataset, corrections)
        dropped = np.flatnonzero(corrected.dropped)
        dataset, corrected = without_dropped(dataset, corrected)
        # In a table words stand beside columns anyway; elsewhere nobody asked for features alone.
        beside = dataset.free_texts is not None and (
            dataset.kind == "table" or (features == AUTO and bool(with_characters))
        )
        extractor = choose_extractor(dataset, features, device=device, say=say, beside_words=beside)
        if compute is not None:
            if extractor is None:
                raise ValueError(
                    "engine 'ray' (--engine ray) computes pretrained features, and these rows are trained on "
                    "without. Leave it out, or name an extractor: --features NAME"
                )
            given = dataset.inputs if dataset.free_texts is None else dataset.free_texts
            extract(given, extractor, compute)  # into the cache, where they are found from now on
        fitted = InputEncoder.fit(
            dataset,
            extractor,
            _side_of(dataset, picture_sides),
            with_characters=reads_characters(dataset, with_characters, say),
            with_words=beside,
        )
        unread = replace(source, frame=None)  # or its cells would stay in memory beside the numbers
        return cls(unread, dataset, fitted, tuple(corrections), corrected, dropped, digest)

    def trainable(self, device: str = "cpu") -> NoisyDataset:
        """The rows as the model gets them, with the corrected labels."""
        rows = self.encoder.trainable(self.dataset, device)
        return rows.with_given_labels(self.corrected.given_labels)

    @cached_property
    def input_digests(self) -> np.ndarray:
        """One for each row; pictures that do not fit in memory are decoded for it, once."""
        return dataset_digests(self.dataset)

    def fingerprint(self, settings: Settings, folds: int) -> str:
        """A hash of all that a training depends on, so that none goes on from the checkpoint of another."""
        digest = hashlib.sha256(repr((settings, folds, self.dataset.class_names)).encode())
        if self.encoder.extractor is not None:
            digest.update(self.encoder.extractor.key.encode())
        digest.update(self.corrected.given_labels.tobytes() + self.corrected.reviewed.tobytes())
        digest.update(self.input_digests.tobytes())
        if self.dataset.groups is not None:
            digest.update(self.dataset.groups.tobytes())
        return digest.hexdigest()[:16]


def _side_of(dataset: NoisyDataset, sides: Sequence[int] | None) -> int | None:
    """That at which its pictures were read, so that they are read so again, whatever is added to them."""
    if sides is None or dataset.kind != "image":
        return None if sides is None else sides[0]
    return suitable_side(sides, dataset.inputs.shape[1:])


def correct(dataset: NoisyDataset, files: Sequence[str | os.PathLike[str]]) -> CorrectedLabels:
    """The labels of ``dataset`` after each of these files, one on top of the other."""
    given, original = dataset.given_labels, dataset.given_labels
    reviewed, dropped = (np.zeros(len(dataset), np.bool_) for _ in range(2))
    for path in files:
        step = apply_corrections(
            given,
            read_corrections(path),
            ids=dataset.ids,
            class_names=dataset.class_names,
            row_digests=partial(content_digests, dataset),
        )
        replaced = step.original_labels != given
        original = np.where(replaced, step.original_labels, original)
        given, reviewed, dropped = step.given_labels, reviewed | step.reviewed, dropped | step.dropped
    return CorrectedLabels(given, reviewed, given != dataset.given_labels, dropped, original)


def without_dropped(
    dataset: NoisyDataset, corrected: CorrectedLabels
) -> tuple[NoisyDataset, CorrectedLabels]:
    """Rows and labels that are left, the rows with the labels that nobody has decided."""
    rows = dataset.with_given_labels(corrected.original_labels)
    if not corrected.dropped.any():
        return rows, corrected
    left = np.flatnonzero(~corrected.dropped)
    counts = np.bincount(corrected.given_labels[left], minlength=dataset.num_classes)
    if (counts > 0).sum() < 2:
        raise ValueError(
            f"the corrections drop {len(dataset) - len(left):,} of {len(dataset):,} rows, and leave fewer "
            "than two classes; at least two are needed."
        )
    fields = {name: value[left] for name, value in vars(corrected).items()}
    return rows.subset(left), CorrectedLabels(**fields)
