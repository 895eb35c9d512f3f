"""The progress of a grid: a line for each finished run, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tolerant.experiment.claim import Outcome
from tolerant.experiment.cost import duration, estimate_s
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.store import Row

HEARTBEAT_S = 60.0  # between lines where there is no terminal to draw a bar on


class Progress:
    """Reports runs on standard error; on a terminal with rich, a bar stays below the lines."""

    def __init__(self, specs: Sequence[RunSpec], rows: Sequence[Row]) -> None:
        self.cost = {spec.key: estimate_s(spec, rows) for spec in specs}
        self.done: dict[str, float] = {}  # key -> share of the run that is over
        self.ended = 0
        self.start = self.last = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and self.cost:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("starting", total=1.0)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_epoch(self, spec: RunSpec, epoch: int) -> None:
        """An epoch is over."""
        self.done[spec.key] = epoch / spec.recipe.epochs
        if self._bar is not None:
            self._bar.update(self._task, completed=self.share(), description=self.state())
        elif time.monotonic() - self.last > HEARTBEAT_S:
            self._line(self.state())

    def tell(self, outcome: Outcome) -> None:
        """A run has ended, one way or another."""
        self.done[outcome.spec.key] = 1.0
        self.ended += 1
        text = f": {outcome.text}" if outcome.text else ""
        self._line(f"{outcome.status:6} {outcome.spec.title()}{text} · {self.state()}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self.share(), description=self.state())

    def share(self) -> float:
        """How much of the whole grid's estimated cost is over."""
        total = sum(self.cost.values()) or 1.0  # stored runs may have taken 0.00 s
        return sum(self.cost[key] * part for key, part in self.done.items()) / total

    def state(self) -> str:
        """How far the grid is, and how long the rest takes at the speed so far."""
        share = self.share()
        end = "all over" if self.ended == len(self.cost) else "no estimate yet"
        if 0 < share < 1:
            end = f"about {duration((time.monotonic() - self.start) * (1 - share) / share)} left"
        return f"{self.ended} of {len(self.cost)} runs, {end}"

    def _line(self, text: str) -> None:
        self.last = time.monotonic()
        if self._bar is not None:
            self._bar.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)
