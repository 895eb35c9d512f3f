"""Small files as a person has them, and the `tolerant` command on them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from train_helpers import pictures, table
from typer.testing import CliRunner

from tolerant.cli import make_app

QUICK = ("--epochs", "15", "--folds", "2")
RUN_FILES = {
    *("model.safetensors", "audit.safetensors", "spec.json", "history.json", "suspects.csv", "report.html"),
}
AT_ONCE = ("--epochs", "2", "--folds", "0")  # where it does not matter what is learnt


def tolerant(*arguments: Any) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, *, labels: bool = True, num_rows: int = 200, town: str = "Bonn") -> np.ndarray:
    """Numbers, words and a constant; the label follows from the numbers, a fifth of them wrong."""
    data = table(num_rows, noise_rate=0.2)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "a", "b", "c", "d", "town", "same", *(["label"] if labels else [])])
        for row in range(num_rows):
            place = town if row % 2 else "Ulm"
            cells = [f"row{row}", *data.inputs[row, :4].round(4), place, 1]
            writer.writerow([*cells, *([data.class_names[data.given_labels[row]]] if labels else [])])
    return data.true_labels


def write_texts(path: Path) -> np.ndarray:
    words = (["sun", "rain", "wind", "cloud"], ["goal", "match", "team", "ball"])
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 120)
    given = np.where(rng.random(120) < 0.15, 1 - true, true)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(120):
            writer.writerow([" ".join(rng.choice(words[true[row]], 4)), ("weather", "sport")[given[row]]])
    return true


def write_pictures(folder: Path, size: int = 16) -> None:
    data = pictures(80, noise_rate=0.1, size=size)
    for row in range(80):
        file = folder / data.class_names[data.given_labels[row]] / f"{row:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.inputs[row]).save(file)


def page_data(path: Path) -> dict[str, Any]:
    """What the review page of that path holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    return dict(json.loads(found[1]))
