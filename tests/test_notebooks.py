"""The notebooks run as they stand, show what is stored in them, and are light."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def shown(notebook: dict[str, Any]) -> list[set[str]]:
    """The kinds of what each cell shows: numbers may differ in their last digits elsewhere."""
    outputs = [cell.get("outputs", []) for cell in notebook["cells"]]
    return [
        {kind for one in cell for kind in one.get("data", ["text"])} - {"text/plain"} for cell in outputs
    ]  # Jupyter adds that to every picture


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    stored = json.loads(path.read_text())
    assert shown(module("notebooks/run.py").run(path)) == shown(stored)
    assert path.stat().st_size < 150_000
    counts = [cell["execution_count"] for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert counts == [*range(1, len(counts) + 1)]  # run from the top, whole


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_its_page_is_whole(path: Path) -> None:
    notebook = json.loads(path.read_text())
    if importlib.util.find_spec("nbformat"):
        import nbformat

        nbformat.validate(notebook)
    page = module("docs/notebooks.py").to_markdown(path)
    cells = notebook["cells"]
    assert page.count("```python") == sum(cell["cell_type"] == "code" for cell in cells)
    assert page.count("data:image/png") == sum(
        "image/png" in kinds for cell in shown(notebook) for kinds in cell
    )
    for target in re.findall(r"\]\(\.\./([^)#]+)", page):
        assert (ROOT / "docs" / target).exists(), target


def test_there_are_three_and_the_readme_leads_to_them() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["own_loop", "pictures", "table"]
    readme, site = (ROOT / "README.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    for path in NOTEBOOKS:
        assert f"](notebooks/{path.name})" in readme
        assert f"notebooks/{path.stem}.md" in site


def test_the_runner_stops_at_an_error_and_shows_what_jupyter_shows(tmp_path: Path) -> None:
    def cell(source: str) -> dict[str, Any]:
        return {"cell_type": "code", "source": [source], "outputs": [], "execution_count": None}

    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"cells": [cell("a = 2\nprint(a)\na + 1"), cell("a;"), cell("None")]}))
    first, *others = [cell["outputs"] for cell in module("notebooks/run.py").run(path)["cells"]]
    assert [one.get("text") or one["data"]["text/plain"] for one in first] == [["2\n"], ["3"]]
    assert others == [[], []]
    path.write_text(json.dumps({"cells": [cell("1 / 0")]}))
    with pytest.raises(ZeroDivisionError):
        module("notebooks/run.py").run(path)
