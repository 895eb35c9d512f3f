"""Specs and grids: what decides a run is in its key, and grids are what the paper has."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from tolerant.cli.reproduce import reproduce
from tolerant.data import CARDS
from tolerant.experiment import (
    RunSpec,
    Store,
    changed,
    named_grid,
    part,
    run,
    spec,
    training_data,
    with_needs,
)
from tolerant.experiment.names import protocol_name
from tolerant.experiment.papers import experiments, find_experiment
from tolerant.experiment.training_data import check_trainable
from tolerant.train import NETWORKS, PruneSchedule, Recipe, Round

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
    "anchor_percentile": 97,
    "prune": PruneSchedule(3, 2, 0.5),
    "rounds": (Round(epochs=3),),
    "recipe": Recipe(seed=1),
    "protocol": "other",
}


RESULTS = Path(__file__).parents[1] / "results"


def _as_the_grids_say(row: dict[str, Any]) -> list[RunSpec]:
    """The specs of the row's protocol, changed as it says."""
    protocol, _, change = row["spec"]["protocol"].partition(" ")
    pairs = [word.partition("=")[::2] for word in change.split(",") if word]
    names = [name for name, (paper, each) in experiments().items() if paper.protocol(each) == protocol]
    specs = [spec for name in names for spec in named_grid(name, [row["spec"]["recipe"]["seed"]])]
    if row["spec"]["protocol"] in {spec.protocol for spec in specs}:  # a grid has changed it itself
        return specs
    return [changed(spec, {name: _value(text) for name, text in pairs}) for spec in specs]


def _value(word: str) -> Any:
    if "+" in word:
        return [_value(part) for part in word.split("+")]
    try:
        return json.loads(word)
    except ValueError:
        return word


def test_stored_rows_are_runs_of_the_grids():
    """Else `reproduce` would train anew what the docs show as done."""
    rows = Store(RESULTS).rows()
    assert len(rows) > 60
    for row in rows:
        assert row["key"] in {spec.key for spec in _as_the_grids_say(row)}, row["spec"]


def test_rows_of_other_choices_name_what_they_changed():
    """By a change of today's grids that gives just their spec; the grids and so the keys were others then."""
    folders = [path for path in (RESULTS / "ablations").iterdir() if path.is_dir()]
    assert len(folders) > 3
    for row in (row for folder in folders for row in Store(folder).rows()):
        assert " " in row["spec"]["protocol"], row["key"]
        assert RunSpec.from_dict(row["spec"]) in _as_the_grids_say(row), row["key"]


@pytest.mark.parametrize("name", [field.name for field in fields(RunSpec)])
def test_every_value_is_in_the_key(name: str) -> None:
    # Rounds have losses and pruning of their own.
    spec = replace(SPEC, loss="cce", loss_args={}, prune=None) if name == "rounds" else SPEC
    assert replace(spec, **{name: OTHER[name]}).key != spec.key


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


@pytest.mark.parametrize("name", experiments())
def test_grids_round_trip_and_have_no_doubles(name: str) -> None:
    specs = named_grid(name, range(2))
    for each in specs:
        again = RunSpec.from_dict(json.loads(json.dumps(each.to_dict())))
        assert again == each
        assert again.key == each.key
    assert len({each.key for each in specs}) == len(specs)
    paper, experiment = find_experiment(name)
    assert {protocol_name(each.protocol) for each in specs} == {paper.protocol(experiment)}
    assert {each.method for each in specs} <= paper.methods.keys()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"los": "cce"}, "unknown spec key 'los'. Did you mean 'loss'?"),
        ({"loss": "lqq"}, "loss must be one of cce, "),
        ({"recipe": {"epoch": 3}}, "unknown recipe key 'epoch'. Did you mean 'epochs'?"),
        ({"prune": {"start": 3}}, "unknown prune key 'start'. Did you mean 'start_epoch'?"),
        ({"noise_rate": 1.5}, "noise_rate must be in"),
        ({"transition": "guess"}, "transition must be one of"),
        ({"anchor_percentile": 0}, "anchor_percentile must be in (0, 100]; got 0"),
    ],
)
def test_wrong_specs_are_named(values: dict[str, Any], message: str) -> None:
    base = {"dataset": "digits", "model": "mlp", "loss": "cce"}
    with pytest.raises(ValueError) as error:
        RunSpec.from_dict({**base, **values})
    assert message in str(error.value)


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_the_grids_cover_the_papers_tables(table: str) -> None:
    paper, experiment = find_experiment(table)
    cells = {(c.dataset, c.noise, c.rate, c.method) for c in paper.published(experiment)}
    ours = {(s.dataset, s.noise, s.noise_rate, s.method) for s in named_grid(table)}
    # Wang et al.'s own method is not ours to run.
    assert {cell for cell in cells - ours if cell[3] != "wang-iterative"} == set()
    assert ours - cells == set()
    assert len(cells) == {"table1": 144, "table2": 12}[table]


