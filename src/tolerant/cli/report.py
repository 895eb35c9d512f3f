"""`tolerant report`: tables and figures from stored rows, the paper's numbers beside ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tolerant.cli.options import refuse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tolerant.experiment.store import Row, Store
    from tolerant.report.table import Line


class Report(StrEnum):
    """What can be reported."""

    table1 = "table1"
    table2 = "table2"
    figure1 = "figure1"
    figure2 = "figure2"
    pruning = "pruning"
    cifar_n = "cifar-n"
    digits = "digits"


# Pictures of how training went; the others are tables, with a picture of how far ours are from the paper's.
_CURVES = ("figure1", "figure2", "pruning")
_ALT = {
    "figure1": "Test accuracy of CCE and MAE on clean labels, and p_y of right and wrong labels, by epoch.",
    "figure2": "Test accuracy and validation loss by epoch, for six q at three noise rates.",
    "pruning": "Precision and recall of pruning, and the rows left, by epoch, for each data set and noise.",
    "table1": "Our accuracy minus the paper's, with intervals, for each cell of table 1.",
    "table2": "Our accuracy minus the paper's, with intervals, for each cell of table 2.",
    "cifar-n": "Our accuracy minus the published one, with intervals, for each kind of label.",
}


def report(
    context: typer.Context,
    name: Annotated[
        Report | None, typer.Argument(metavar="NAME", help=f"One of {', '.join(Report)}.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder with the stored rows.")] = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder to write .md, .csv and .png files to.")] = None,
    changed: Annotated[
        str, typer.Option(help='Show rows of a changed protocol, such as "epochs=2", or "all".')
    ] = "",
    docs: Annotated[
        Path | None, typer.Option(help="Rewrite the marked blocks of this Markdown file.")
    ] = None,
) -> None:
    """Print a table or draw a figure from stored rows; nothing is trained."""
    if docs is not None:
        why = "--docs writes every block that the file marks, as its mark says; leave one of the two out"
        refuse(context, ("name", "out", "changed"), why)
    from tolerant.experiment.store import Store

    store = Store(results)
    if not results.is_dir():
        raise typer.BadParameter(f"there is no folder {results}", param_hint="--results")
    for where in store.torn():
        typer.echo(f"{results}/{where} does not hold a complete row and was skipped", err=True)
    if docs is not None:
        _fill(docs, store)
        typer.echo(f"{docs} is up to date with {results}")
    elif name is None:
        raise typer.BadParameter(f"name one of {', '.join(Report)}, or pass --docs")
    elif name in _CURVES:
        _report_figure(store, name.value, changed, out or Path())
    else:
        _report_table(store, name.value, changed, out)


def _report_figure(store: Store, name: str, changed: str, out: Path) -> None:
    from tolerant.report.rows import NO_ROWS

    rows = _figure_rows(store, name, changed)
    if mixed := _mixed(rows):
        raise typer.BadParameter(mixed, param_hint="--changed")
    if not rows:
        typer.echo(NO_ROWS)
        _mention_others(_figure_rows(store, name, "all"), changed)
        return
    typer.echo(_save(_figure(store, name, rows), out, name))


def _mixed(rows: list[Row]) -> str:
    """Why the rows cannot share one picture: they belong to several protocols. Empty if they can."""
    changes = _changes(rows)
    return f"a picture can show only one of {', '.join(map(repr, changes))}" if len(changes) > 1 else ""


def _changes(rows: list[Row]) -> list[str]:
    from tolerant.experiment.protocol import changes_of

    return sorted({changes_of(row["spec"]["protocol"]) for row in rows})


def _mention_others(rows: list[Row], changed: str) -> None:
    from tolerant.experiment.protocol import changes_of

    others = [row for row in rows if changes_of(row["spec"]["protocol"])]
    if others and changed != "all":
        typer.echo(f"Rows of a changed protocol: {len(others)}; --changed all shows them.")
        typer.echo("\n".join(f"  --changed {change}" for change in _changes(others)))


def _report_table(store: Store, name: str, changed: str, out: Path | None) -> None:
    from tolerant.files import write_atomic
    from tolerant.report.rows import select
    from tolerant.report.table import lines, to_csv

    rows = select(store, name, changed=changed)
    table = lines(rows, name)
    text = _text(rows, table)
    typer.echo(_aligned(text))
    if not rows:
        _mention_others(select(store, name, changed="all"), changed)
    if out is not None:
        write_atomic(out / f"{name}.md", text + "\n")
        write_atomic(out / f"{name}.csv", to_csv(table))
        if mixed := _mixed(rows):
            typer.echo(f"no picture: {mixed}; choose one with --changed")
        elif any(line.paper for line in table):
            typer.echo(_save(_differences(table, name), out, name))


def _aligned(text: str) -> str:
    """The same Markdown with its columns aligned, to be read in a terminal."""
    from rich.cells import cell_len

    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    right = [cell.endswith("-:") for cell in rows[1]] if rows else []

    def padded(line: str) -> str:
        if not line.startswith("| "):
            return line
        cells = []
        for cell, width, number in zip(line[2:-2].split(" | "), widths, right, strict=True):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if number else cell + space)
        return f"| {' | '.join(cells)} |"

    return "\n".join(map(padded, text.splitlines()))


def _text(rows: list[Row], table: list[Line]) -> str:
    from tolerant.report.document import cost
    from tolerant.report.rows import mixed_versions
    from tolerant.report.table import legend, markdown

    if not table:
        return markdown(table)
    mixed = mixed_versions(rows)
    return f"{markdown(table)}\n\n{legend(table)} {cost(rows)}{f'; {mixed}' if mixed else ''}."


def _figure_rows(store: Store, name: str, changed: str) -> list[Row]:
    from tolerant.report.rows import select

    parts = ("table1", "table2", "cifar-n") if name == "pruning" else (name,)
    return [row for part in parts for row in select(store, part, changed=changed)]


def _figure(store: Store, name: str, rows: list[Row]) -> Figure:
    from tolerant.report import figure

    draw = {"pruning": figure.pruning, "figure1": figure.figure1, "figure2": figure.figure2}[name]
    return draw(store, rows)


def _differences(table: list[Line], name: str) -> Figure:
    from tolerant.report import figure

    where = name.replace("table", "Table ")
    title = f"{where}: ours minus the paper, 95 % intervals\n(wide ones leave their panel)"
    return figure.differences(table, title)


def _save(figure: Figure, folder: Path, name: str) -> Path:
    import io

    from tolerant.files import write_atomic

    buffer = io.BytesIO()
    # Without the version in its metadata a figure of the same rows is the same file.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    path = folder / f"{name}.png"
    write_atomic(path, buffer.getvalue())
    return path


def _choices() -> str:
    from tolerant.experiment.gce2018 import CHOICES

    return "\n".join(
        ["| choice | reason |", "|---|---|", *(f"| {name} | {CHOICES[name]} |" for name in CHOICES)]
    )


def _fill(docs: Path, store: Store) -> None:
    from tolerant.files import write_atomic
    from tolerant.report import brief, speed
    from tolerant.report.document import fill
    from tolerant.report.rows import NO_ROWS, select
    from tolerant.report.table import lines

    def block(name: str, changed: str) -> str:
        if name == "choices":
            return _choices()
        if name == "table1-brief":
            return brief.table1(select(store, "table1"), select(store, "cifar-n"))
        if name in (benches := brief.BENCHES | speed.BENCHES):
            return benches[name](Path(store.folder))
        if name in _CURVES:
            rows = _figure_rows(store, name, changed)
            drawn = _figure(store, name, rows) if rows else None
        elif name.endswith("-differences"):
            name = name.removesuffix("-differences")
            table = lines(select(store, name, changed=changed), name)
            drawn = _differences(table, name) if table else None
        else:
            rows = select(store, name, changed=changed)
            return _text(rows, lines(rows, name))
        if drawn is None:
            return NO_ROWS
        path = _save(drawn, docs.parent / "figures", name)
        return f"![{_ALT[name]}](figures/{path.name})"

    write_atomic(docs, fill(docs.read_text("utf-8"), block))
