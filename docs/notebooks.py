"""The notebooks as pages of the site: their cells as Markdown, with the outputs that are stored in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(\.\./docs/")  # to the docs, as the links stand in a checkout


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Called by mkdocs with the files of the site."""
    from mkdocs.structure.files import File

    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=to_markdown(path)))
    return files


def to_markdown(path: Path) -> str:
    """A notebook as a page; where its file is to be found stands below the title."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_LINK.sub("](../", source))
        else:
            parts += [f"```python\n{source.rstrip(';')}\n```", *map(_shown, cell["outputs"])]
    title, _, rest = parts[0].partition("\n")
    parts[0] = f"{title}\n\n*A notebook: `notebooks/{path.name}` in a checkout runs in Jupyter.*\n{rest}"
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    """What a cell has printed, drawn or returned.

    >>> print(_shown({"output_type": "stream", "text": ["done"]}))
    ```{.text .output}
    done
    ```
    """
    data = output.get("data", {})
    if picture := data.get("image/png"):
        return f'<img class="output" alt="what the cell above draws" src="data:image/png;base64,{picture}">'
    if table := data.get("text/html"):
        # Without its own style, as tables of the site; a blank line would end it.
        plain = re.sub(r"<style.*?</style>|\n\s*", "", "".join(table), flags=re.DOTALL)
        return plain.replace('<table border="1" class="dataframe">', "<table>")
    text = "".join(output.get("text") or data["text/plain"]).rstrip()
    return f"```{{.text .output}}\n{text}\n```"
