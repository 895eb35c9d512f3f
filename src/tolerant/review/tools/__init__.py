"""Suspects for the annotation tools people already have, and what was decided there.

A tool is a module: `write` makes the files that it imports, `decisions` reads what it exports, as rows with
the columns of the review page's own file (`id`, `given_label`, `new_label`, `row_digest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tolerant.review.tools import argilla, fiftyone, hub_rows, label_studio
from tolerant.review.tools.suspect_rows import SuspectRows

Decision = Mapping[str, Any]

WRITERS: dict[str, Callable[[Path, SuspectRows], str]] = {
    "label-studio": label_studio.write,
    "fiftyone": fiftyone.write,
    "argilla": argilla.write,
    "datasets": hub_rows.write,
}
"""By the name of the tool: writes into a folder, and returns what to do with it there."""


def decisions_of(content: Any) -> list[Decision] | None:
    """What a tool exported as JSON, as rows with an id and perhaps a new label; None if it is no tool's."""
    for tool in (label_studio, argilla, fiftyone):
        if tool.is_export(content):
            return tool.decisions(content)
    return None


__all__ = ["WRITERS", "SuspectRows", "decisions_of"]
