"""`tolerant cache`: the features that are kept on this machine, and how to be rid of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer


def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove them; they are computed anew when needed.")
    ] = False,
    features: Annotated[
        str | None, typer.Option(help="Clear only those of this extractor, by the name that is listed.")
    ] = None,
) -> None:
    """Show the features of pretrained models that were computed before, where they are, and how large."""
    from tolerant.data import features as kept
    from tolerant.data.features.cache import cache_limit

    if features is not None and not clear:
        raise typer.BadParameter("names what to clear; add --clear", param_hint="--features")
    if clear:
        typer.echo(f"{kept.clear(features) / 2**20:,.1f} MiB freed in {kept.cache_root()}")
        return
    entries = kept.stored()
    total = sum(entry.num_bytes for entry in entries)
    typer.echo(
        f"{kept.cache_root()}: {total / 2**20:,.1f} MiB of at most {cache_limit() / 2**30:,.1f} GiB "
        "(TOLERANT_CACHE and TOLERANT_CACHE_GIB change place and limit)"
    )
    width = max((len(entry.identity.name) for entry in entries), default=0)
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        typer.echo(
            f"  {entry.identity.name:<{width}}  {entry.num_rows:>9,} rows  "
            f"{entry.num_bytes / 2**20:>9,.1f} MiB  last used {used}, weights {entry.identity.weights[:12]}"
        )
