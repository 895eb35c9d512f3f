"""Runs as tasks of a Ray cluster: its workers train, this process reserves the specs and stores the rows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.checks import Domain
from tolerant.experiment.engines.local import MAX_DEATHS, RETRY_S, Queue, Runner, fixed_threads
from tolerant.experiment.one_run import OnEpoch, Outcome, Reservation, Tell, describe_error, make_job
from tolerant.experiment.row import History, make_row
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.store import Row
from tolerant.experiment.training_data import training_data
from tolerant.extras import extra
from tolerant.ray_cluster import connected
from tolerant.train import Fleet

# Tasks handed over at a time: enough for an autoscaler to see what is wanted, and each holds a lock open.
AT_ONCE = 256


@dataclass(frozen=True)
class Cluster:
    """Which Ray, and how much of it a run takes."""

    address: str | None = None
    """Where a cluster runs; by default RAY_ADDRESS, else a Ray of this machine that ends with the grid."""
    cpus: float = 1.0
    gpus: float | None = None
    """0.25: four runs share one. None: one where the cluster has any and the device is not "cpu"."""

    def __post_init__(self) -> None:
        Domain(0).check("cpus", self.cpus)
        Domain(0).check("gpus", self.gpus or 0)


def run_on_ray(
    specs: Sequence[RunSpec], runner: Runner, cluster: Cluster, tell: Tell, on_epoch: OnEpoch | None
) -> None:
    """Every spec as a task. A lost worker's run is tried again, from its checkpoint where all see the folder.

    Only this process touches the store, so a row is written once, however often its run was tried.
    """
    queue = Queue(specs, tell)
    at_work: dict[Any, Reservation] = {}
    with _connected(cluster) as ray:
        gpus = _gpus(ray, cluster, runner.device)
        task = ray.remote(num_cpus=cluster.cpus, num_gpus=gpus, max_retries=MAX_DEATHS - 1)(_train)
        epochs = ray.remote(num_cpus=0, max_restarts=-1)(_Epochs).remote()
        device = runner.device if gpus else "cpu"
        try:
            while queue.waiting or queue.later or at_work:
                queue.look_again()
                while queue.waiting and len(at_work) < AT_ONCE:
                    reserved = Reservation(queue.waiting.popleft(), runner.results, runner.checkpoints)
                    outcome = reserved.take()
                    if outcome is not None:
                        queue.settle(outcome)
                        continue
                    given = (reserved.spec, os.fspath(reserved.folder), reserved.estimated)
                    at_work[task.remote(*given, device, min(gpus, 1.0) or 1.0, epochs)] = reserved
                if at_work:
                    for ended in ray.wait(list(at_work), timeout=RETRY_S)[0]:
                        queue.settle(_settle(ray, ended, at_work.pop(ended)))
                else:
                    time.sleep(RETRY_S)
                if on_epoch is not None:
                    _pass_on(ray, epochs, [reserved.spec for reserved in at_work.values()], on_epoch)
        finally:
            for task_id, reserved in at_work.items():
                ray.cancel(task_id, force=True)
                reserved.release()


def _pass_on(ray: Any, epochs: Any, working: Sequence[RunSpec], on_epoch: OnEpoch) -> None:
    """Tell of the epochs that workers have ended since the last time."""
    spec_of = {spec.key: spec for spec in working}
    with suppress(ray.exceptions.RayError):  # its node may be lost; the runs are not
        for key, epoch in ray.get(epochs.collect.remote(), timeout=10 * RETRY_S).items():
            if key in spec_of:
                on_epoch(spec_of[key], epoch)


def _settle(ray: Any, ended: Any, reserved: Reservation) -> Outcome:
    try:
        row, history, failure = ray.get(ended)
        return reserved.fail(*failure) if failure else reserved.store(row, history)
    except ray.exceptions.WorkerCrashedError as error:
        return reserved.fail(f"its worker died {MAX_DEATHS} times", describe_error(error)[1])
    except (ray.exceptions.RayError, OSError) as error:
        return reserved.fail(*describe_error(error))


def _train(
    spec: RunSpec, folder: str, estimated: np.ndarray | None, device: str, share: float, epochs: Any
) -> tuple[Row, History, tuple[str, str] | None]:
    """In a worker: the row and the history, or what went wrong (as text: not every error can be sent)."""

    def note(spec: RunSpec, epoch: int) -> None:
        epochs.note.remote(spec.key, epoch)

    begun = time.perf_counter()
    try:
        data = training_data(spec)
        fleet = Fleet(side_by_side=1, device=device, progress="quiet")
        with fixed_threads(fleet.device):
            result = fleet.run_one(make_job(spec, data, folder, estimated, note))
            took = {"wall_s": time.perf_counter() - begun, "share": share}
            made = make_row(spec, data, result, fleet.device, **took, side_by_side=round(1 / share))
    except Exception as error:
        return {}, {}, describe_error(error)
    return *made, None


class _Epochs:
    """An actor that workers tell of their epochs, and this process asks."""

    def __init__(self) -> None:
        self._new: dict[str, int] = {}

    def note(self, key: str, epoch: int) -> None:
        self._new[key] = epoch

    def collect(self) -> dict[str, int]:
        """What is new since the last time."""
        new, self._new = self._new, {}
        return new


@contextmanager
def _connected(cluster: Cluster) -> Iterator[Any]:
    """`connected`, after a check that a new Ray of this machine has what a run asks for."""
    there = extra("ray", install="ray").is_initialized()
    new = not (there or cluster.address or os.environ.get("RAY_ADDRESS"))
    with connected(cluster.address, object_bytes=100 << 20) as ray:  # rows are kilobytes
        if new:
            _check_room(ray.cluster_resources(), cluster)
        yield ray


def _check_room(there: dict[str, float], cluster: Cluster) -> None:
    """A task that asks for more than there is would wait for ever; to one machine nothing is added."""
    for name, wanted in (("CPU", cluster.cpus), ("GPU", cluster.gpus or 0.0)):
        has = there.get(name, 0.0)
        if wanted > has:
            raise ValueError(
                f"{name.lower()}s must be at most the {has:g} of this machine; got {wanted:g}. "
                "Ask for less, or give the address of a cluster that has them."
            )


def _gpus(ray: Any, cluster: Cluster, device: str) -> float:
    gpus = cluster.gpus
    if gpus is None:
        gpus = float(device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1)
    if device.startswith("cuda") and not gpus:
        raise ValueError(
            "device 'cuda' needs gpus above 0 per run; got 0, or a cluster without any. Use device='cpu'."
        )
    return gpus
