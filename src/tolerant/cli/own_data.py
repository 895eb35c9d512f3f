"""What `tolerant train` and `tolerant audit` share: the training, and the summary they print."""

from __future__ import annotations

import inspect
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tolerant.cli.options import DATA

if TYPE_CHECKING:
    from tolerant.own_data.learn import Learned
    from tolerant.own_data.plan import Settings
    from tolerant.own_data.source import Source
    from tolerant.suspects import Suspects

RUN = Path("run")  # where `tolerant train` writes unless told
# Parameters of `train` and `audit` that the command suggested next does not repeat: it has its own.
_SAID_ANEW = ("context", "source", "out", "labels", "limit")


def train(source: Source, out: Path, settings: Settings, *, device: str, **options: Any) -> Learned:
    """`train_source` over all ranks of torchrun; only rank 0 returns, the others exit."""
    from tolerant import __version__
    from tolerant.own_data.train_source import train_source
    from tolerant.train.engine import ranks as distributed

    with distributed.join(device) as ranks, warnings.catch_warnings():
        if ranks.rank:
            warnings.simplefilter("ignore")  # rank 0 gives the same ones
        try:
            learned = train_source(source, out, settings, version=__version__, device=device, **options)
        except KeyboardInterrupt:
            if not ranks.rank:
                typer.echo(f"stopped; the same command resumes from {out / 'checkpoints'}", err=True)
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
        line += "; models that did not train on the others think that their labels are wrong"
    typer.echo(f"{line}.")


def chosen(command: Callable[..., None], options: Mapping[str, Any]) -> dict[str, Any]:
    """The training settings that differ from the defaults of ``command``."""
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

    ``out`` and ``settings``: folder and options to suggest for the next training; None: the defaults.
    """
    from tolerant.own_data.plan import LEAST_TO_PRUNE
    from tolerant.review.charts import percent

    rate = suspects.noise_rate
    typer.echo(
        f"\n{suspects.num_rows:,} rows, {len(suspects.class_names)} classes. About {percent(rate.estimate)} "
        f"of the labels are wrong (between {percent(rate.low)} and {percent(rate.high)}); "
        f"{len(suspects):,} rows look like another class"
        + (f"; {suspects.num_reviewed:,} reviewed ones are not listed." if suspects.num_reviewed else ".")
    )
    if suspects.num_rows < LEAST_TO_PRUNE:
        typer.echo(
            f"With fewer than {LEAST_TO_PRUNE} rows a model's doubts are no evidence yet; no row was pruned."
        )
    if suspects.weak:
        typer.echo(
            "That is most of the rows: the model is too weak to judge, and only the top of the list\n"
            "means anything. More rows help, or features of a pretrained model (how-to: embeddings)."
        )
    if len(suspects):
        _print_worst(suspects.head(10))
    typer.echo(
        f"Review them in a browser: {folder / 'report.html'}   (full list: {folder / 'suspects.csv'})\n"
        f"Then train with your corrections: {_train_command(source, labels, out, settings or {})}"
    )


def _print_worst(suspects: Suspects) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Plain

    table = Table(title="The most doubtful labels")
    for column in ("id", "given", "suggested"):
        table.add_column(column, overflow="fold")
    table.add_column("p(given)", justify="right")
    for row, p_y in enumerate(suspects.p_y):
        given, suggested = suspects.given_labels[row], suspects.suggested_labels[row]
        # As plain text: a label such as [red] is not markup.
        cells = (str(suspects.ids[row]), suspects.class_names[given], suspects.class_names[suggested])
        table.add_row(*map(Plain, cells), "< 0.001" if p_y < 0.0005 else f"{p_y:.3f}")
    Console().print(table)


def _train_command(
    source: Source, labels: Sequence[Path | str], out: Path | None, settings: Mapping[str, Any]
) -> str:
    words = ["tolerant", "train", source.name]
    for name, value in source.options.items():
        for word in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", *([] if word is True else [str(word)])]
    for path in [*labels, "corrections.csv" if not labels else f"corrections-{len(labels) + 1}.csv"]:
        words += ["--labels", str(path)]
    if out not in (None, RUN):
        words += ["--out", str(out)]
    for name, value in settings.items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)
