"""Run the notebooks and store what they show: ``python notebooks/run.py [NAME.ipynb ...]`` (default: all).

A small stand-in for Jupyter, so that the tests need none: each cell is plain Python, its last expression is
shown, and so are the figures that it has drawn.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_DPI = 80  # some 30 kB a figure


def run(path: Path) -> dict[str, Any]:
    """The notebook with the outputs that its cells have now, each run in an empty folder."""
    os.environ["MPLBACKEND"] = "agg"
    notebook: dict[str, Any] = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["outputs"] = _run_cell("".join(cell["source"]), f"{path.name}, cell {count}", names)
                cell["execution_count"] = count
                for output in cell["outputs"]:
                    if output["output_type"] == "execute_result":
                        output["execution_count"] = count
    return notebook


def _run_cell(source: str, title: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    body = ast.parse(source, title).body
    last = (
        body.pop() if body and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    )
    said, value = io.StringIO(), None
    with redirect_stdout(said), redirect_stderr(io.StringIO()):  # bars of progress are no result
        exec(compile(ast.Module(body, []), title, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), title, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if said.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(said.getvalue())})
    if value is not None:
        shown: dict[str, Any] = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            shown["text/html"] = _lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "data": shown, "metadata": {}})
    return outputs + [
        {"output_type": "display_data", "data": {"image/png": picture}, "metadata": {}}
        for picture in _figures()
    ]


def _figures() -> list[str]:
    """Those drawn by a cell, as base64; they are closed, as Jupyter does."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    drawn = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
        drawn.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return drawn


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    for path in [Path(name).resolve() for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n")
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
