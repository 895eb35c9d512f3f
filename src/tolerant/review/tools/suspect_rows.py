"""What a tool is told of each suspect."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tolerant.data.dataset import NoisyDataset
from tolerant.data.digest import content_digests
from tolerant.data.stored_pictures import StoredPicture
from tolerant.review.thumbnails import thumbnails
from tolerant.suspects import Suspects

PICTURE_PIXELS = 512  # of pictures without a file of their own


@dataclass(frozen=True, eq=False)
class SuspectRows:
    """The suspects of a data set, most doubtful first, as plain values."""

    suspects: Suspects
    dataset: NoisyDataset

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.dataset.class_names

    @property
    def kind(self) -> str:
        """What a person looks at: image, text or table."""
        return "image" if self.dataset.files is not None else self.dataset.kind

    def rows(self) -> list[dict[str, Any]]:
        """id, given_label, suggested_label, confidence, doubt (1 - p_right) and row_digest of each."""
        found, names = self.suspects, self.class_names
        digests = content_digests(self.dataset, found.index)
        return [
            {
                "id": str(found.ids[i]),
                "given_label": names[found.given_labels[i]],
                "suggested_label": names[found.suggested_labels[i]],
                "confidence": round(float(found.confidence[i]), 6),
                "doubt": round(1.0 - float(found.p_right[found.index[i]]), 6),
                "row_digest": digests[i],
            }
            for i in range(len(found))
        ]

    @cached_property
    def files(self) -> list[str] | None:
        """Where the pictures are, from the root of the disk, if they are files."""
        if self.dataset.files is None:
            return None
        places = [self.dataset.files[row] for row in self.suspects.index]
        return None if any(isinstance(p, StoredPicture) for p in places) else [*map(os.path.abspath, places)]

    def pictures(self) -> list[str]:
        """The pictures as data URIs."""
        return thumbnails(self.dataset, self.suspects.index, PICTURE_PIXELS)

    def encoded_pictures(self) -> list[bytes]:
        """The pictures as the bytes of WebP files."""
        return [base64.b64decode(uri.partition(",")[2]) for uri in self.pictures()]

    def texts(self) -> list[str]:
        """The text of each suspect; a row of a table as its cells, a line each."""
        if self.dataset.kind == "text":
            return [str(text) for text in self.dataset.inputs[self.suspects.index]]
        return ["\n".join(f"{name}: {value}" for name, value in row.items()) for row in self.cells()]

    def cells(self) -> list[dict[str, Any]]:
        """The cells of each suspect by column, or by place where the columns have no names."""
        index = self.suspects.index
        if self.dataset.cells is not None:
            return [plain(row) for row in self.dataset.cells.iloc[index].to_dict("records")]
        return [plain({str(i): x for i, x in enumerate(row)}) for row in self.dataset.inputs[index]]


def plain(row: dict[Any, Any]) -> dict[str, Any]:
    """Without numpy's numbers and empty cells."""
    return {
        str(name): value for name, value in json.loads(json.dumps(row, default=str)).items() if value == value
    }


def one_label(labels: Iterable[Any], row_id: str) -> str | None:
    """What several people chose, if they agree."""
    chosen = sorted({str(label) for label in labels})
    if len(chosen) > 1:
        raise ValueError(
            f"{row_id!r} was labelled {' and '.join(map(repr, chosen))} by different people. "
            "Settle it in the tool, and export again."
        )
    return chosen[0] if chosen else None
