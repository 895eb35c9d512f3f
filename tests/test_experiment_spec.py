"""Specs and grids: what decides a run is in its key, and grids are what the paper has."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest

from tolerant.experiment import gce2018, grid, paper, spec
from tolerant.experiment.spec import RunSpec
from tolerant.report.rows import PROTOCOLS
from tolerant.train.prune import PruneSchedule
from tolerant.train.recipe import Recipe

SPEC = RunSpec(dataset="digits", model="mlp", loss="lq", loss_args={"q": 0.7}, prune=PruneSchedule(3, 1, 0.5))
OTHER: dict[str, Any] = {
    "dataset": "cifar10",
    "model": "small-cnn",
    "model_args": {"hidden": [8]},
    "loss": "cce",
    "loss_args": {"q": 0.6},
    "noise": "uniform",
    "noise_rate": 0.1,
    "transition": "true",
    "prune": PruneSchedule(3, 2, 0.5),
    "recipe": Recipe(seed=1),
    "protocol": "other",
}


@pytest.mark.parametrize("name", [field.name for field in fields(RunSpec)])
def test_every_value_is_in_the_key(name: str) -> None:
    assert replace(SPEC, **{name: OTHER[name]}).key != SPEC.key


def test_the_training_version_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = SPEC.key
    monkeypatch.setattr(spec, "TRAINING_VERSION", spec.TRAINING_VERSION + 1)
    assert SPEC.key != before


def test_equal_however_written() -> None:
    assert replace(SPEC, noise_rate=0) == replace(SPEC, noise_rate=0.0)
    one = replace(SPEC, model_args={"width": 8, "hidden": [4, 4]})
    other = replace(SPEC, model_args={"hidden": (4, 4), "width": 8})
    assert one == other
    assert one.key == other.key
    assert hash(one) == hash(other)


@pytest.mark.parametrize("name", grid.GRIDS)
def test_grids_round_trip_and_have_no_doubles(name: str) -> None:
    specs = grid.GRIDS[name](range(2))
    for each in specs:
        again = RunSpec.from_dict(json.loads(json.dumps(each.to_dict())))
        assert again == each
        assert again.key == each.key
    assert len({each.key for each in specs}) == len(specs)
    assert {each.protocol for each in specs} == {PROTOCOLS[name]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"los": "cce"}, "unknown spec key 'los'. Did you mean 'loss'?"),
        ({"recipe": {"epoch": 3}}, "unknown recipe key 'epoch'. Did you mean 'epochs'?"),
        ({"prune": {"start": 3}}, "unknown prune key 'start'. Did you mean 'start_epoch'?"),
        ({"noise_rate": 1.5}, "noise_rate must be in"),
        ({"transition": "guess"}, "transition must be one of"),
    ],
)
def test_wrong_specs_are_named(values: dict[str, Any], message: str) -> None:
    base = {"dataset": "digits", "model": "mlp", "loss": "cce"}
    with pytest.raises(ValueError) as error:
        RunSpec.from_dict({**base, **values})
    assert message in str(error.value)


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_the_grids_cover_the_papers_tables(table: str) -> None:
    cells = {(c.dataset, c.noise, c.rate, c.method) for c in paper.cells(table)}
    ours = {(s.dataset, s.noise, s.noise_rate, s.method) for s in grid.GRIDS[table]([0])}
    # Wang et al.'s own method is not ours to run.
    assert {cell for cell in cells - ours if cell[3] != "wang-iterative"} == set()
    assert ours - cells == set()
    assert len(cells) == {"table1": 144, "table2": 12}[table]


def test_the_protocol_is_the_papers() -> None:
    cell = {"noise": ["uniform"], "noise_rate": [0.4], "method": ["truncated-lq"]}
    ten, hundred = grid.part(gce2018.table1(), **cell, dataset=["cifar10", "cifar100"])
    assert (ten.model, ten.recipe.epochs, ten.recipe.milestones) == ("resnet34", 120, (40, 80))
    assert (hundred.recipe.epochs, hundred.recipe.milestones) == (150, (80, 120))
    assert ten.prune == PruneSchedule(40, 10, 0.5)
    assert hundred.prune == PruneSchedule(80, 10, 0.5)
    assert (ten.recipe.batch_size, ten.recipe.lr, ten.recipe.momentum) == (128, 0.01, 0.9)
    assert dict(ten.loss_args) == {"q": 0.7}
    (open_set,) = grid.part(gce2018.table2(), noise=["open-set"], method=["truncated-lq"])
    assert open_set.prune == PruneSchedule(10, 10, 0.5)
    assert (open_set.recipe.epochs, open_set.recipe.augment) == (100, "none")
    adam = gce2018.figure2()[0].recipe
    assert (adam.optimizer, adam.lr, adam.weight_decay, adam.milestones) == ("adam", 1e-3, 0, ())


def test_an_estimated_matrix_comes_from_the_cce_run_of_the_same_noise() -> None:
    specs = grid.part(gce2018.table1(), dataset=["cifar10"], noise=["uniform"], noise_rate=[0.4])
    (cce,) = grid.part(specs, method=["cce"])
    (estimated,) = grid.part(specs, method=["forward-estimated"])
    assert estimated.needs == cce
    assert grid.with_needs([estimated, cce]) == [cce, estimated]


def test_figures_share_their_cce_runs() -> None:
    both = Counter(s.key for s in [*gce2018.figure1(), *gce2018.figure2()])
    assert sorted(both.values())[-2:] == [1, 2]


def test_a_changed_grid_never_mixes_with_the_real_one() -> None:
    spec = grid.part(gce2018.table1(), method=["truncated-lq"])[0]
    short = grid.changed(spec, {"epochs": 3, "weight_decay": 1e-4})
    assert short.protocol == "gce2018-table1 epochs=3,weight_decay=0.0001"
    assert (short.recipe.epochs, short.recipe.milestones) == (3, (1, 2))
    assert short.prune == PruneSchedule(1, 1, 0.5)
    # Even a change that changes nothing keeps its mark.
    assert grid.changed(spec, {"epochs": 120}).key != spec.key
    with pytest.raises(ValueError, match="a change must be of"):
        grid.changed(spec, {"epoch": 3})


def test_a_part_of_a_grid_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"method must be among cce, .*; got 'gce'"):
        grid.part(grid.digits(), method=["gce"])
