"""Options that several commands take, and the refusal of those that a command would ignore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tolerant.audit.source import Source

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A data set (digits, cifar10 ...), a folder of pictures, a CSV, JSONL, Parquet or NPZ file."
    ),
]
Split = Annotated[str | None, typer.Option(help="Split of a named data set, or sub-folder of a folder.")]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the published data sets; default: TOLERANT_DATA, or the platform's cache."),
]
Label = Annotated[str | None, typer.Option(help="Column of labels of a table; default: label.")]
Id = Annotated[str | None, typer.Option(help="Column that names the rows of a table.")]
Group = Annotated[
    str | None, typer.Option(help="Column of a table that says which rows belong together, in one fold.")
]
File = Annotated[
    str | None,
    typer.Option(help="Column of picture files; makes the table a list of pictures. Default: file."),
]
Text = Annotated[str | None, typer.Option(help="Column of text; makes the table a set of texts.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Column to leave out; repeat for more.")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="Column of codes that look like numbers; repeat for more.")
]
MinPerClass = Annotated[int | None, typer.Option(help="Fewest rows a class may have; default: 2.")]
SkipUnlabelled = Annotated[
    bool, typer.Option("--skip-unlabelled", help="Leave rows of a table without a label out.")
]
Labels = Annotated[
    list[Path] | None,
    typer.Option(help="Corrections exported from the review page, .csv or .json; repeat, oldest first."),
]
Size = Annotated[int | None, typer.Option(help="Resize pictures to a square of this many pixels.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the split, the weights and the order of rows.")]


def _folds(number: int) -> int:
    if number == 1:
        raise typer.BadParameter(
            "must be 0 or at least 2: a single fold leaves no other rows for the model that scores it"
        )
    return number


Folds = Annotated[
    int,
    typer.Option(
        min=0,
        callback=_folds,
        help="Extra models, so that none scores rows it trained on; 0: the final model scores all.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


# The options that say how data is read. Typer takes a command's options from its signature, so each command
# spells them out.
DATA = ("split", "root", "label", "id", "group", "file", "text", "ignore", "categorical", "size",
        "min_per_class", "skip_unlabelled")  # fmt: skip


def make_source(name: str, options: Mapping[str, Any], beside: str | None = None) -> Source:
    """The source, with the options in `DATA` that the command was given.

    ``beside``: another source that the command reads, to which ``--root`` may apply.
    """
    from tolerant.audit.source import Source
    from tolerant.data.sources import NAMED

    published = NAMED.keys() - {"digits"}  # scikit-learn has them
    if options.get("root") is not None and published.isdisjoint((name, beside)):
        raise typer.BadParameter(
            f"is where the published data sets lie (cifar10 ...), and {name} is none of them; leave it out",
            param_hint="--root",
        )
    found = {key: options[key] for key in DATA if key in options}
    given = {key: value for key, value in found.items() if value not in (None, []) and value is not False}
    return Source(name, given)


def refuse(context: typer.Context, names: Iterable[str], why: str) -> None:
    """A usage error for the first of these options that was given, even with its default value."""
    spelt = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        origin, hint = context.get_parameter_source(name), spelt[name]
        if origin is not None and origin.name == "COMMANDLINE":
            raise typer.BadParameter(why, param_hint=hint if hint.startswith("-") else hint.upper())
