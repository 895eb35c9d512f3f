"""Documents whose numbers come from stored rows: marked blocks are written anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tolerant.experiment.papers import find, papers
from tolerant.experiment.store import Store
from tolerant.files import write_atomic
from tolerant.markdown import markdown_table
from tolerant.report.benchmarks import BENCHES
from tolerant.report.brief import brief_table1
from tolerant.report.comparison import lines, table_with_notes
from tolerant.report.drawing import save
from tolerant.report.figure import PICTURES, differences
from tolerant.report.selection import NO_ROWS, select

BLOCK = re.compile(r"(<!-- report: (?P<name>[\w-]+)(?: (?P<changed>\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def write_page(page: Path, store: Store) -> None:
    """Write every marked block of a Markdown file anew, its pictures into `figures` beside it."""
    text = page.read_text("utf-8")
    folder = page.parent / "figures"
    write_atomic(page, fill(text, lambda name, changed: _block(store, name, changed, folder)))


def fill(text: str, block: Callable[[str, str], str]) -> str:
    """Replace what stands between `<!-- report: NAME -->` and `<!-- end -->`.

    `<!-- report: NAME epochs=40 -->` is for the rows of a changed protocol.

    >>> marked = "a\\n<!-- report: figure1 epochs=40 -->\\nold\\n<!-- end -->\\n"
    >>> fill(marked, lambda name, changed: f"{name} of {changed}")
    'a\\n<!-- report: figure1 epochs=40 -->\\nfigure1 of epochs=40\\n<!-- end -->\\n'
    """
    return BLOCK.sub(
        lambda found: f"{found[1]}{block(found['name'], found['changed'] or '')}\n{found[4]}", text
    )


def _block(store: Store, name: str, changed: str, folder: Path) -> str:
    if name in (choices := {paper.called("choices"): paper.choices for paper in papers()}):
        return markdown_table(["choice", "reason"], choices[name].items(), "l")
    if name == "table1-brief":
        return brief_table1(select(store, "table1"), select(store, "cifar-n"))
    if name in BENCHES:
        return BENCHES[name](Path(store.folder))
    if name in PICTURES:
        picture = PICTURES[name]
        rows = picture.rows(store, changed)
        drawn = picture.draw(store, rows) if rows else None
        shows = picture.shows
    else:
        name, is_picture, _ = name.partition("-differences")
        rows = select(store, name, changed=changed)
        table = lines(rows, name)
        if not is_picture:
            return table_with_notes(rows, table)
        drawn = differences(table, name) if table else None
        title = find(name)[1].title.lower()
        shows = f"Our accuracy minus the paper's, with intervals, for each cell of {title}."
    return f"![{shows}](figures/{save(drawn, folder, name).name})" if drawn else NO_ROWS
