"""The `tolerant` command: a thin module for each sub-command."""

from __future__ import annotations

import signal
import sys
import warnings
from importlib import import_module
from typing import Any

from tolerant.cli.terminal import EndedBy, open_streams
from tolerant.extras import install_command
from tolerant.printable import printable

BAD_INPUT = 2  # as for options that are not known
# In a module each, as the function of that name.
COMMANDS = [
    "audit",
    "cache",
    "demo",
    "doctor",
    "download",
    "export",
    "noise",
    "predict",
    "report",
    "reproduce",
    "train",
]
_INSTALL = install_command("app")
_LONGEST = 4000  # characters of a refusal


def main() -> None:
    """Entry point of the `tolerant` command and of `python -m tolerant`."""
    open_streams()
    try:
        app = make_app()
    except KeyboardInterrupt:  # nothing has begun
        sys.exit(128 + signal.SIGINT)
    except ModuleNotFoundError as missing:
        sys.exit(f"The command line needs {missing.name}: {_INSTALL}")
    warnings.formatwarning = lambda message, *_, **__: f"tolerant: {printable(message)}\n"
    ended_by = EndedBy()
    ended_by.listen()
    try:
        _run(app)
    except BaseException:
        if ended_by.exit_code is None:
            raise
        sys.exit(ended_by.exit_code)


def _run(app: Any) -> None:
    try:
        app()
    except ModuleNotFoundError as missing:
        hint = "" if "pip install" in str(missing) else f". Everything the commands use: {_INSTALL}"
        sys.exit(f"tolerant: {missing}{hint}")
    except (ValueError, OSError, ArithmeticError) as error:  # bad input: the sentence, not the stack
        _refuse(str(error))
    except (MemoryError, RuntimeError) as error:
        from tolerant.data.read_errors import is_out_of_memory, reason

        if not is_out_of_memory(error):
            raise
        _refuse(
            f"out of memory: {reason(error)}. Lower --size of pictures, leave columns out (--ignore), give "
            "fewer rows, or name a smaller --model; if it was the GPU's, --device cpu has more."
        )


def _refuse(sentence: str) -> None:
    if len(sentence) > _LONGEST:  # it quotes a cell as long as a book; what to do stands at the end
        sentence = f"{sentence[: _LONGEST // 2]} ... {sentence[-_LONGEST // 2 :]}"
    print(f"tolerant: {printable(sentence)}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def make_app() -> Any:
    """The typer application with every command."""
    import typer

    from tolerant.cli.top import top

    app = typer.Typer(name="tolerant", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(top)
    for name in COMMANDS:
        app.command()(getattr(import_module(f"{__name__}.{name}"), name))
    return app