def test_the_protocol_is_the_papers() -> None:
    cell = {"noise": ["uniform"], "noise_rate": [0.4], "method": ["truncated-lq"]}
    ten, hundred = part(named_grid("table1"), **cell, dataset=["cifar10", "cifar100"])
    assert (ten.model, ten.recipe.epochs, ten.recipe.milestones) == ("resnet34", 120, (40, 80))
    assert (hundred.recipe.epochs, hundred.recipe.milestones) == (150, (80, 120))
    assert ten.prune == PruneSchedule(40, 10, 0.5)
    assert hundred.prune == PruneSchedule(80, 10, 0.5)
    assert (ten.recipe.batch_size, ten.recipe.lr, ten.recipe.momentum) == (128, 0.01, 0.9)
    assert dict(ten.loss_args) == {"q": 0.7}
    (open_set,) = part(named_grid("table2"), noise=["open-set"], method=["truncated-lq"])
    assert open_set.prune == PruneSchedule(10, 10, 0.5)
    assert (open_set.recipe.epochs, open_set.recipe.augment) == (100, "none")
    adam = named_grid("figure2")[0].recipe
    assert (adam.optimizer, adam.lr, adam.weight_decay, adam.milestones) == ("adam", 1e-3, 0, ())


def test_an_estimated_matrix_comes_from_the_cce_run_of_the_same_noise() -> None:
    specs = part(named_grid("table1"), dataset=["cifar10"], noise=["uniform"], noise_rate=[0.4])
    (cce,) = part(specs, method=["cce"])
    (estimated,) = part(specs, method=["forward-estimated"])
    assert estimated.needs == cce
    assert with_needs([estimated, cce]) == [cce, estimated]


def test_figures_share_their_cce_runs() -> None:
    both = Counter(s.key for s in [*named_grid("figure1"), *named_grid("figure2")])
    assert sorted(both.values())[-2:] == [1, 2]


def test_a_changed_grid_never_mixes_with_the_real_one() -> None:
    spec = part(named_grid("table1"), method=["truncated-lq"])[0]
    short = changed(spec, {"epochs": 3, "weight_decay": 1e-4})
    assert short.protocol == "gce2018-table1 epochs=3,weight_decay=0.0001"
    assert (short.recipe.epochs, short.recipe.milestones) == (3, (1, 2))
    assert short.prune == PruneSchedule(1, 1, 0.5)
    # Even a change that changes nothing keeps its mark.
    assert changed(spec, {"epochs": 120}).key != spec.key
    with pytest.raises(ValueError, match="a change must be one of"):
        changed(spec, {"epoch": 3})


def test_a_part_of_a_grid_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"method must be among cce, .*; got 'gce'"):
        part(named_grid("digits"), method=["gce"])


WRONG_CHANGES = {
    "model.dropout=0.5": "got 'dropout': set it in the recipe",
    "model.num_classes=3": "got 'num_classes': it follows from the data",
    "model.num_features=3": "got 'num_features': it follows from the data",
    "model.name=resnet34": "model 'mlp' has no option 'name'. It takes: init, hidden",
    "model.width=8": "model 'mlp' has no option 'width'. It takes: init, hidden",
    "model.init=she": "init must be 'torch', 'he' or 'glorot'; got 'she'",
    "model.hidden=7": "hidden must be widths of 1 or more, as in (256, 256); got 7",
    "model.hidden=[0]": "hidden must be widths of 1 or more",
    "model.hidden=ab": "hidden must be widths of 1 or more",
    "batch_size=5000": "batch_size must be at most the number of training rows; got 5000 with 1294 rows",
    "validation_fraction=0.9999": "1438 rows cannot be split",
    "lr=Infinity": "lr must be a finite number above 0; got inf",
    "epochs=null": "epochs must be a whole number of at least 1; got None",
    "epochs=few": "epochs must be a whole number of at least 1; got 'few'",
    "noise=foo": "noise must be one of uniform, ",
    "noise=pair": "noise must be one of uniform, ",
    "noise=superclass": "noise 'superclass' on dataset 'digits': kind 'superclass' is for the 100 classes",
    "noise=none": "noise 'none' has no rate: noise_rate must be 0; got 0.2",
    "noise=open-set": "noise 'open-set' must be on cifar10; got dataset 'digits'",
    "q=2": "q must be in [0, 1]; got 2",
    "k=2": "k must be in (0, 1); got 2",
}


@pytest.mark.parametrize("change", WRONG_CHANGES)
def test_a_change_that_no_run_could_train_is_refused_before_the_first(change: str, tmp_path: Path) -> None:
    app = Typer()
    app.command()(reproduce)
    folders = ["--results", str(tmp_path / "results"), "--checkpoints", str(tmp_path / "runs")]
    said = CliRunner().invoke(app, ["digits", "--change", change, *folders], env={"COLUMNS": "300"})
    assert said.exit_code == 2, said.output
    assert WRONG_CHANGES[change] in said.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("noise", ["superclass", "circular", "block5", "symmetric"])
