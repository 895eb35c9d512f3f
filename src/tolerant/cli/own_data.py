"""What the commands for people's own data share: options, and the summary at their end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tolerant.audit import Suspects
    from tolerant.audit.source import Source

SourceArgument = Annotated[
    str, typer.Argument(help="A data set (digits, cifar10 ...), a folder of pictures, a CSV, Parquet or NPZ.")
]
Split = Annotated[str | None, typer.Option(help="Split of a named data set, or sub-folder of a folder.")]
Root = Annotated[Path | None, typer.Option(help="Folder of the published data sets.")]
Label = Annotated[str | None, typer.Option(help="Column of labels of a table; default: label.")]
Id = Annotated[str | None, typer.Option(help="Column that names the rows of a table.")]
Text = Annotated[str | None, typer.Option(help="Column of text; makes the table a set of texts.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Column to leave out; repeat for more.")]
Size = Annotated[int | None, typer.Option(help="Resize pictures to a square of this many pixels.")]
Seed = Annotated[int, typer.Option(help="Of the split, the weights and the order of rows.")]
Folds = Annotated[
    int,
    typer.Option(help="Models that score the rows they did not train on; 0: the final model scores."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def make_source(name: str, **options: Any) -> Source:
    """The source with the options that were given."""
    from tolerant.audit.source import Source

    given = {key: value for key, value in options.items() if value is not None and value != []}
    return Source(name, given)


def print_summary(suspects: Suspects, folder: Path) -> None:
    """How many labels are wrong, the ten worst, where to look."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Plain

    from tolerant.audit.charts import percent

    rate = suspects.noise_rate
    typer.echo(
        f"\n{suspects.num_rows:,} rows, {len(suspects.class_names)} classes. About {percent(rate.estimate)} "
        f"of the labels are wrong (between {percent(rate.low)} and {percent(rate.high)}); "
        f"{len(suspects):,} rows look like another class."
    )
    if len(suspects):
        table = Table(title="The most doubtful labels")
        for column in ("id", "given", "suggested"):
            table.add_column(column, overflow="fold")
        table.add_column("p(given)", justify="right")
        for row in range(min(10, len(suspects))):
            given, suggested = suspects.given_labels[row], suspects.suggested_labels[row]
            # As plain text: a label such as [red] is no markup.
            cells = (str(suspects.ids[row]), suspects.class_names[given], suspects.class_names[suggested])
            table.add_row(*map(Plain, cells), f"{suspects.p_y[row]:.3f}")
        Console().print(table)
    typer.echo(
        f"Review them in a browser: {folder / 'report.html'}   (all of them: {folder / 'suspects.csv'})\n"
        f"Then train on your corrections: tolerant train ... --labels corrections.csv"
    )
