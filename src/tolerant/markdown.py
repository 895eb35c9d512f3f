"""Tables in Markdown: written here alone, and aligned for those who read them in a terminal."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from tolerant.printable import printable

_RULES = {"l": "---", "r": "---:", "c": ":-:"}


def markdown_table(head: Sequence[str], body: Iterable[Sequence[str]], align: str) -> str:
    """A table; ``align`` has an l, r or c for each column, the last one for all that follow.

    >>> print(markdown_table(["data", "rows"], [["digits", "1,797"]], "lr"))
    | data | rows |
    | --- | ---: |
    | digits | 1,797 |
    """
    rules = [_RULES[letter] for letter in align.ljust(len(head), align[-1])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rules, *body))


def plain(text: object) -> str:
    r"""Words from data, in a cell or a line: no cell, no line and no HTML of their own.

    >>> plain("a|b\n# <b>")
    'a\\|b\\n# &lt;b&gt;'
    """
    return printable(html.escape(str(text), quote=False), one_line=True).replace("|", "\\|")


def aligned(text: str) -> str:
    """The same text with the columns of its one table aligned.

    >>> print(aligned("| data | rows |\\n| --- | ---: |\\n| digits | 1,797 |\\n\\nAll of them."))
    | data   |  rows |
    | ---    |  ---: |
    | digits | 1,797 |
    <BLANKLINE>
    All of them.
    """
    from rich.cells import cell_len

    table = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    right = [cell.endswith("-:") for cell in table[1]] if table else []

    def padded(line: str) -> str:
        if not line.startswith("| "):
            return line
        cells = []
        for cell, width, to_the_right in zip(line[2:-2].split(" | "), widths, right, strict=True):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if to_the_right else cell + space)
        return f"| {' | '.join(cells)} |"

    return "\n".join(map(padded, text.splitlines()))
