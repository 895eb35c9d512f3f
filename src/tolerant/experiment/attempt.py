"""From a spec to a stored row: claim it, train it or go on training it, keep what it showed."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from tolerant.experiment import row
from tolerant.experiment.problem import Problem, make_problem
from tolerant.experiment.spec import TRAINING_VERSION, RunSpec
from tolerant.experiment.store import Row, Store, locked
from tolerant.files import write_atomic
from tolerant.noise import anchor_points
from tolerant.train import Callback, Fleet, Job, TrainResult

Status = Literal["done", "stored", "busy", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one spec. `busy`: another process is at it, or the run it needs is not done."""

    spec: RunSpec
    status: Status
    text: str = ""


Tell = Callable[[Outcome], None]
OnEpoch = Callable[[RunSpec, int], None]


def stored(store: Store) -> dict[str, Row]:
    """Rows by the key their spec has today.

    A value added to the spec since counts with its default, which means "as before" (else the
    training version rises), so old rows stay done.
    """
    found: dict[str, Row] = {}
    for each in store.rows():
        found.setdefault(each["key"], each)
        if each["versions"]["training"] == TRAINING_VERSION:
            try:
                found.setdefault(RunSpec.from_dict(each["spec"]).key, each)
            except ValueError:
                continue  # a value that no longer exists
    return found


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
        """Every spec once: done, or found stored, busy elsewhere, or failed; none stops the others."""
        fleet = Fleet(side_by_side=self.side_by_side, device=self.device, progress="quiet")
        shares = _Shares()
        started: list[_Attempt] = []

        def jobs() -> Iterator[Job]:
            for spec in specs:
                attempt = _Attempt(self, spec, fleet.device, on_epoch)
                try:
                    job = attempt.begin()
                except Exception as error:
                    tell(attempt.fail(error))
                    continue
                if isinstance(job, Outcome):
                    tell(job)
                    continue
                started.append(attempt)
                shares.start(spec.key)
                yield job

        def on_result(index: int, result: TrainResult | Exception) -> None:
            attempt = started[index]
            wall_s, share = shares.end(attempt.spec.key)
            if isinstance(result, Exception):
                tell(attempt.fail(result))
                return
            try:
                tell(attempt.finish(result, wall_s, share))
            except OSError as error:
                tell(attempt.fail(error))

        try:
            fleet.run(jobs(), on_result)
        finally:
            for attempt in started:
                attempt.held.close()


