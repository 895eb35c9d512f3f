"""`tolerant predict`: labels for new rows from a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tolerant.cli import options as opt
from tolerant.cli.terminal import echo


@opt.with_data_options("split", "config", "root", "id", "file", "text")
def predict(
    *,
    run: Annotated[Path, typer.Argument(help="A run folder written by `tolerant train`.")],
    source: opt.SourceArgument,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("predictions.csv"),
    data_options: dict[str, Any],
    device: opt.Device = "auto",
) -> None:
    """Write the id, predicted label and confidence of every row; any labels in the data are ignored.

    Words of a table that training did not see, or that are not among the 64 most frequent in their column,
    belong to no category.
    """
    import numpy as np

    from tolerant.csv_cells import write_csv
    from tolerant.files import check_not_read
    from tolerant.own_data.run_folder import load_run
    from tolerant.own_data.run_folder.layout import FILES
    from tolerant.own_data.warn_of_classes import warn_of_missing_classes
    from tolerant.train.engine.device import pick_device

    check_not_read(out, [source, *(run / name for name in FILES)])
    saved = load_run(run)
    rows = opt.make_source(source, data_options).read(saved.encoder, saved.source, str(pick_device(device)))
    probs = saved.probs(rows, device=device)
    best = probs.argmax(axis=1)
    names = saved.encoder.class_names
    lines = [
        [str(row_id), names[label], f"{p[label]:.4g}"]
        for row_id, label, p in zip(rows.ids.tolist(), best, probs, strict=True)
    ]
    write_csv(out, ("id", "label", "confidence"), lines)
    counts = np.bincount(best, minlength=len(names))
    warn_of_missing_classes(names, saved.label_counts(), counts)
    most = np.argsort(-counts, kind="stable")[:5]
    shares = ", ".join(f"{names[label]} {counts[label]:,}" for label in most if counts[label])
    more = ", ..." if (counts > 0).sum() > len(most) else ""
    echo(f"{out}: {len(rows):,} rows labelled ({shares}{more})")
