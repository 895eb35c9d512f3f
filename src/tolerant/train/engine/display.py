"""What a person sees while runs train: a bar for each run on a terminal, else a line at its end."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, get_args

from tolerant.extras import extra

if TYPE_CHECKING:
    from tolerant.train.engine.chain import Chain
    from tolerant.train.engine.job import Record
    from tolerant.train.engine.loop import Run

ProgressMode = Literal["auto", "bar", "lines", "quiet"]
_REFRESH_S = 0.1
_FIRST_LINE_S, _LINE_S = 5.0, 60.0  # of a long run in a log: the first says how long it will be
_WIDE = 110  # columns that a bar with all its numbers takes


class Display:
    """Shows runs on standard error: "lines" has one for each epoch.

    "auto" is bars on a terminal with rich, else a line at the end of each run, one after 5 s, and one a
    minute. A terminal that is closed meanwhile ends no training.
    """

    def __init__(self, mode: ProgressMode) -> None:
        if mode not in get_args(ProgressMode):
            raise ValueError(f"progress must be 'auto', 'bar', 'lines' or 'quiet'; got {mode!r}.")
        self._bars: Any = None
        self._tasks: dict[int, Any] = {}
        self._shown: dict[int, int] = {}
        self._next = 0.0
        self._next_line: dict[int, float] = {}
        self.mode = "quiet" if sys.stderr is None else mode  # pythonw, a closed one

    def __enter__(self) -> Display:
        if self.mode == "bar" or (self.mode == "auto" and sys.stderr.isatty()):
            self._bars = _make_bars(required=self.mode == "bar")
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bars is not None:
            with suppress(OSError):
                self._bars.stop()

    def start(self, index: int, run: Run | Chain) -> None:
        with suppress(OSError):
            self._start(index, run)

    def tick(self, index: int, run: Run | Chain) -> None:
        """Called after every step: shows what is new, ten times a second at most."""
        with suppress(OSError):
            self._tick(index, run)

    def end(self, index: int, run: Run | Chain) -> None:
        with suppress(OSError):
            self._tick(index, run)
            if self._bars is not None:
                self._bars.update(self._tasks[index], completed=run.recipe.epochs)

    def _start(self, index: int, run: Run | Chain) -> None:
        self._shown[index] = len(run.history)
        self._next_line[index] = time.monotonic() + _FIRST_LINE_S
        if self._bars is not None:
            name = run.job.name or "training"
            self._tasks[index] = self._bars.add_task(name, total=run.recipe.epochs, numbers="")
        elif run.history and self.mode != "quiet":
            print(_prefix(run) + f"going on after epoch {len(run.history)}", file=sys.stderr)

    def _tick(self, index: int, run: Run | Chain) -> None:
        new = len(run.history) > self._shown[index]
        if self._bars is not None:
            now = time.monotonic()
            if new or now >= self._next:
                self._next = now + _REFRESH_S
                stepper = run.stepper
                part = stepper.steps_done / max(stepper.num_steps, 1)
                # Just after an epoch the stepper still counts the steps of that one.
                done = run.epoch if new else min(len(run.history) + part, run.epoch + 1)
                short = self._bars.console.width < _WIDE
                numbers = epoch_in_words(run.history[-1], short=short) if run.history else ""
                self._bars.update(self._tasks[index], completed=done, numbers=numbers)
        elif new and self.mode == "lines":
            for record in run.history[self._shown[index] :]:
                _print_epoch(run, record)
        elif new and self.mode != "quiet":
            ended, now = len(run.history) == run.recipe.epochs, time.monotonic()
            if ended or now >= self._next_line[index]:
                self._next_line[index] = now + _LINE_S
                _print_epoch(run, run.history[-1])
        self._shown[index] = len(run.history)


def epoch_in_words(record: Record, *, short: bool = False) -> str:
    """One epoch in one line.

    >>> epoch = {"train_loss": 0.5, "validation_accuracy": 0.8123, "images_per_s": 24100.0}
    >>> epoch_in_words(epoch)
    'loss 0.5000  validation 81.23%  24,100 rows/s'
    >>> epoch_in_words(epoch, short=True)
    'val 81.2%  24,100/s'
    """
    parts = [] if short else [f"loss {record['train_loss']:.4f}"]
    for key, word in (
        ("validation_accuracy", "val" if short else "validation"),
        ("test_accuracy", "test"),
        ("kept_fraction", "kept"),
        ("relabelled_fraction", "relabelled"),
    ):
        if record.get(key) is not None:
            parts.append(f"{word} {100 * record[key]:.{1 if short else 2}f}%")
    return "  ".join([*parts, f"{record['images_per_s']:,.0f}{'/s' if short else ' rows/s'}"])


def _print_epoch(run: Run | Chain, record: Record) -> None:
    total = run.recipe.epochs
    text = f"epoch {record['epoch'] + 1:>{len(str(total))}}/{total}  {epoch_in_words(record)}"
    print(_prefix(run) + text, file=sys.stderr, flush=True)


def _prefix(run: Run | Chain) -> str:
    return f"{run.job.name}: " if run.job.name else ""


def _make_bars(*, required: bool) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ModuleNotFoundError:
        if required:
            extra("rich")  # says how to get it
        return None
    console = Console(stderr=True)
    wide = console.width >= _WIDE
    return Progress(
        TextColumn("{task.description}"),
        *([BarColumn()] if wide else []),
        TextColumn(("epoch " if wide else "") + "{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
        console=console,
    )
