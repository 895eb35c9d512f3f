"""Argilla: records with suggestions, for `Settings.from_json` and `records.from_json` of version 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tolerant.files import write_atomic
from tolerant.review.tools.suspect_rows import SuspectRows, one_label

_QUESTION = "label"


def write(folder: Path, suspects: SuspectRows) -> str:
    """`settings.json` and `records.json`."""
    is_image = suspects.kind == "image"
    field = "image" if is_image else "text"
    contents = (suspects.files or suspects.pictures()) if is_image else suspects.texts()
    records = [
        {
            "id": row["id"],
            "fields": {field: content},
            "metadata": {name: row[name] for name in ("doubt", "given_label", "row_digest")},
            "suggestions": {
                _QUESTION: {"value": row["suggested_label"], "score": row["confidence"], "agent": "tolerant"}
            },
            "responses": {},
            "vectors": {},
        }
        for row, content in zip(suspects.rows(), contents, strict=True)
    ]
    write_atomic(folder / "records.json", json.dumps(records, indent=1))
    write_atomic(folder / "settings.json", json.dumps(_settings(field, suspects.class_names), indent=1))
    return (
        'In Python: settings = rg.Settings.from_json("settings.json"); '
        'dataset = rg.Dataset("suspects", settings=settings).create(); '
        'dataset.records.from_json("records.json"). Sort by doubt. For --labels: '
        'dataset.records(with_responses=True).to_json("reviewed.json").'
    )


def _settings(field: str, class_names: tuple[str, ...]) -> dict[str, Any]:
    none = {"id": None, "inserted_at": None, "updated_at": None, "dataset_id": None, "description": None}
    text = {"use_markdown": False} if field == "text" else {}
    return {
        "guidelines": "Which label is right? The suggestion is a model's; `given_label` is the data's.",
        "fields": [
            {**none, "name": field, "title": field, "required": True, "settings": {"type": field, **text}}
        ],
        "questions": [
            {
                **none,
                "name": _QUESTION,
                "title": "Which label is right?",
                "required": True,
                "settings": {
                    "type": "label_selection",
                    "options": [{"text": name, "value": name} for name in class_names],
                    "visible_options": None,
                },
            }
        ],
        "vectors": [],
        "metadata": [
            {
                **{name: none[name] for name in ("id", "inserted_at", "updated_at", "dataset_id")},
                "name": name,
                "title": name,
                "visible_for_annotators": True,
                "settings": {"type": kind, "visible_for_annotators": True, **limits},
            }
            for name, kind, limits in (
                ("doubt", "float", {"min": None, "max": None}),
                ("given_label", "terms", {"values": None}),
                ("row_digest", "terms", {"values": None}),
            )
        ],
        "allow_extra_metadata": False,
        "distribution": {"strategy": "overlap", "min_submitted": 1},
        "mapping": None,
    }


def is_export(content: Any) -> bool:
    return (
        isinstance(content, list)
        and bool(content)
        and isinstance(content[0], dict)
        and {"id", "fields", "responses"} <= content[0].keys()
    )


def decisions(content: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": record["id"],
            "given_label": record.get("metadata", {}).get("given_label"),
            "row_digest": record.get("metadata", {}).get("row_digest"),
            "new_label": one_label(
                (answer["value"] for answer in (record["responses"] or {}).get(_QUESTION, ())), record["id"]
            ),
        }
        for record in content
    ]
