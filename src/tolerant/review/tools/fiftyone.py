"""FiftyOne: pictures with the given and the suggested label, for `Dataset.from_json`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tolerant.files import write_atomic
from tolerant.review.tools.suspect_rows import SuspectRows

REVIEWED = "reviewed"  # the tag of a sample whose label was looked at and left as it was
_LABEL = "fiftyone.core.fields.EmbeddedDocumentField(fiftyone.core.labels.Classification)"
_FIELDS = {
    "filepath": "fiftyone.core.fields.StringField",
    "tags": "fiftyone.core.fields.ListField(fiftyone.core.fields.StringField)",
    "label": _LABEL,
    "suggested": _LABEL,
    "given_label": "fiftyone.core.fields.StringField",
    "row_id": "fiftyone.core.fields.StringField",
    "row_digest": "fiftyone.core.fields.StringField",
    "doubt": "fiftyone.core.fields.FloatField",
}


def write(folder: Path, suspects: SuspectRows) -> str:
    """`samples.json`, and the pictures beside it unless they are files."""
    if suspects.kind != "image":
        raise ValueError(
            "fiftyone shows pictures, and this data has none. Use label-studio, argilla or datasets."
        )
    files = suspects.files or _write_pictures(folder / "pictures", suspects)
    samples = [
        {
            "filepath": file,
            "tags": ["suspect"],
            "label": _classification(row["given_label"]),
            "suggested": _classification(row["suggested_label"], row["confidence"]),
            "given_label": row["given_label"],
            "row_id": row["id"],
            "row_digest": row["row_digest"],
            "doubt": row["doubt"],
        }
        for row, file in zip(suspects.rows(), files, strict=True)
    ]
    content = {
        "name": "suspects",
        "media_type": "image",
        "sample_fields": _FIELDS,
        "info": {},
        "default_classes": list(suspects.class_names),
        "samples": samples,
    }
    write_atomic(folder / "samples.json", json.dumps(content, indent=1))
    return (
        'In Python: dataset = fo.Dataset.from_json("samples.json"); '
        'fo.launch_app(dataset.sort_by("doubt", reverse=True)). '
        f'Change `label`, or tag what is right with "{REVIEWED}"; for --labels: '
        'dataset.write_json("reviewed.json").'
    )


def _write_pictures(folder: Path, suspects: SuspectRows) -> list[str]:
    files = [folder / f"{number:05d}.webp" for number in range(len(suspects.suspects))]
    for file, picture in zip(files, suspects.encoded_pictures(), strict=True):
        write_atomic(file, picture)
    return [os.path.abspath(file) for file in files]


def _classification(label: str, confidence: float | None = None) -> dict[str, Any]:
    return {"_cls": "Classification", "tags": [], "label": label, "confidence": confidence}


def is_export(content: Any) -> bool:
    return isinstance(content, dict) and {"samples", "sample_fields"} <= content.keys()


def decisions(content: dict[str, Any]) -> list[dict[str, Any]]:
    """A sample was decided if its label is another one now, or if it has the tag."""
    rows = []
    for sample in content["samples"]:
        label = (sample.get("label") or {}).get("label")
        decided = label != sample.get("given_label") or REVIEWED in sample.get("tags", ())
        rows.append(
            {
                "id": sample["row_id"],
                "given_label": sample.get("given_label"),
                "row_digest": sample.get("row_digest"),
                "new_label": label if decided else None,
            }
        )
    return rows
