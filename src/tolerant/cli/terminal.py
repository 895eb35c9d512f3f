"""The terminal: what is printed on it, and the signals that end a command."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

from tolerant.printable import printable


def open_streams() -> None:
    """Make any class name printable, or hours of training could end in an encoding error."""
    if sys.stderr is None:  # closed, as under some schedulers
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def echo(text: str, *, err: bool = False) -> None:
    """A line on the terminal, in which a label cannot set the colour or the window's title."""
    import typer

    typer.echo(printable(text), err=err)


class EndedBy:
    """The signal that has ended the command, if one has: SIGTERM of a scheduler, SIGHUP of a closed terminal.

    They act like Ctrl-C.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def listen(self) -> None:
        """From now on these signals are a KeyboardInterrupt, so that what is half written is taken back."""
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # SIGHUP is not on Windows
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        if number != signal.SIGTERM:  # the terminal is gone: a word to it would be an error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in self._terminals:
                os.dup2(nowhere, stream)
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int | None:
        """What a shell would show: 143 for SIGTERM, 129 for SIGHUP; None if no signal has come."""
        return None if self.number is None else 128 + self.number
