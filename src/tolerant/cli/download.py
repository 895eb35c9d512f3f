"""`tolerant download NAME ...`: published data sets into the data folder."""

from __future__ import annotations

from typing import Annotated

import typer

from tolerant.cli import options as opt


def download(
    names: Annotated[
        list[str],
        typer.Argument(help="One or more of cifar10, cifar100, fashion-mnist, cifar10n, cifar100n; or all."),
    ],
    root: opt.Root = None,
) -> None:
    """Download published data sets from their publishers and check them; files already there are kept."""
    from tolerant.data import PUBLISHED
    from tolerant.data import download as get

    for name in PUBLISHED if names == ["all"] else names:
        folder = get(name, root)
        published = PUBLISHED[name]
        typer.echo(f"{published.title} is in {folder} (licence: {published.licence})")
