"""Specs claimed, trained and stored by this process, on one device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from tolerant.experiment.claim import Claim, Outcome, Tell, describe_error
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.work import OnEpoch, Work
from tolerant.train import Fleet, Job, TrainResult


@dataclass(frozen=True)
class Runner:
    """Turns specs into rows of one store, `side_by_side` of them at a time on one device."""

    results: str
    checkpoints: str
    device: str = "auto"
    side_by_side: int = 1

    def __call__(self, spec: RunSpec) -> Outcome:
        """One spec, here and now."""
        outcomes: list[Outcome] = []
        self.attempt([spec], outcomes.append)
        return outcomes[0]

    def attempt(self, specs: Sequence[RunSpec], tell: Tell, on_epoch: OnEpoch | None = None) -> None:
        """Every spec once: done now, found stored, busy elsewhere or failed; none stops the others."""
        fleet = Fleet(side_by_side=self.side_by_side, device=self.device, progress="quiet")
        shares = _Shares()
        # By the number of their job, until it ends: with open-set noise each has its own pictures, 150 MB.
        started: dict[int, tuple[Claim, Work]] = {}

        def jobs() -> Iterator[Job]:
            numbers = count()
            for spec in specs:
                claim = Claim(spec, self.results, self.checkpoints)
                try:
                    outcome = claim.take()
                    if outcome is None:
                        work = Work(spec, claim.folder, claim.estimated, on_epoch)
                except Exception as error:
                    outcome = claim.fail(*describe_error(error))
                if outcome is not None:
                    tell(outcome)
                    continue
                number = next(numbers)
                started[number] = claim, work
                del work  # or it would stay until the next one is made
                shares.start(spec.key)
                yield started[number][1].job

        def on_result(index: int, result: TrainResult | Exception) -> None:
            claim, work = started.pop(index)
            wall_s, share = shares.end(claim.spec.key)
            try:
                if isinstance(result, Exception):
                    raise result
                made = work.row(
                    result, fleet.device, wall_s=wall_s, share=share, side_by_side=self.side_by_side
                )
                # The fleet keeps all results until it ends, and a ResNet-34 is 85 MB.
                result.model.to("meta")
                outcome = claim.keep(*made)
            except Exception as error:
                outcome = claim.fail(*describe_error(error))
            tell(outcome)

        try:
            fleet.run(jobs(), on_result)
        finally:
            for claim, _ in started.values():
                claim.close()


class _Shares:
    """How much of the device each run had: the time between two events, divided among those runs."""

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.begun: dict[str, float] = {}
        self.share_s: dict[str, float] = {}

    def start(self, key: str) -> None:
        self._pass()
        self.begun[key] = self.since
        self.share_s[key] = 0.0

    def end(self, key: str) -> tuple[float, float]:
        """Seconds since the start, and the share of the device in them."""
        self._pass()
        wall_s = self.since - self.begun.pop(key)
        return wall_s, self.share_s.pop(key) / max(wall_s, 1e-9)

    def _pass(self) -> None:
        now = time.perf_counter()
        for key in self.share_s:
            self.share_s[key] += (now - self.since) / len(self.share_s)
        self.since = now
