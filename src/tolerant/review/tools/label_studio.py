"""Label Studio: tasks with pre-annotations, whose score its list of tasks sorts by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from tolerant.files import write_atomic
from tolerant.review.tools.suspect_rows import SuspectRows, one_label

_SHOWN = {"image": "Image", "text": "Text", "table": "Table"}
_OURS = ("row_id", "given_label", "row_digest")


def write(folder: Path, suspects: SuspectRows) -> str:
    """`tasks.json` and `label_config.xml`."""
    kind = suspects.kind
    tasks = [
        _task(kind, content, row) for row, content in zip(suspects.rows(), _contents(suspects), strict=True)
    ]
    write_atomic(folder / "tasks.json", json.dumps(tasks, indent=1))
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in suspects.class_names)
    write_atomic(
        folder / "label_config.xml",
        f'<View>\n  <{_SHOWN[kind]} name="item" value="${kind}"/>\n'
        f'  <Header value="Given: $given_label"/>\n'
        f'  <Choices name="label" toName="item" choice="single" required="true">\n{choices}\n'
        "  </Choices>\n</View>\n",
    )
    local = (
        "Start it with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true, so that it shows the pictures. "
        if kind == "image" and suspects.files is not None
        else ""
    )
    return (
        f"{local}In Label Studio: a project with label_config.xml (Settings, Labeling Interface, Code), "
        "import tasks.json, order the tasks by prediction score. Export as JSON or JSON-MIN for --labels."
    )


def _contents(suspects: SuspectRows) -> list[Any]:
    """What is shown of each row: a picture or its address, a text, or cells by column."""
    if suspects.kind == "text":
        return suspects.texts()
    if suspects.kind == "table":
        return list(suspects.cells())
    if suspects.files is None:
        return list(suspects.pictures())
    # As its server gives out local files, from the root it has unless it is told another.
    return [f"/data/local-files/?d={quote(file.lstrip('/'))}" for file in suspects.files]


def _task(kind: str, content: Any, row: dict[str, Any]) -> dict[str, Any]:
    """A row as a task, with the suggested label as a prediction."""
    result = {
        "from_name": "label",
        "to_name": "item",
        "type": "choices",
        "value": {"choices": [row["suggested_label"]]},
    }
    return {
        "data": {
            kind: content,
            "row_id": row["id"],
            "given_label": row["given_label"],
            "row_digest": row["row_digest"],
        },
        "predictions": [{"model_version": "tolerant", "score": row["doubt"], "result": [result]}],
    }


def is_export(content: Any) -> bool:
    """Whether it is an export of whole tasks (JSON), or of the short form (JSON-MIN)."""
    if not isinstance(content, list) or not content or not isinstance(content[0], dict):
        return False
    return ("annotations" in content[0] and "data" in content[0]) or {"row_id", "annotation_id"} <= content[
        0
    ].keys()


def decisions(content: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for task in content:
        data = task.get("data", task)
        ours = {name: data.get(name) for name in _OURS}
        if "annotations" in task:
            chosen = [
                choice
                for annotation in task["annotations"]
                if not annotation.get("was_cancelled")
                for result in annotation.get("result", ())
                if result.get("from_name") == "label"
                for choice in result["value"].get("choices", ())
            ]
        else:
            chosen = [task["label"]] if task.get("label") else []
        rows.append(
            {
                "id": ours["row_id"],
                "given_label": ours["given_label"],
                "row_digest": ours["row_digest"],
                "new_label": one_label(chosen, str(ours["row_id"])),
            }
        )
    return rows
