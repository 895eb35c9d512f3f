"""Documents whose numbers come from stored rows: marked blocks are written anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tolerant.experiment.store import Row

BLOCK = re.compile(r"(<!-- report: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, block: Callable[[str], str]) -> str:
    """Replace what stands between `<!-- report: NAME -->` and `<!-- end -->`.

    >>> fill("a\\n<!-- report: table1 -->\\nold\\n<!-- end -->\\n", lambda name: name.upper())
    'a\\n<!-- report: table1 -->\\nTABLE1\\n<!-- end -->\\n'
    """
    return BLOCK.sub(lambda found: f"{found[1]}{block(found['name'])}\n{found[3]}", text)


def cost(rows: Sequence[Row]) -> str:
    """What the rows took, by hardware. A run that shared its device counts for its share.

    >>> cost([{"time_s": 240.0, "side_by_side": 4, "hardware": "H200"}])
    '1 run, 1.0 minutes of H200'
    """
    minutes: dict[str, float] = {}
    for row in rows:
        share = row["time_s"] / row["side_by_side"] / 60
        minutes[row["hardware"]] = minutes.get(row["hardware"], 0.0) + share
    parts = [f"{value:.1f} minutes of {name}" for name, value in sorted(minutes.items())]
    return ", ".join([f"{len(rows)} run{'s' * (len(rows) != 1)}", *parts])
