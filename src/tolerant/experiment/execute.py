"""Do the specs that are not stored yet: skip, resume, go on past failures, report them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tolerant.experiment.code_version import commit, source
from tolerant.experiment.engines.local import Runner, run_here
from tolerant.experiment.engines.processes import run_in_processes
from tolerant.experiment.engines.ray import Cluster, run_on_ray
from tolerant.experiment.grid import with_needs
from tolerant.experiment.one_run import OnEpoch, Outcome, Reservation, Tell
from tolerant.experiment.spec import RunSpec, rows_by_key
from tolerant.experiment.store import LOCK, Row, Store
from tolerant.experiment.training_data import check_trainable
from tolerant.files import make_folder
from tolerant.locks import FileLock
from tolerant.train.engine.device import pick_device


@dataclass(frozen=True)
class Finished:
    """What `run` found and did."""

    rows: list[Row]
    """The rows of the specs asked for, in their order; those that could not be stored are missing."""
    done: int
    failed: list[Outcome]


def run(
    specs: Iterable[RunSpec],
    *,
    results: str | os.PathLike[str] = "results",
    checkpoints: str | os.PathLike[str] = "runs",
    device: str = "auto",
    fleet: int = 1,
    workers: int = 0,
    cluster: Cluster | None = None,
    tell: Tell | None = None,
    on_epoch: OnEpoch | None = None,
) -> Finished:
    """Run what is not stored in `results`, and the runs it needs.

    Any number of calls may share the folders: each run is done by one of them. A call that was
    killed is repeated as it was, and its runs go on from their checkpoints.

    Args:
        specs: the runs.
        results: the folder of rows.
        checkpoints: the folder from which stopped runs go on.
        device: "auto", "cpu" or "cuda".
        fleet: runs side by side on the device, in this process.
        workers: processes instead, one run each (CPU grids of small runs).
        cluster: tasks of Ray instead.
        tell: called with the outcome of each run.
        on_epoch: called as each epoch ends.

    >>> import tempfile
    >>> from tolerant.experiment import named_grid, part
    >>> folder = tempfile.mkdtemp()
    >>> specs = part(named_grid("digits"), method=["lq"], noise_rate=[0.2])
    >>> report = run(specs, results=folder, checkpoints=folder + "/runs")
    >>> report.done, report.rows[0]["key"] == specs[0].key
    (1, True)
    >>> run(specs, results=folder, checkpoints=folder + "/runs").done
    0
    """
    if (fleet > 1) + (workers > 0) + (cluster is not None) > 1:
        raise ValueError(
            "fleet, workers and cluster exclude each other: runs happen in one place; "
            f"got fleet={fleet!r}, workers={workers!r}, cluster={cluster!r}."
        )
    asked = list(specs)
    store = Store(results)
    todo = missing(asked, store)
    if todo:  # refused now rather than after hours of training
        check_trainable(todo)
        commit()  # of the code that is loaded now, whatever is edited meanwhile
        source()
        if cluster is None and device != "auto":
            pick_device(device)
        make_folder(results)
        make_folder(checkpoints)
        with FileLock(Path(results) / LOCK):  # where there are no locks, no run could be reserved
            pass
    _sweep(asked, todo, results, checkpoints)
    runner = Runner(os.fspath(results), os.fspath(checkpoints), device, fleet)
    outcomes: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if tell is not None:
            tell(outcome)

    if cluster is not None and todo:
        run_on_ray(todo, runner, cluster, note, on_epoch)
    elif workers:
        run_in_processes(todo, runner, note, workers)
    else:
        run_here(todo, runner, note, on_epoch)
    after = rows_by_key(store.rows())
    return Finished(
        rows=[after[spec.key] for spec in asked if spec.key in after],
        done=sum(outcome.status == "done" for outcome in outcomes),
        failed=[outcome for outcome in outcomes if outcome.status == "failed"],
    )


def _sweep(
    asked: Iterable[RunSpec],
    todo: Iterable[RunSpec],
    results: str | os.PathLike[str],
    checkpoints: str | os.PathLike[str],
) -> None:
    """Remove the checkpoints of stored runs, which a kill between row and removal has left."""
    to_do = {spec.key for spec in todo}
    for spec in with_needs(asked):
        if spec.key not in to_do and (Path(checkpoints) / spec.key).is_dir():
            Reservation(spec, results, checkpoints).take()


def missing(specs: Iterable[RunSpec], store: Store) -> list[RunSpec]:
    """What is to be done for the specs: those not stored, each after the run it needs."""
    known = rows_by_key(store.rows())
    todo = with_needs(spec for spec in specs if spec.key not in known)
    return [spec for spec in todo if spec.key not in known]
