"""Documents whose numbers come from stored rows: marked blocks are written anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tolerant.experiment.store import Row

BLOCK = re.compile(r"(<!-- report: (?P<name>[\w-]+)(?: (?P<changed>\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)


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


def cost(rows: Sequence[Row]) -> str:
    """What the rows took, by hardware. A run that shared its device counts for its share.

    >>> cost([{"device_s": 60.0, "hardware": "H200"}])
    '1 run, 1.0 minutes of H200'
    """
    minutes: dict[str, float] = {}
    for row in rows:
        minutes.setdefault(row["hardware"], 0.0)
        minutes[row["hardware"]] += row["device_s"] / 60
    parts = [f"{value:.1f} minutes of {name}" for name, value in sorted(minutes.items())]
    return ", ".join([f"{len(rows)} run{'s' * (len(rows) != 1)}", *parts])
