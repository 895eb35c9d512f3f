"""A paper's numbers beside ours, as lines, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tolerant.data import CARDS
from tolerant.experiment.names import protocol_changes
from tolerant.experiment.papers import find_experiment
from tolerant.experiment.store import Row
from tolerant.markdown import markdown_table
from tolerant.report.selection import NO_ROWS, RULES, accuracy, by_cell, cost, mixed_versions

NOISES = ("uniform", "open-set", "class-dependent")
CONFIDENCE = 0.95


def data_set_title(name: str) -> str:
    """The title on the card of a published set; any other set by its name."""
    return CARDS[name].title if name in CARDS else name


@dataclass(frozen=True)
class Summary:
    """A mean with its sample standard deviation (None for one run) and its count."""

    mean: float
    std: float | None
    n: int


def summary(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation (n - 1).

    >>> summary([1.0, 2.0, 3.0])
    Summary(mean=2.0, std=1.0, n=3)
    """
    n = len(values)
    if n == 0:
        raise ValueError("values must hold at least one number; got none.")
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(mean, None, 1)
    return Summary(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)), n)


def difference_margin(ours: Summary, paper: Summary) -> float | None:
    """Half the width of the 95 % interval of (our expected value - the paper's), or None.

    Both deviations known: Welch. One known: that deviation is taken for both sides, which makes
    a single run of ours a prediction from the paper's five. None known: nothing can be said.

    >>> round(difference_margin(Summary(87.4, None, 1), Summary(87.13, 0.22, 5)), 2)
    0.67
    """
    from scipy.stats import t

    variances = [(s.std**2, s.n) for s in (ours, paper) if s.std is not None]
    if not variances:
        return None
    if len(variances) == 1:
        variance, n = variances[0]
        error = math.sqrt(variance * (1 / ours.n + 1 / paper.n))
        freedom = float(n - 1)
    else:
        a, b = (variance / n for variance, n in variances)
        error = math.sqrt(a + b)
        if error == 0.0:
            return 0.0
        freedom = (a + b) ** 2 / (a**2 / (ours.n - 1) + b**2 / (paper.n - 1))
    return float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error


@dataclass(frozen=True)
class Line:
    """One cell: the paper's number, if it has one, and ours under every rule, in per cent."""

    protocol: str
    dataset: str
    noise: str
    rate: float
    method: str
    title: str
    """What the paper calls the method."""
    rule: str
    paper: Summary | None
    ours: dict[str, Summary]

    @property
    def main(self) -> Summary:
        """Ours, under the rule the paper's number follows (runs on all rows have no validation)."""
        return self.ours.get(self.rule) or self.ours["last_epoch"]

    @property
    def difference(self) -> float | None:
        return None if self.paper is None else self.main.mean - self.paper.mean

    @property
    def margin(self) -> float | None:
        return None if self.paper is None else difference_margin(self.main, self.paper)

    @property
    def agrees(self) -> bool | None:
        """Whether the interval around the difference covers zero; None when there is no interval."""
        if self.difference is None or self.margin is None:
            return None
        return abs(self.difference) <= self.margin


def lines(rows: Iterable[Row], name: str) -> list[Line]:
    """A line for every cell with a row: data set, noise, rate, then method as in the paper."""
    paper, experiment = find_experiment(name)
    printed = {(c.dataset, c.noise, c.rate, c.method): c for c in paper.published(experiment)}
    found = []
    for (protocol, dataset, noise, rate, method), group in by_cell(rows).items():
        known = printed.get((dataset, noise, rate, method))
        ours = {
            rule: summary([accuracy(row, rule) for row in group])
            for rule in RULES
            if all(rule in row["result"] for row in group)
        }
        # Where the number of runs is not said, it is taken for one.
        theirs = None if known is None else Summary(known.mean, known.std, known.runs or 1)
        title = paper.methods.get(method, method)
        found.append(Line(protocol, dataset, noise, rate, method, title, experiment.rule, theirs, ours))
    return sorted(found, key=lambda line: _position(line, paper.methods))


