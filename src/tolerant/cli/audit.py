"""`tolerant audit`: which labels are doubtful, of a data set or of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tolerant.cli import options as opt
from tolerant.cli import own_data as own


def audit(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="A run folder, or data as for `tolerant train`.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: the run folder, or audit for data.")
    ] = None,
    labels: opt.Labels = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of suspects on the page.")] = 5_000,
    folds: opt.Folds = 5,
    split: opt.Split = None,
    root: opt.Root = None,
    label: opt.Label = None,
    id: opt.Id = None,
    group: opt.Group = None,
    file: opt.File = None,
    text: opt.Text = None,
    ignore: opt.Ignore = None,
    categorical: opt.Categorical = None,
    size: opt.Size = None,
    min_per_class: opt.MinPerClass = None,
    skip_unlabelled: opt.SkipUnlabelled = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
) -> None:
    """List doubtful labels and write the page to review them.

    For a run folder it uses the stored predictions and takes seconds. For data it trains first, as
    `tolerant train` does.

    Over several processes: torchrun --nproc-per-node N -m tolerant audit ...
    """
    options = dict(locals())  # the arguments, before there are other variables
    from tolerant.own_data.plan import Settings
    from tolerant.own_data.run_folder import load_history, load_run, load_suspects, unfinished, write_review

    if not (Path(source) / "spec.json").is_file() and not unfinished(source):
        rows = opt.make_source(source, options)
        folder = out or Path("audit")
        learned = own.train(
            rows, folder, Settings(seed=seed), device=device, labels=labels or (), folds=folds, limit=limit
        )
        own.print_training(learned)
        again = own.chosen(audit, options)
        own.print_summary(learned.suspects, folder, rows, labels or (), out=out, settings=again)
        return
    opt.refuse(context, ("labels",), "is for data; train the run again with it")
    opt.refuse(context, opt.DATA, "is for data; a run knows how its data was read")
    why = "is for data, which is trained on; a run has its predictions. For new ones: tolerant train"
    opt.refuse(context, ("folds", "seed", "device"), why)
    run = load_run(source)
    out = out or run.folder
    if (out / "spec.json").exists() and not out.samefile(run.folder):
        raise typer.BadParameter(
            f"{out} holds another run, whose list would be lost; name a new folder", param_hint="--out"
        )
    dataset = run.load_rows()
    suspects, history = load_suspects(run, dataset), load_history(run)
    suspects.to_csv(out / "suspects.csv")
    write_review(out, suspects, dataset, history, title=Path(run.source.name).name, limit=limit)
    own.print_summary(suspects, out, run.source, run.spec["labels"], out=out)
