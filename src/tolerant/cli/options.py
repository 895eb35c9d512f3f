"""Options that a command would ignore are refused."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def refuse(context: typer.Context, names: Iterable[str], why: str) -> None:
    """A usage error for the first of these options that was given, be it with its default's value."""
    spelt = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        origin, hint = context.get_parameter_source(name), spelt[name]
        if origin is not None and origin.name == "COMMANDLINE":
            raise typer.BadParameter(why, param_hint=hint if hint.startswith("-") else hint.upper())
