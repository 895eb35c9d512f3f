"""What `tolerant train` and `tolerant audit` print: what was trained, how many labels are wrong."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tolerant.cli.terminal import echo
from tolerant.printable import printable

if TYPE_CHECKING:
    from tolerant.own_data.learned import Learned
    from tolerant.suspects import RateInterval, Suspects


def print_training(learned: Learned) -> None:
    """What was trained, on how many of the rows."""
    num_rows, used = len(learned.p_y), learned.num_trained
    if learned.tried:
        _print_tried(learned)
    epochs = f" for {learned.job.recipe.epochs} epochs" if learned.job is not None else ""
    line = f"\nTrained {learned.name}{epochs} on {used:,} of {num_rows:,} rows"
    if learned.suspects.num_kept < used:
        line += f", of which it kept {learned.suspects.num_kept:,} to the end"
    if used < num_rows:
        line += "; models that did not train on the others think that their labels are wrong"
    echo(f"{line}.")


def _print_tried(learned: Learned) -> None:
    """The models among which the choice was made, the chosen one marked."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Models on rows they have not seen")
    table.add_column("model")
    for column in ("agreement with the given labels", "seconds"):
        table.add_column(column, justify="right")
    for tried in learned.tried:
        name = f"{tried.name} (chosen)" if tried.name == learned.name else tried.name
        table.add_row(name, f"{tried.score:.1%}", f"{tried.time_s:.1f}" if tried.time_s else "")
    Console().print(table)
    echo(
        "Agreement: the mean of accuracy and balanced accuracy, against labels of which some are wrong.\n"
        "All models together are taken, unless fewer of them agree clearly better."
    )


def print_all_rows(folder: Path) -> None:
    """Write all rows of the run in ``folder`` beside its suspects, and say where."""
    from tolerant.own_data.all_rows import write_all_rows
    from tolerant.own_data.run_folder import load_run, using

    with using(folder):
        run = load_run(folder)
        with warnings.catch_warnings(action="ignore"):  # the training, or the audit, has given them
            dataset = run.load_rows()
        write_all_rows(folder / "rows.csv", run, dataset, run.suspects(dataset))
    echo(f"All rows: {folder / 'rows.csv'}")


def print_suspects(suspects: Suspects, folder: Path, next_command: str) -> None:
    """How many labels are wrong, the ten worst, where to look, what to do next."""
    from tolerant.own_data.plan import LEAST_TO_PRUNE

    rate, run = suspects.noise_rate, shlex.quote(str(folder))
    echo(
        f"\n{suspects.num_rows:,} rows, {len(suspects.class_names)} classes. {_rate_sentence(rate)}; "
        + ("1 row looks" if len(suspects) == 1 else f"{len(suspects):,} rows look")
        + " like another class"
        + (f"; {suspects.num_reviewed:,} reviewed ones are not listed." if suspects.num_reviewed else ".")
    )
    if rate.at_least:
        echo(
            "A few words tell nearly every label, as if rules had made them: mistakes of rules do not show,\n"
            f"there may be many more. To know the share: tolerant audit {run} --sample 100"
        )
    elif rate.vague:
        echo(
            "The predictions cannot tell the share more exactly. "
            f"To know it: tolerant audit {run} --sample 100"
        )
    if suspects.num_rows < LEAST_TO_PRUNE:
        echo(
            f"With fewer than {LEAST_TO_PRUNE} rows a model's doubts are no evidence yet; no row was pruned."
        )
    if suspects.weak:
        echo(
            "That is most of the rows: the model is too weak to judge, and only the top of the list means\n"
            "anything. More rows help; with pictures and texts a stronger pretrained model, too (--features)."
        )
    if len(suspects):
        _print_worst(suspects.head(10))
    echo(
        f"Review them in a browser: {folder / 'report.html'}   (full list: {folder / 'suspects.csv'})\n"
        f"Then train with your corrections: {next_command}"
    )


def _rate_sentence(rate: RateInterval) -> str:
    from tolerant.review.charts import percent

    low, high = percent(rate.low), percent(rate.high)
    if rate.at_least and percent(rate.estimate) == percent(0.0):
        return "How many of the labels are wrong does not show"
    if rate.at_least:
        return f"At least {percent(rate.estimate)} of the labels are wrong"
    if rate.vague:
        return f"Between {low} and {high} of the labels are wrong"
    return f"About {percent(rate.estimate)} of the labels are wrong (between {low} and {high})"


def print_sample(drawn: Suspects, folder: Path) -> None:
    """Where the rows drawn at random are, and what to do with them."""
    echo(
        f"\n{len(drawn):,} of {drawn.num_rows:,} rows drawn at random: {folder / 'sample.html'}\n"
        "Say of each whether its label is right. The page then says how many labels of all are wrong, with\n"
        "an interval, whatever the model thinks; what you export serves `tolerant train --labels`, too."
    )


def _print_worst(suspects: Suspects) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Plain

    table = Table(title="The most doubtful labels")
    for column in ("id", "given", "suggested"):
        table.add_column(column, overflow="fold")
    table.add_column("p(given)", justify="right")
    for rank, p_y in enumerate(suspects.p_y):
        given, suggested = suspects.given_labels[rank], suspects.suggested_labels[rank]
        # As plain text: a label such as [red] is not markup, nor is one with ESC in it a colour.
        words = (str(suspects.ids[rank]), suspects.class_names[given], suspects.class_names[suggested])
        cells = (Plain(printable(word, one_line=True)) for word in words)
        table.add_row(*cells, "< 0.001" if p_y < 0.0005 else f"{p_y:.3f}")
    Console().print(table)
