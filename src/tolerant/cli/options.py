"""Options that several commands take, and the refusal of those that a command would ignore."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tolerant.data import Source

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A data set (digits, cifar10 ...), a folder of pictures, a CSV, JSONL, Parquet or NPZ file, or "
        "hf:OWNER/NAME of the Hugging Face hub."
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the published data sets; default: TOLERANT_DATA, else the platform's cache."
    ),
]
Labels = Annotated[
    list[Path] | None,
    typer.Option(
        help="Corrections exported from the review page, .csv or .json; repeat for more, oldest first."
    ),
]
Features = Annotated[
    str,
    typer.Option(
        help="Extractor of pretrained features for pictures and texts: a name that `tolerant doctor` lists, "
        "none, or auto: for photographs a bundled one, where installed."
    ),
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune",
        help="Photographs: train the network that --features names further, from what its features tell of "
        "the labels. More are right then, for many times the seconds; a GPU helps.",
    ),
]


class Engine(StrEnum):
    """Where the work is done."""

    local = "local"
    ray = "ray"


Address = Annotated[
    str | None, typer.Option(help="Address of the Ray cluster; default: RAY_ADDRESS, else a local Ray.")
]
Seed = Annotated[
    int, typer.Option(min=0, help="Seed of the split, the initial weights and the order of rows.")
]


FOLDS = 5


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
        help="Number of folds, each scored by an extra model that did not train on it; 0: the final model "
        "scores all rows.",
    ),
]
ClassWeight = Annotated[
    str,
    typer.Option(
        help="Classes of unequal size: balanced (as if all were as frequent), none, or auto (as far towards "
        "the rare ones as the given labels ask for; networks: none)."
    ),
]
AllRows = Annotated[
    bool,
    typer.Option("--all-rows", help="Write rows.csv too: every row with its score, prediction and decision."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


# The options that say how data is read; one that is not given is None.
DATA: dict[str, Any] = {
    "split": Annotated[
        str | None, typer.Option(help="Split of a data set (default: train), or sub-folder of the folder.")
    ],
    "config": Annotated[str | None, typer.Option(help="Configuration of a hub's data set that has several.")],
    "root": Root,
    "label": Annotated[str | None, typer.Option(help="Label column of a table; default: label.")],
    "id": Annotated[str | None, typer.Option(help="Column that identifies the rows of a table.")],
    "group": Annotated[
        str | None, typer.Option(help="Column of a table; rows with the same value in it stay in one fold.")
    ],
    "file": Annotated[
        str | None,
        typer.Option(
            help="Column of pictures or their files; the table is then a list of them. Default: file."
        ),
    ],
    "text": Annotated[
        list[str] | None,
        typer.Option(help="Column of text; repeat for more. All other columns are read beside it."),
    ],
    "ignore": Annotated[list[str] | None, typer.Option(help="Column not to learn from; repeat for more.")],
    "categorical": Annotated[
        list[str] | None,
        typer.Option(help="Column of codes that look like numbers, to read as words; repeat for more."),
    ],
    "size": Annotated[int | None, typer.Option(help="Resize pictures to a square of this many pixels.")],
    "min_per_class": Annotated[
        int | None, typer.Option(help="Smallest number of rows a class may have; default: 2.")
    ],
    "skip_unlabelled": Annotated[
        bool | None, typer.Option("--skip-unlabelled", help="Leave out rows of a table that have no label.")
    ],
}


def with_data_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that takes these options of `DATA` (none: all of them) in place of its parameter
    ``data_options``, which gets them as a dict.

    Typer reads a command's options from its signature, so they are put there.
    """
    taken = {name: DATA[name] for name in names or DATA}
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in taken.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in taken}
            command(**arguments, data_options=given)

        parameters: list[Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            own = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            parameters += options if parameter.name == "data_options" else [own]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def make_source(name: str, options: Mapping[str, Any], beside: str | None = None) -> Source:
    """The source, with the options in `DATA` that the command was given.

    ``beside``: another source that the command reads, to which ``--root`` may apply.
    """
    from tolerant.data import CARDS, Source

    published = {card.name for card in CARDS.values() if card.downloads}
    if options.get("root") is not None and published.isdisjoint((name, beside)):
        raise typer.BadParameter(
            f"is the folder of the published data sets (cifar10 ...), and {name} is not one; leave it out",
            param_hint="--root",
        )
    found = {key: options[key] for key in DATA if key in options}
    given = {key: value for key, value in found.items() if value not in (None, [])}
    return Source(name, given)


def refuse(context: typer.Context, names: Iterable[str], why: str) -> None:
    """A usage error for the first of these options that was given, even with its default value."""
    spelt = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        origin, hint = context.get_parameter_source(name), spelt[name]
        if origin is not None and origin.name == "COMMANDLINE":
            raise typer.BadParameter(why, param_hint=hint if hint.startswith("-") else hint.upper())
