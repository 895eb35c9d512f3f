"""How long runs will take, from stored rows of their kind or from measured speeds, and how far a grid is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from tolerant.experiment.names import protocol_name
from tolerant.experiment.one_run import Outcome
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.store import Row
from tolerant.experiment.training_data import train_rows

# Training images a second on one H200, four runs side by side.
IMAGES_PER_S = {"resnet34": 38_000, "resnet18": 71_000, "cnn8": 150_000, "fast": 80_000}
OTHER_MODELS_PER_S = 20_000  # those of the digits grid, on one CPU core
HEARTBEAT_S = 60.0  # between lines where there is no terminal to draw a bar on


def estimate_s(spec: RunSpec, rows: Iterable[Row] = ()) -> float:
    """Seconds of device time; a run that shares its device counts for its share.

    >>> round(estimate_s(RunSpec(dataset="cifar10", model="resnet34", loss="lq")))  # 120 x 45,000 / 38,000
    142
    """
    known: dict[tuple[bool, bool], list[float]] = {}
    for row in rows:
        other = row["spec"]
        whole = {"protocol", "prune", "recipe"} <= other.keys() and "epochs" in other["recipe"]
        if (
            whole
            and "device_s" in row
            and (other.get("dataset"), other.get("model")) == (spec.dataset, spec.model)
        ):
            # Another protocol may score every epoch; a run that prunes trains on less.
            same_protocol = protocol_name(other["protocol"]) == protocol_name(spec.protocol)
            alike = same_protocol, bool(other["prune"]) == bool(spec.prune)
            known.setdefault(alike, []).append(row["device_s"] / other["recipe"]["epochs"])
    if known:
        return fmean(known[max(known)]) * spec.recipe.epochs
    images = (train_rows(spec.dataset) or 50_000) * (1 - spec.recipe.validation_fraction)
    epochs = sum(each.epochs * each.networks for each in spec.rounds) or spec.recipe.epochs
    return images * epochs / IMAGES_PER_S.get(spec.model, OTHER_MODELS_PER_S)


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(42), duration(200), duration(9000)
    ('42 s', '3.3 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class GridProgress:
    """A line on standard error for each finished run; on a terminal with rich, a bar stays below them."""

    def __init__(self, specs: Sequence[RunSpec], rows: Sequence[Row]) -> None:
        self.cost = {spec.key: estimate_s(spec, rows) for spec in specs}
        self.done: dict[str, float] = {}  # key -> share of the run that is over
        self.ended = 0
        self.start = self.last = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> GridProgress:
        if sys.stderr.isatty() and self.cost:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("starting", total=1.0)
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
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
