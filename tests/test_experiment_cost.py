"""How long a run will take, judged by the stored runs most like it."""

from __future__ import annotations

from typing import Any

import pytest

from tolerant.experiment import RunSpec, named_grid, part
from tolerant.experiment.time_left import estimate_s


def row(spec: RunSpec, device_s: float) -> dict[str, Any]:
    return {"spec": spec.to_dict(), "device_s": device_s}


def test_the_most_alike_runs_count() -> None:
    cells = {"dataset": ["cifar10"], "noise": ["uniform"]}
    cce, lq, pruned = part(
        named_grid("table1"), **cells, noise_rate=[0.4], method=["cce", "lq", "truncated-lq"]
    )
    scored = part(named_grid("figure1"), dataset=["cifar10"], noise_rate=[0.4], method=["lq"])[0]
    rows = [row(scored, 240.0)]
    assert estimate_s(lq, rows) == pytest.approx(240.0)  # of the same network, for want of better
    rows.append(row(pruned, 90.0))
    assert estimate_s(lq, rows) == pytest.approx(90.0)  # of the same protocol
    rows.append(row(cce, 150.0))
    assert estimate_s(lq, rows) == pytest.approx(150.0)  # unpruned, as it is
    (later,) = part(named_grid("table1"), **cells, noise_rate=[0.8], method=["truncated-lq"])
    assert estimate_s(later, rows) == pytest.approx(90.0)


def test_the_epochs_count() -> None:
    (long,) = part(
        named_grid("table1"), dataset=["cifar100"], noise=["uniform"], noise_rate=[0.4], method=["lq"]
    )
    (short,) = part(named_grid("figure1"), dataset=["cifar100"], noise_rate=[0.0], method=["mae"])
    assert (long.recipe.epochs, short.recipe.epochs) == (150, 120)
    assert estimate_s(long, [row(short, 120.0)]) == pytest.approx(150.0)
