"""What commands share: the options for data, and the training and summary of `train` and `audit`."""

from __future__ import annotations

import inspect
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tolerant.audit import Suspects
    from tolerant.audit.learn import Learned
    from tolerant.audit.plan import Settings
    from tolerant.audit.source import Source

RUN = Path("run")  # where `tolerant train` writes unless told
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


# Typer reads a command's options from its signature, so each command spells them out; their names as data:
DATA = ("split", "root", "label", "id", "group", "file", "text", "ignore", "categorical", "size",
        "min_per_class", "skip_unlabelled")  # fmt: skip
# Of `train` and `audit`, what their next command says anew (or, of `limit`, cannot say).
_SAID_ANEW = ("context", "source", "out", "labels", "limit")


def make_source(name: str, options: Mapping[str, Any], beside: str | None = None) -> Source:
    """The source with those of a command's ``options`` that are for data and were given.

    ``beside``: another source that the command reads, for which ``--root`` may be meant.
    """
    from tolerant.audit.source import Source
    from tolerant.data.sources import NAMED

    published = NAMED.keys() - {"digits"}  # which scikit-learn brings
    if options.get("root") is not None and published.isdisjoint((name, beside)):
        raise typer.BadParameter(
            f"is where the published data sets lie (cifar10 ...), and {name} is none of them; leave it out",
            param_hint="--root",
        )
    found = {key: options[key] for key in DATA if key in options}
    given = {key: value for key, value in found.items() if value not in (None, []) and value is not False}
    return Source(name, given)


def train(source: Source, out: Path, settings: Settings, *, device: str, **options: Any) -> Learned:
    """`train_source`, shared by the ranks of torchrun; those that have nothing to say leave here."""
    from tolerant import __version__
    from tolerant.audit.own_data import train_source
    from tolerant.train import distributed

    with distributed.join(device) as ranks, warnings.catch_warnings():
        if ranks.rank:
            warnings.simplefilter("ignore")  # rank 0 gives the same ones
        try:
            learned = train_source(source, out, settings, version=__version__, device=device, **options)
        except KeyboardInterrupt:
            if not ranks.rank:
                typer.echo(f"stopped; the same command goes on from {out / 'checkpoints'}", err=True)
            raise typer.Exit(130) from None
    if ranks.rank:
        raise typer.Exit
    return learned


def print_training(learned: Learned) -> None:
    """What was trained, on how many of the rows."""
    job, num_rows = learned.job, len(learned.p_y)
    used = len(job.dataset)
    line = f"\nTrained {job.model} for {job.recipe.epochs} epochs on {used:,} of {num_rows:,} rows"
    if used < num_rows:
        line += "; of the others, models that did not see them think the label wrong"
    typer.echo(f"{line}.")


def chosen(command: Callable[..., None], options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training that are not as the ``command`` has them by itself."""
    settings = {
        name: parameter.default
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in (*DATA, *_SAID_ANEW)
    }
    return {name: options[name] for name, default in settings.items() if options[name] != default}


def print_summary(
    suspects: Suspects,
    folder: Path,
    source: Source,
    labels: Sequence[Path | str],
    *,
    out: Path | None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """How many labels are wrong, the ten worst, where to look, what to do next.

    ``out`` and ``settings`` are the folder and the options that the next training should be given; None: the
    defaults will do.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Plain

    from tolerant.audit.charts import percent
    from tolerant.audit.plan import LEAST_TO_PRUNE

    rate = suspects.noise_rate
    typer.echo(
        f"\n{suspects.num_rows:,} rows, {len(suspects.class_names)} classes. About {percent(rate.estimate)} "
        f"of the labels are wrong (between {percent(rate.low)} and {percent(rate.high)}); "
        f"{len(suspects):,} rows look like another class"
        + (f"; {suspects.num_reviewed:,} reviewed ones are not listed." if suspects.num_reviewed else ".")
    )
    if suspects.num_rows < LEAST_TO_PRUNE:
        typer.echo(
            f"With fewer than {LEAST_TO_PRUNE} rows a model's doubts are no evidence yet; none was pruned."
        )
    if suspects.weak:
        typer.echo(
            "That is most of them: the model is too weak to judge, and only the top of the list\n"
            "counts. More rows help, or features of a pretrained model (how-to: embeddings)."
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
            p_y = suspects.p_y[row]
            table.add_row(*map(Plain, cells), "< 0.001" if p_y < 0.0005 else f"{p_y:.3f}")
        Console().print(table)
    typer.echo(
        f"Review them in a browser: {folder / 'report.html'}   (all of them: {folder / 'suspects.csv'})\n"
        f"Then train on your corrections: {_train_command(source, labels, out, settings or {})}"
    )


def _train_command(
    source: Source, labels: Sequence[Path | str], out: Path | None, settings: Mapping[str, Any]
) -> str:
    words = ["tolerant", "train", source.name]
    for name, value in source.options.items():
        for word in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", *([] if word is True else [str(word)])]
    for path in [*labels, "corrections.csv" if not labels else f"corrections-{len(labels) + 1}.csv"]:
        words += ["--labels", str(path)]
    if out is not None:
        words += ["--out", str(out)]
    for name, value in settings.items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)
