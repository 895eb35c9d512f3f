"""Documents whose numbers come from stored rows: marked blocks are written anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tolerant.experiment.names import method_name
from tolerant.experiment.papers import find_experiment, gce2018, papers
from tolerant.experiment.store import Row, Store
from tolerant.files import write_atomic
from tolerant.markdown import markdown_table
from tolerant.report import rounds
from tolerant.report.comparison import (
    Line,
    data_set_title,
    lines,
    number,
    summary,
    table_with_notes,
    unbroken,
)
from tolerant.report.drawing import save_figure
from tolerant.report.figure import PICTURES, differences
from tolerant.report.selection import NO_ROWS, RULES, accuracy, by_cell, cost, select

BLOCK = re.compile(r"(<!-- report: (?P<name>[\w-]+)(?: (?P<changed>\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)
# Enough to see what the losses do: moderate and heavy uniform noise, and one class taken for another.
CELLS = (("uniform", 0.4), ("uniform", 0.8), ("class-dependent", 0.4))
SHOWN = ("cce", "forward-true", "lq", "truncated-lq")
PLAIN, PRUNED = "lq", "truncated-lq"


def fill_page(page: Path, store: Store) -> None:
    """Write every marked block of a Markdown file anew, its pictures into `figures` beside it."""
    text = page.read_text("utf-8")
    folder = page.parent / "figures"
    write_atomic(page, fill(text, lambda name, changed: _block(store, name, changed, folder)))


def fill(text: str, block: Callable[[str, str], str | None]) -> str:
    """Replace what stands between `<!-- report: NAME -->` and `<!-- end -->`, unless the block is None.

    `<!-- report: NAME epochs=40 -->` is for the rows of a changed protocol.

    >>> marked = "a\\n<!-- report: figure1 epochs=40 -->\\nold\\n<!-- end -->\\n"
    >>> fill(marked, lambda name, changed: f"{name} of {changed}")
    'a\\n<!-- report: figure1 epochs=40 -->\\nfigure1 of epochs=40\\n<!-- end -->\\n'
    """

    def anew(found: re.Match[str]) -> str:
        written = block(found["name"], found["changed"] or "")
        return found[0] if written is None else f"{found[1]}{written}\n{found[4]}"

    return BLOCK.sub(anew, text)


def _block(store: Store, name: str, changed: str, folder: Path) -> str | None:
    if name in (choices := {f"{paper.name}-choices": paper.choices for paper in papers()}):
        return markdown_table(["choice", "reason"], choices[name].items(), "l")
    if name == "table1-brief":
        return brief_table1(select(store, "table1"), select(store, "cifar-n"))
    if name == "table1-gains":
        return gains(select(store, "table1"), "table1")
    if name.startswith("bench-"):
        return None  # written by benchmarks/tables.py
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
            return text_of(store, name, rows, table)
        drawn = differences(table, name) if table else None
        title = find_experiment(name)[1].title.lower()
        shows = f"Our accuracy minus the paper's, with intervals, for each cell of {title}."
    return f"![{shows}](figures/{save_figure(drawn, folder, name).name})" if drawn else NO_ROWS


def text_of(store: Store, name: str, rows: Sequence[Row], table: list[Line]) -> str:
    """An experiment's table: rounds stand beside the paper's method, others beside their paper's numbers."""
    of_rounds = name in ("rounds", "rounds-before")
    return rounds.table(store, rows) if of_rounds else table_with_notes(rows, table)


def brief_table1(rows: Sequence[Row], by_people: Sequence[Row]) -> str:
    """A part of table 1, one line a cell: ours, and in brackets the paper's number.

    Below it the same ``by_people``, the rows of CIFAR-N, of which the paper has none.
    """
    shown = [
        row
        for row in rows
        if (row["spec"]["noise"], row["spec"]["noise_rate"]) in CELLS and method_name(row["spec"]) in SHOWN
    ]
    table = [*lines(shown, "table1"), *lines(by_people, "cifar-n")]
    if not table:
        return NO_ROWS
    places = list(dict.fromkeys((line.dataset, line.noise, line.rate) for line in table))
    found = {(line.dataset, line.noise, line.rate, line.method): line for line in table}
    body = []
    for place in places:
        cells = [found.get((*place, name)) for name in SHOWN]
        runs = [cell.main.n for cell in cells if cell is not None]
        span = f"{min(runs)}" + (f" to {max(runs)}" if len(set(runs)) > 1 else "")
        rate = f"{place[2]:g}" if place[1] != "human" else ""  # nobody set it
        body.append([data_set_title(place[0]), place[1], rate, *map(_beside, cells), span])
    head = ["data set", "noise", "rate", *(gce2018.PAPER.methods[name] for name in SHOWN), "runs"]
    note = (
        "Clean test accuracy in per cent at the epoch of best noisy-validation accuracy, "
        "mean ± sample standard deviation over runs; in brackets the paper's. Forward T is told the true "
        f"matrix. Of the {_printed_cells()} cells of the paper's table, {len(by_cell(rows))} have a run."
    )
    return f"{unbroken(markdown_table(head, body, 'lllr'))}\n\n{note} {cost([*shown, *by_people])}."


def _printed_cells() -> int:
    paper, experiment = find_experiment("table1")
    return len(paper.published(experiment))


def _beside(line: Line | None) -> str:
    if line is None:
        return ""
    return number(line.main) + ("" if line.paper is None else f" ({number(line.paper)})")


def gains(rows: Sequence[Row], name: str) -> str:
    """What pruning gains: truncated L_q minus L_q, seed by seed, on the same wrong labels.

    A line for each cell in which both methods have a run of one seed; beside it the paper's difference.
    """
    cells = by_cell(rows)
    paper, experiment = find_experiment(name)
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
