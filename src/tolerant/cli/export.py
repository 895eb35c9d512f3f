"""`tolerant export`: a run's suspects for an annotation tool, or its model as one file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tolerant.cli import options as opt
from tolerant.review.page import MOST_SHOWN


class Target(StrEnum):
    """What `--to` takes."""

    LABEL_STUDIO = "label-studio"
    FIFTYONE = "fiftyone"
    ARGILLA = "argilla"
    DATASETS = "datasets"
    TORCH = "torch"
    ONNX = "onnx"


def export(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder written by `tolerant train`.")],
    to: Annotated[Target, typer.Option(help="The tool that shows the suspects, or the model's format.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: the target's name, in the run folder.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of suspects.")] = MOST_SHOWN,
) -> None:
    """Write the suspects as an annotation tool takes them, or the model as one file.

    Suspects come with the suggested labels and a score; what the tool exports again goes to `tolerant train
    ... --labels FILE`. torch and onnx are the model (a network, or the discriminant on features) with its
    preprocessing inside, and a model card.
    """
    from tolerant.own_data.exported import is_part, write_model
    from tolerant.own_data.run_folder import load_run
    from tolerant.review.tools import WRITERS, SuspectRows

    saved = load_run(run)
    folder = out or run / to.value
    if folder.exists() and not (folder.is_dir() and all(map(is_part, folder.iterdir()))):
        raise typer.BadParameter(f"{folder} is there already; name a new folder", param_hint="--out")
    if to in (Target.TORCH, Target.ONNX):
        opt.refuse(context, ("limit",), "is for suspects; a model is whole")
        folder.mkdir(parents=True, exist_ok=True)
        path, off = write_model(saved, to.value, folder)
        size = path.stat().st_size / 2**20
        typer.echo(
            f"{path}: {size:.1f} MiB, probabilities within {off:.1g} of the run's; README.md says what it is."
        )
        return
    dataset = saved.load_rows()
    suspects = saved.suspects(dataset).head(limit)
    if not len(suspects):
        raise ValueError(f"{run} has no suspects: its model would give every row the label it has.")
    folder.mkdir(parents=True, exist_ok=True)
    say = WRITERS[to.value](folder, SuspectRows(suspects, dataset))
    typer.echo(f"{folder}: {len(suspects):,} suspects for {to.value}. {say}")
