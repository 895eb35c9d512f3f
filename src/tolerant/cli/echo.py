"""What commands print, where it may hold text from data."""

from __future__ import annotations

import typer

from tolerant.printable import printable


def echo(text: str, *, err: bool = False) -> None:
    """A line on the terminal, in which a label cannot set the colour or the window's title."""
    typer.echo(printable(text), err=err)