def table_text(table: list[Line]) -> str:
    """The table for people. The mark says that the 95 % interval of the difference covers zero."""
    rule = table[0].rule
    columns: list[tuple[str, str, Callable[[Line], str]]] = [
        ("data set", "l", lambda line: data_set_title(line.dataset)),
        ("noise", "l", lambda line: line.noise),
        ("rate", "l", lambda line: f"{line.rate:g}" if line.noise != "human" else ""),  # nobody set it
        ("method", "l", lambda line: line.title),
        ("paper", "r", lambda line: number(line.paper)),
        (f"ours: {RULES[rule]}", "r", lambda line: number(line.main)),
        ("difference", "r", _signed_difference),
        ("", "c", lambda line: "✓" if line.agrees else ""),
        ("runs", "r", lambda line: str(line.main.n)),
        *(
            (title, "r", lambda line, name=name: number(line.ours.get(name)))
            for name, title in RULES.items()
            if name != rule
        ),
        ("changed", "l", lambda line: protocol_changes(line.protocol)),
    ]
    filled = [(head, align, [cell(line) for line in table]) for head, align, cell in columns]
    # A table that the paper lacks has no numbers of the paper's.
    heads, aligns, cells = zip(*(column for column in filled if any(column[2])), strict=True)
    return markdown_table(heads, zip(*cells, strict=True), "".join(aligns))


def table_with_notes(rows: Sequence[Row], table: list[Line]) -> str:
    """The table, what its columns mean, and what its rows cost."""
    if not table:
        return NO_ROWS
    mixed = mixed_versions(rows)
    return f"{table_text(table)}\n\n{legend(table)} {cost(rows)}{f'; {mixed}' if mixed else ''}."


def _signed_difference(line: Line) -> str:
    return "" if line.difference is None else f"{line.difference:+.2f}".replace("-", "−")


def legend(table: list[Line]) -> str:
    """What the columns mean, under the table."""
    note = "Accuracy on the clean test set in per cent, mean ± sample standard deviation over seeds"
    if any(line.paper for line in table):
        note += ". ✓: the 95 % interval of the difference covers zero"
    if any(line.main.n == 1 and line.paper and line.paper.std is not None for line in table):
        note += "; for one run of ours, a prediction interval from the paper's own spread"
    if any(line.paper and line.paper.std is None for line in table):
        note += "; where the paper prints no spread, ours stands for both, and a number that it took from "
        note += "others counts as one run"
    return note + "."


def to_csv(table: list[Line]) -> str:
    """Every number, for other programs."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    head = ["protocol", "dataset", "noise", "rate", "method", "paper_mean", "paper_std", "runs"]
    head += [f"{name}_{part}" for name in RULES for part in ("mean", "std")]
    write([*head, "difference", "margin_95", "agrees"])
    for line in table:
        theirs = line.paper
        values = [line.protocol, line.dataset, line.noise, line.rate, line.method]
        values += [None, None] if theirs is None else [theirs.mean, theirs.std]
        values += [line.main.n]
        for name in RULES:
            own = line.ours.get(name)
            values += [None, None] if own is None else [_rounded(own.mean), _rounded(own.std)]
        write([*values, _rounded(line.difference), _rounded(line.margin), line.agrees])
    return out.getvalue()


def _position(line: Line, methods: Iterable[str]) -> tuple[object, ...]:
    def place(name: str, names: Iterable[str]) -> int:
        known = list(names)
        return known.index(name) if name in known else len(known)

    return (
        line.protocol,
        place(line.dataset, CARDS),
        place(line.noise, NOISES),
        line.noise,
        line.rate,
        place(line.method, methods),
    )


def number(value: Summary | None, digits: int = 2, *, absent: str = "") -> str:
    """A mean with its deviation where there is one; `absent` where there is no number."""
    if value is None:
        return absent
    return f"{value.mean:.{digits}f}" + ("" if value.std is None else f" ± {value.std:.{digits}f}")


def unbroken(text: str) -> str:
    """The same, but no line ends within a number."""
    return text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
