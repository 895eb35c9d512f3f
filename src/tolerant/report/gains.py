"""What pruning gains: truncated L_q minus L_q, seed by seed, on the same wrong labels."""

from __future__ import annotations

from collections.abc import Sequence

from tolerant.experiment.papers import find
from tolerant.experiment.store import Row
from tolerant.markdown import markdown_table
from tolerant.report.comparison import data_set_title, lines, number, summary
from tolerant.report.selection import NO_ROWS, RULES, accuracy, by_cell

PLAIN, PRUNED = "lq", "truncated-lq"


def gains(rows: Sequence[Row], name: str) -> str:
    """A line for each cell in which both methods have a run of one seed; beside it the paper's difference."""
    cells = by_cell(rows)
    paper, experiment = find(name)
    printed = {(c.dataset, c.noise, c.rate, c.method): c.mean for c in paper.published(experiment)}
    body = []
    for line in (line for line in lines(rows, name) if line.method == PRUNED):
        place = (line.dataset, line.noise, line.rate)
        plain, pruned = (
            {row["spec"]["recipe"]["seed"]: row for row in cells.get((line.protocol, *place, method), ())}
            for method in (PLAIN, PRUNED)
        )
        seeds = sorted(plain.keys() & pruned.keys())
        if not seeds:
            continue
        found = []
        for rule in RULES:
            by_seed = [accuracy(pruned[seed], rule) - accuracy(plain[seed], rule) for seed in seeds]
            each = f" ({', '.join(f'{gain:.1f}' for gain in by_seed)})" if len(seeds) > 1 else ""
            found.append(number(summary(by_seed), 1) + each)
        theirs = [printed.get((*place, method)) for method in (PRUNED, PLAIN)]
        gap = "" if None in theirs else f"{theirs[0] - theirs[1]:.1f}"  # type: ignore[operator]
        numbers = [text.replace("-", "−") for text in (gap, *found)]
        body.append([data_set_title(line.dataset), line.noise, f"{line.rate:g}", *numbers])
    head = ["data set", "noise", "rate", "paper", *RULES.values()]
    return markdown_table(head, body, "lllr") if body else NO_ROWS
