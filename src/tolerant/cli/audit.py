"""`tolerant audit`: which labels are doubtful, of a data set or of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tolerant.cli import options as opt
from tolerant.cli.summary import print_sample, print_suspects
from tolerant.cli.training import chosen_settings, next_command, train_and_print
from tolerant.own_data import Settings
from tolerant.review.page import MOST_SHOWN, write_page
from tolerant.review.sample import draw_sample

if TYPE_CHECKING:
    from tolerant.own_data import SavedRun


@opt.with_data_options()
def audit(
    *,
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="A run folder, or data as for `tolerant train`.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: the run folder, or audit for data.")
    ] = None,
    labels: opt.Labels = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of suspects on the page.")] = MOST_SHOWN,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Of a run: draw so many rows at random instead, to label them by hand."),
    ] = None,
    features: opt.Features = "auto",
    folds: opt.Folds = opt.FOLDS,
    all_rows: opt.AllRows = False,
    data_options: dict[str, Any],
    seed: opt.Seed = Settings.seed,
    device: opt.Device = "auto",
) -> None:
    """List doubtful labels and write the page to review them.

    For a run folder it uses the stored predictions and takes seconds. For data it trains first, as
    `tolerant train` does.

    With --sample 100 it writes sample.html, a page of 100 rows of the run drawn at random. By what you decide
    there it says how many labels of all are wrong, without bias and with an interval, also where predictions
    cannot tell: labels made by rules.

    Over several processes: torchrun --nproc-per-node N -m tolerant audit ...
    """
    options = dict(locals())  # the arguments, before there are other variables
    from tolerant.own_data.run_folder import holds_run, load_run

    if not holds_run(source):
        opt.refuse(context, ("sample",), "is for a run: train first, then name the run folder")
        rows, folder, corrections = opt.make_source(source, data_options), out or Path("audit"), labels or ()
        again = next_command(rows, corrections, out=out, settings=chosen_settings(audit, options))
        how = {"device": device, "corrections": corrections, "folds": folds, "features": features}
        train_and_print(rows, folder, Settings(seed=seed), all_rows=all_rows, again=again, limit=limit, **how)
        return
    opt.refuse(context, ("labels",), "is for data; train the run again with it")
    opt.refuse(context, opt.DATA, "is for data; a run knows how its data was read")
    why = "is for data, which is trained on; a run has its predictions. For new ones: tolerant train"
    opt.refuse(context, ("features", "folds", "seed", "device"), why)
    run = load_run(source)
    out = out or run.folder
    if (out / "spec.json").exists() and not out.samefile(run.folder):
        raise typer.BadParameter(
            f"{out} holds another run, whose list would be lost; name a new folder", param_hint="--out"
        )
    if sample is None:
        _list_suspects(run, out, limit, all_rows)
        return
    opt.refuse(context, ("limit", "all_rows"), "is for the suspects; --sample draws rows instead of them")
    _draw_sample(run, out, sample)


def _list_suspects(run: SavedRun, out: Path, limit: int, all_rows: bool) -> None:
    """Write the list and the page of a run."""
    from tolerant.own_data.all_rows import write_all_rows
    from tolerant.own_data.run_folder import remove_finished_checkpoints, using, write_list_and_page

    dataset = run.load_rows()
    suspects, history = run.suspects(dataset), run.history()
    reasons = run.reasons(dataset, suspects)
    with using(out, [run.source.name, *run.corrections]):
        write_list_and_page(out, suspects, dataset, history, reasons, title=run.title, limit=limit)
        if all_rows:
            write_all_rows(out / "rows.csv", run, dataset, suspects)
        remove_finished_checkpoints(out)
    print_suspects(suspects, out, next_command(run.source, run.corrections, out=out))


def _draw_sample(run: SavedRun, out: Path, count: int) -> None:
    """Write the page of rows drawn at random."""
    from tolerant.own_data.run_folder import using

    dataset = run.load_rows()
    reviewed, seed = run.audit["reviewed"], run.spec.get("seed", 0)
    drawn = draw_sample(run.suspects(dataset), dataset, reviewed, count, seed=seed)
    with using(out, [run.source.name, *run.corrections]):
        write_page(out / "sample.html", drawn, dataset, title=run.title, limit=len(drawn), sample=True)
    print_sample(drawn, out)