def test_every_kind_of_noise_that_needs_no_more_than_a_rate_can_be_changed_to(noise: str) -> None:
    words = [
        "table1",
        "--dry-run",
        "--dataset",
        "cifar100",
        "--noise",
        "uniform",
        "--change",
        f"noise={noise}",
    ]
    app = Typer()
    app.command()(reproduce)
    said = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert said.exit_code == 0, said.output
    assert f"cifar100 {noise} 0.2 cce seed 0" in said.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "low"], "--rate must be numbers, as in 0.2,0.4; got 'low'"),
    ],
)
def test_options_that_contradict_or_change_nothing_are_refused(words: list[str], message: str) -> None:
    app = Typer()
    app.command()(reproduce)
    said = CliRunner().invoke(app, ["digits", "--dry-run", *words], env={"COLUMNS": "300"})
    assert said.exit_code == 2, said.output
    assert message in said.output


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset": "cifar10n-worse"}, "noise must be 'human' on 'cifar10n-worse'"),
        ({"noise": "human"}, "noise 'human' must be on cifar10n-aggre, "),
        ({"dataset": "cifar100n", "noise": "human", "transition": "true"}, "'true' is not known for noise"),
        ({"loss": "nce", "loss_args": (), "transition": "true"}, "transition corrects losses of p_y alone"),
        ({"loss_args": {"gamma": 2}}, "gamma"),
        ({"model": "resnet43"}, "Did you mean 'resnet34'"),
    ],
)
def test_specs_that_cannot_be_trained_start_nothing(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    good = RunSpec(dataset="digits", model="mlp", loss="cce")
    with pytest.raises(ValueError, match=message):
        run([good, replace(good, **values)], results=tmp_path / "rows", checkpoints=tmp_path / "runs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", experiments())
def test_every_grid_can_be_trained(name: str) -> None:
    check_trainable(named_grid(name))


def test_a_network_for_tables_is_checked_against_the_rows_of_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = replace(NETWORKS["mlp"], name="columns", takes=("table",))
    monkeypatch.setitem(NETWORKS, "columns", columns)
    monkeypatch.setitem(CARDS, "flowers", replace(CARDS["digits"], name="flowers", shape=(4,)))
    spec = replace(SPEC, model="columns", dataset="flowers")
    check_trainable([spec])
    with pytest.raises(ValueError, match="'columns' takes tables, not pictures"):
        check_trainable([replace(spec, dataset="digits")])


def test_changes_that_need_each_other_come_in_any_order() -> None:
    one = {"validation_fraction": 0, "select": "last"}
    for changes in (one, dict(reversed(one.items()))):
        recipe = changed(named_grid("digits")[0], changes).recipe
        assert (recipe.validation_fraction, recipe.select) == (0, "last")


def test_an_unknown_device_is_refused_before_workers_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu' or 'cuda'; got 'gpu'"):
        run(
            named_grid("digits"),
            results=tmp_path / "rows",
            checkpoints=tmp_path / "runs",
            device="gpu",
            workers=1,
        )


def test_missing_data_are_told_of_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLERANT_DATA", str(tmp_path / "empty"))
    training_data._load.cache_clear()  # another test may have had the data
    app = Typer()
    app.command()(reproduce)
    words = ["table2", "--results", str(tmp_path / "rows"), "--checkpoints", str(tmp_path / "runs")]
    said = CliRunner().invoke(app, words)
    assert isinstance(said.exception, FileNotFoundError)
    assert "`tolerant download cifar10` gets it" in str(said.exception)
    assert not list(tmp_path.iterdir())
    training_data.load_all(named_grid("digits"))  # which scikit-learn brings, and which need no others


def test_a_changed_grid_of_rounds_is_changed_in_its_rounds():
    spec = named_grid("rounds")[0]
    shorter = changed(spec, {"epochs": 17, "mixup": 0.5, "q": 0.3})
    first, second, *_, last = shorter.rounds
    assert sum(each.epochs for each in shorter.rounds) == shorter.recipe.epochs == 17
    for this, before in zip(shorter.rounds, spec.rounds, strict=True):
        assert this.epochs == pytest.approx(17 / spec.recipe.epochs * before.epochs, abs=1)
    assert dict(first.loss_args) == {"q": 0.3}
    assert (first.mixup, second.mixup) == (None, 0.5)
    assert last.relabel.start_epoch == last.epochs < spec.rounds[-1].epochs, "still never within its round"
    within = changed(named_grid("rounds-before")[0], {"epochs": 17}).rounds[-1]
    assert (within.epochs, within.relabel.start_epoch, within.relabel.every) == (6, 3, 1)
    assert all(each.epochs == 1 for each in changed(spec, {"epochs": 2}).rounds), "and none has none"
    assert RunSpec.from_dict(json.loads(json.dumps(shorter.to_dict()))) == shorter


def test_a_spec_has_rounds_or_a_loss_of_its_own():
    with pytest.raises(ValueError, match="rounds have a loss and prune of their own"):
        replace(SPEC, rounds=(Round(epochs=3),))


def test_ablations_name_what_they_leave_out():
    specs = named_grid("rounds-ablations", [0])
    assert {spec.protocol for spec in specs} >= {"rounds mixup=0", "rounds soft=false", "rounds prune=8"}
    assert len({spec.key for spec in specs}) == len(specs)
