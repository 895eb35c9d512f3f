"""`tolerant` itself, before the name of a command."""

from __future__ import annotations

from typing import Annotated

import typer

from tolerant import __version__


def _show(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tolerant {__version__}")
        raise typer.Exit


def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train classifiers on labels that are partly wrong, and find the wrong ones.

    Start with: tolerant train DATA. DATA is a folder of pictures, a CSV, JSONL, Parquet or NPZ file, or a
    data set such as digits.
    """
