"""`tolerant train`: a model and a list of doubtful labels from data of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tolerant.cli import own_data as own


def train(
    source: own.SourceArgument,
    out: Annotated[Path, typer.Option(help="The run folder to write.")] = Path("run"),
    labels: Annotated[
        Path | None, typer.Option(help="Corrections exported from the review page, .csv or .json.")
    ] = None,
    loss: Annotated[
        str, typer.Option(help="truncated-lq (L_q and pruning), lq, cce, mae ...")
    ] = "truncated-lq",
    q: Annotated[float, typer.Option(help="Of L_q: 0 is cross entropy, 1 mean absolute error.")] = 0.7,
    k: Annotated[str, typer.Option(help="Prune rows with p_y of at most k; a number or auto.")] = "0.5",
    model: Annotated[str, typer.Option(help="auto, mlp, small-cnn, cnn8, resnet18, resnet34.")] = "auto",
    epochs: Annotated[int | None, typer.Option(help="Default: by the number of rows.")] = None,
    folds: own.Folds = 5,
    split: own.Split = None,
    root: own.Root = None,
    label: own.Label = None,
    id: own.Id = None,
    text: own.Text = None,
    ignore: own.Ignore = None,
    size: own.Size = None,
    seed: own.Seed = 0,
    device: own.Device = "auto",
) -> None:
    """Train on labels that may be wrong; write the model, the suspects and a page to review them.

    Cost: the final training, and one for each fold so that no row is scored by a model that learnt it.
    """
    from tolerant import __version__
    from tolerant.audit.own_data import train_source
    from tolerant.audit.plan import Settings

    rows = own.make_source(
        source, split=split, root=root, label=label, id=id, text=text, ignore=ignore, size=size
    )
    settings = Settings(loss=loss, q=q, k=_read_k(k), model=model, epochs=epochs, seed=seed)
    _, learned = train_source(
        rows, out, settings, version=__version__, labels=labels, folds=folds, device=device
    )
    own.print_summary(learned.suspects, out)
    typer.echo(f"Label new rows: tolerant predict {out} DATA")


def _read_k(k: str) -> float | Literal["auto"]:
    try:
        return "auto" if k == "auto" else float(k)
    except ValueError:
        raise typer.BadParameter(f"must be a number or auto; got {k!r}", param_hint="--k") from None
