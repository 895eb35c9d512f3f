"""The command that a summary suggests next: the same training, with the corrections of the review."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tolerant.cli.options import DATA

if TYPE_CHECKING:
    from tolerant.data import Source

RUN = Path("run")  # where `tolerant train` writes unless told
# Parameters of `train` and `audit` that the command suggested next does not repeat: it has its own.
_SAID_ANEW = ("context", "source", "out", "labels", "limit", "data_options")


def chosen_settings(command: Callable[..., None], options: Mapping[str, Any]) -> dict[str, Any]:
    """The training settings that differ from the defaults of ``command``."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in (*DATA, *_SAID_ANEW)
    }
    return {name: options[name] for name, default in defaults.items() if options[name] != default}


def next_command(
    source: Source,
    corrections: Sequence[Path | str],
    *,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """`tolerant train` with the ``corrections`` so far and those to come.

    ``out`` and ``settings``: folder and options of the next training; None: the defaults.
    """
    words = ["tolerant", "train", source.name]
    for name, value in source.options.items():
        for word in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", *([] if word is True else [str(word)])]
    number = len(corrections) + 1
    for path in [*corrections, "corrections.csv" if number == 1 else f"corrections-{number}.csv"]:
        words += ["--labels", str(path)]
    if out not in (None, RUN):
        words += ["--out", str(out)]
    for name, value in (settings or {}).items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)
