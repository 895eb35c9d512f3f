"""What `tolerant train` and `tolerant audit` do with data: train on all ranks, print, say what comes next."""

from __future__ import annotations

import inspect
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tolerant.cli.options import DATA
from tolerant.cli.summary import print_all_rows, print_suspects, print_training
from tolerant.cli.terminal import echo

if TYPE_CHECKING:
    from tolerant.data import Source
    from tolerant.own_data.learned import Learned
    from tolerant.own_data.settings import Settings

RUN = Path("run")  # where `tolerant train` writes unless told
# Parameters of `train` and `audit` that the command suggested next does not repeat: it has its own.
_SAID_ANEW = ("context", "source", "out", "labels", "limit", "data_options")


def train_and_print(
    source: Source, out: Path, settings: Settings, *, all_rows: bool, again: str, **options: Any
) -> None:
    """Train, and say what was trained, which labels are doubtful and which command comes ``again``."""
    learned = train_over_ranks(source, out, settings, **options)
    print_training(learned)
    if all_rows:
        print_all_rows(out)
    print_suspects(learned.suspects, out, again)


def train_over_ranks(
    source: Source, out: Path, settings: Settings, *, device: str, **options: Any
) -> Learned:
    """`train_source` on every rank; only rank 0 returns, the others exit."""
    from tolerant.own_data.train_source import train_source
    from tolerant.train import join_ranks

    with join_ranks(device) as ranks, warnings.catch_warnings():
        if ranks.rank:
            warnings.simplefilter("ignore")  # rank 0 gives the same ones
        try:
            say = (lambda line: None) if ranks.rank else echo
            learned = train_source(source, out, settings, device=device, say=say, **options)
        except KeyboardInterrupt:
            if not ranks.rank:
                checkpoints = out / "checkpoints"
                how = f"resumes from {checkpoints}" if checkpoints.is_dir() else "starts anew"
                echo(f"stopped; the same command {how}", err=True)
            raise typer.Exit(130) from None
    if ranks.rank:
        raise typer.Exit
    return learned


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
