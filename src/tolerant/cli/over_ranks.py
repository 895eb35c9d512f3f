"""A training on data of one's own over all ranks of torchrun, or in this process alone, and what it found."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tolerant.cli.echo import echo
from tolerant.cli.summary import print_all_rows, print_suspects, print_training

if TYPE_CHECKING:
    from tolerant.data import Source
    from tolerant.own_data.learned import Learned
    from tolerant.own_data.settings import Settings


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