class _Attempt:
    """One spec on its way to a row. Its lock is held from `begin` until `finish` or `fail`."""

    def __init__(
        self,
        runner: Runner,
        spec: RunSpec,
        device: torch.device,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.spec, self.device, self.on_epoch = spec, device, on_epoch
        self.store = Store(runner.results)
        self.folder = Path(runner.checkpoints) / spec.key
        self.side_by_side = runner.side_by_side
        self.held = ExitStack()
        self.problem: Problem | None = None

    def begin(self) -> Job | Outcome:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.held.enter_context(locked(self.folder, wait=False)):
            self.held.close()
            return Outcome(self.spec, "busy")
        rows = stored(self.store)
        if self.spec.key in rows:
            self._leave(delete=True)
            return Outcome(self.spec, "stored")
        if self.spec.needs is not None and self.spec.needs.key not in rows:
            self._leave(delete=False)
            return Outcome(self.spec, "busy")
        spec, self.problem = self.spec, make_problem(self.spec)
        return Job(
            dataset=self.problem.train,
            test=self.problem.test,
            model=spec.model,
            model_args=dict(spec.model_args),
            loss=spec.loss,
            loss_args=dict(spec.loss_args),
            recipe=spec.recipe,
            prune=spec.prune,
            transition=self._transition(rows),
            checkpoint=self.folder,
            # Twelve a run: a checkpoint of ResNet-34 with its momentum is 170 MB.
            checkpoint_every=max(1, spec.recipe.epochs // 12),
            callbacks=[] if self.on_epoch is None else [_Tick(spec, self.on_epoch)],
            name=spec.title(),
        )

    def finish(self, result: TrainResult, wall_s: float, share: float) -> Outcome:
        assert self.problem is not None
        spec = self.spec
        history: dict[str, Any] = dict(row.columns(result.history))
        if spec.method == "cce":
            estimate = estimate_transition(result, self.problem, self.device)
            # Whole numbers of 1e-5: half the digits, and 100 classes are 10,000 of them.
            history["estimated_transition_e5"] = np.rint(estimate * 1e5).astype(int).tolist()
        # The fleet keeps all results until it ends, and a ResNet-34 is 85 MB.
        result.model.to("meta")
        time_s = max(result.time_s, wall_s)  # a resumed run's clock goes on, the wall's does not
        chosen = row.choose(result.history)
        numbers = {
            **chosen,
            "realised_noise_rate": self.problem.realised_noise_rate,
            "kept_fraction": float(result.kept.mean()),
        }
        if spec.needs is not None:
            numbers["transition_from"] = spec.needs.key
        self.store.append(
            {
                "key": spec.key,
                "spec": spec.to_dict(),
                "result": numbers,
                "history": self.store.write_history(spec.key, history),
                "time_s": round(time_s, 2),
                "device_s": round(time_s * share, 2),
                "side_by_side": self.side_by_side,
                "peak_mem_mib": row.peak_mem_mib(self.device),
                "hardware": row.hardware(self.device),
                "versions": row.versions(),
                "commit": row.commit(),
                "finished": row.now(),
            },
            file=f"{spec.protocol.partition(' ')[0]}.jsonl",
        )
        self._leave(delete=True)
        accuracies = [f"{rule} {100 * at['test_accuracy']:.2f}" for rule, at in chosen.items()]
        return Outcome(spec, "done", ", ".join(accuracies).replace("_", " "))

    def fail(self, error: Exception) -> Outcome:
        """The checkpoint stays: the next attempt goes on from it."""
        with suppress(OSError):  # then the one line must do
            write_atomic(self.folder / "error.txt", "".join(traceback.format_exception(error)))
        self._leave(delete=False)
        return Outcome(self.spec, "failed", f"{type(error).__name__}: {error}")

    def _leave(self, *, delete: bool) -> None:
        if delete:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.held.close()

    def _transition(self, rows: dict[str, Row]) -> np.ndarray | None:
        assert self.problem is not None
        if self.spec.transition == "none":
            return None
        if self.spec.needs is None:
            if self.problem.transition is None:
                raise ValueError(
                    f"transition 'true' is not known for noise {self.spec.noise!r}. "
                    "Use transition='estimated'."
                )
            return self.problem.transition
        known = self.store.history(rows[self.spec.needs.key])["estimated_transition_e5"]
        matrix = np.asarray(known, dtype=np.float64)
        return matrix / matrix.sum(axis=1, keepdims=True)  # rounded when it was stored


def estimate_transition(result: TrainResult, problem: Problem, device: torch.device) -> np.ndarray:
    """T by anchor points among the training rows, after Patrini et al. 2017.

    Their percentile of 97 skips the surest 3 % of rows as outliers. With more than 33 classes that
    would be whole classes, and they take the surest row itself, as here.
    """
    rows = problem.train.subset(result.train_index)
    probs = np.exp(result.predict_log_proba(rows, device=device).astype(np.float64))
    probs /= probs.sum(axis=1, keepdims=True)
    return anchor_points(probs, percentile=97.0 if problem.train.num_classes <= 33 else 100.0)


class _Tick(Callback):
    def __init__(self, spec: RunSpec, on_epoch: OnEpoch) -> None:
        self.spec, self.on_epoch = spec, on_epoch

    def on_epoch_end(self, job: Job, record: dict[str, Any]) -> None:
        self.on_epoch(self.spec, record["epoch"] + 1)


class _Shares:
    """How much of the device each run had: the time between two events, divided by the runs in it."""

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
