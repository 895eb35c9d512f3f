"""The cards of papers: names that people type, rows that were stored, and a second paper as one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked import forked, without_modules

from tolerant.cli import reproduce
from tolerant.cli.report import NAMES as REPORTED
from tolerant.experiment.papers import computed, experiments, find_experiment, papers

# As people type them, and as their rows are stored.
PROTOCOLS = {
    "table1": "gce2018-table1",
    "table2": "gce2018-table2",
    "figure1": "gce2018-adam",
    "figure2": "gce2018-adam",
    "cifar-n": "gce2018-cifar-n",
    "digits": "digits",
}


def test_names_and_protocols_are_as_ever() -> None:
    assert {
        name: find_experiment(name)[0].protocol(find_experiment(name)[1]) for name in PROTOCOLS
    } == PROTOCOLS
    assert {*reproduce.NAMES} >= {*PROTOCOLS, "theory"}
    assert {*REPORTED} >= {*PROTOCOLS, "pruning"}


def test_no_two_papers_share_a_name_or_rows() -> None:
    called = [paper.called(each.name) for paper in papers() for each in paper.experiments]
    called += [paper.called(name) for paper in papers() for name in paper.computed]
    assert sorted(called) == sorted({*experiments(), *computed()})
    owners: dict[str, str] = {}
    for paper, each in experiments().values():
        assert owners.setdefault(paper.protocol(each), paper.name) == paper.name


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.name)
def test_a_number_is_of_a_method_that_has_a_title(paper) -> None:
    methods = {cell.method for each in paper.experiments for cell in paper.published(each)}
    assert methods - paper.methods.keys() <= {"wang-iterative"}  # whose method is not ours to run


CARD = """
from tolerant.experiment.papers import Experiment, Paper

PAPER = Paper(
    __name__,
    title="Focal Loss on Digits",
    experiments=(Experiment("table1", "Table 1", rule="last_epoch"),),
    methods={"focal": "Focal"},
    choices={"width": "Not stated; 8."},
    computed=("sums",),
)
"""
GRIDS = """
from dataclasses import replace
from tolerant.experiment import RunSpec
from tolerant.train import Recipe

RECIPE = Recipe(epochs=1, batch_size=64, lr=0.5, augment="none", precision="fp32")

def table1(seeds):
    run = RunSpec(dataset="digits", model="mlp", loss="focal", noise="uniform", noise_rate=0.2)
    return [replace(run, recipe=replace(RECIPE, seed=seed)) for seed in seeds]
"""
PUBLISHED = """
{"table1": {"runs": 3, "cells": [
    {"dataset": "digits", "noise": "uniform", "rate": 0.2, "method": "focal", "mean": 12.3, "std": 0.5}
]}}
"""
COMMANDS = """
from tolerant.experiment import papers
papers.__path__.append("papers")
from typer.testing import CliRunner
from tolerant.cli import make_app
for words in (
    ["reproduce", "toy2020-table1", "--dry-run"],
    ["reproduce", "toy2020-table1"],
    ["report", "toy2020-table1"],
    ["reproduce", "toy2020-sums"],
    ["reproduce", "digits", "--dry-run", "--loss", "mae", "--rate", "0.2"],
):
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    print(done.output)
"""


def test_a_second_paper_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Card, grid, numbers: reproduced and reported beside the paper's, under a name of its own."""
    folder = tmp_path / "papers" / "toy2020"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(CARD)
    (folder / "grids.py").write_text(GRIDS)
    (folder / "published.json").write_text(PUBLISHED)
    (folder / "sums.py").write_text("def tables():\n    return 'two and two are four'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    done = forked(without_modules(COMMANDS))
    assert done.returncode == 0, done.stderr
    assert "- width: Not stated; 8." in done.stdout
    assert "1 of 1 runs are stored in results" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "12.30 ± 0.50" in line]
    assert line.split("|")[4].strip() == "Focal"
    assert "two and two are four" in done.stdout
    assert done.stdout.count("Not stated") == 1  # not of the digits, which are another card's
    assert [path.name for path in (tmp_path / "results").glob("*.jsonl")] == ["toy2020-table1.jsonl"]
