"""`tolerant download NAME ...`: published data sets into the data folder."""

from __future__ import annotations

from typing import Annotated

import typer

from tolerant.cli import options as opt
from tolerant.data.published_sets import downloads


def download(
    names: Annotated[
        list[str],
        typer.Argument(help=f"One or more of {', '.join(downloads())}; or all."),
    ],
    root: opt.Root = None,
) -> None:
    """Download published data sets from their publishers and check them; files already there are kept."""
    from tolerant.data.published import fetch

    for name in downloads() if names == ["all"] else names:
        folder = fetch.download(name, root)
        got = downloads()[name]
        typer.echo(f"{got.title} is in {folder} (licence: {got.licence})")
