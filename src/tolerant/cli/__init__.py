"""The `tolerant` command: one module a command, each thin."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `tolerant` command and of `python -m tolerant`."""
    try:
        import typer
    except ModuleNotFoundError as missing:
        sys.exit(f"The command line needs {missing.name}: pip install 'tolerant[app]'")

    from tolerant.cli import audit, demo, doctor, download, noise, predict, report, reproduce, train

    app = typer.Typer(name="tolerant", help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
    app.command()(audit.audit)
    app.command()(demo.demo)
    app.command()(doctor.doctor)
    app.command()(download.download)
    app.command()(noise.noise)
    app.command()(predict.predict)
    app.command()(report.report)
    app.command()(reproduce.reproduce)
    app.command()(train.train)
    try:
        app()
    except (ValueError, OSError, ModuleNotFoundError) as error:  # bad input: the sentence, not the stack
        sys.exit(f"tolerant: {error}")
