"""`tolerant report`: tables and figures from stored rows, the paper's numbers beside ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tolerant.cli.options import refuse
from tolerant.experiment.papers import experiments
from tolerant.report.figure import PICTURES

NAMES = tuple(dict.fromkeys([*experiments(), *PICTURES]))

if TYPE_CHECKING:
    from tolerant.experiment.store import Row, Store

    Name = str
else:
    Name = StrEnum("Name", [(name, name) for name in NAMES])


def report(
    context: typer.Context,
    name: Annotated[Name | None, typer.Argument(metavar="NAME", help=f"One of {', '.join(NAMES)}.")] = None,
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
        raise typer.BadParameter(
            f"there is no folder {results}. A report is made of stored rows: those of a checkout of the "
            "project (call it there, or name its folder results), or your own, which `tolerant reproduce` "
            "writes",
            param_hint="--results",
        )
    for where in store.torn():
        typer.echo(f"{results}/{where} does not hold a complete row and was skipped", err=True)
    if docs is not None:
        from tolerant.report.document import fill_page

        fill_page(docs, store)
        typer.echo(f"{docs} is up to date with {results}")
    elif name is None:
        raise typer.BadParameter(f"name one of {', '.join(NAMES)}, or pass --docs")
    elif name in PICTURES:
        _report_picture(store, str(name), changed, out or Path())
    else:
        _report_table(store, str(name), changed, out)


def _report_picture(store: Store, name: str, changed: str, out: Path) -> None:
    from tolerant.report.drawing import save_figure
    from tolerant.report.selection import NO_ROWS

    picture = PICTURES[name]
    rows = picture.rows(store, changed)
    if mixed := _mixed(rows):
        raise typer.BadParameter(mixed, param_hint="--changed")
    if not rows:
        typer.echo(NO_ROWS)
        _mention_others(picture.rows(store, "all"))
        return
    typer.echo(save_figure(picture.draw(store, rows), out, name))


def _report_table(store: Store, name: str, changed: str, out: Path | None) -> None:
    from tolerant.files import write_atomic
    from tolerant.markdown import aligned
    from tolerant.report.comparison import lines, to_csv
    from tolerant.report.document import text_of
    from tolerant.report.drawing import save_figure
    from tolerant.report.figure import differences
    from tolerant.report.selection import select

    rows = select(store, name, changed=changed)
    table = lines(rows, name)
    text = text_of(store, name, rows, table)
    typer.echo(aligned(text))
    if not rows:
        _mention_others(select(store, name, changed="all"))
    if out is not None:
        write_atomic(out / f"{name}.md", text + "\n")
        write_atomic(out / f"{name}.csv", to_csv(table))
        if mixed := _mixed(rows):
            typer.echo(f"no picture: {mixed}; choose one with --changed")
        elif any(line.paper for line in table):
            typer.echo(save_figure(differences(table, name), out, name))


def _mixed(rows: list[Row]) -> str:
    """Why the rows cannot share one picture: they belong to several protocols. Empty if they can."""
    changes = _changes(rows)
    return f"a picture can show only one of {', '.join(map(repr, changes))}" if len(changes) > 1 else ""


def _changes(rows: list[Row]) -> list[str]:
    from tolerant.experiment.names import protocol_changes

    return sorted({protocol_changes(row["spec"]["protocol"]) for row in rows})


def _mention_others(rows: list[Row]) -> None:
    """Where nothing can be shown: how many of all ``rows`` are of a changed protocol."""
    from tolerant.experiment.names import protocol_changes

    others = [row for row in rows if protocol_changes(row["spec"]["protocol"])]
    if others:
        typer.echo(f"Rows of a changed protocol: {len(others)}; --changed all shows them.")
        typer.echo("\n".join(f"  --changed {change}" for change in _changes(others)))
