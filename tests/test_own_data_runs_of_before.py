"""Run folders that an earlier version wrote: `predict` and `audit` read them, and say what that version said.

Each folder of `runs_of_before` has the rows, the run that 0.1.0 trained on them (without its page), the
labels it predicted (predictions.csv) and the data of its page (page.json).
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from own_data_helpers import read, tolerant

from tolerant.own_data.run_folder import load

RUNS = Path(__file__).parent / "runs_of_before"


@pytest.fixture(params=["table", "texts", "pictures"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The working folder is a copy of that kind's: its spec names the rows by their file's name alone."""
    shutil.copytree(RUNS / request.param, tmp_path / request.param)
    monkeypatch.chdir(tmp_path / request.param)
    return request.param


def test_it_predicts_what_it_predicted(kind: str) -> None:
    before = read(Path("predictions.csv"))
    options = ("--id", "name") if kind == "table" else ()
    rows = "rows.npz" if kind == "pictures" else "rows.csv"
    tolerant("predict", "run", rows, *options, "--out", "again.csv")
    again = read(Path("again.csv"))
    assert [(row["id"], row["label"]) for row in again] == [(row["id"], row["label"]) for row in before]
    for row, old in zip(again, before, strict=True):
        assert float(row["confidence"]) == pytest.approx(float(old["confidence"]), abs=1e-3)


def test_its_list_and_its_page_are_what_they_were(kind: str) -> None:
    before = read(Path("run/suspects.csv"))
    tolerant("audit", "run")
    again = read(Path("run/suspects.csv"))
    for row in (*again, *before):
        row.pop("p_right")  # which has since been moved, all by one number, to tell as many as the noise rate
    assert again == before
    page = Path("run/report.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    # With it the key under which a browser keeps the decisions made on the page of before.
    now, before = json.loads(data), json.loads(Path("page.json").read_text())
    assert {name: now[name] for name in before} == before  # and why, which those pages did not say


def test_its_list_is_drawn_by_the_seed_that_it_was_trained_with(kind: str, monkeypatch) -> None:
    """Which those runs have in their recipe alone."""
    path = Path("run/spec.json")
    spec = json.loads(path.read_text())
    assert "seed" not in spec
    spec["recipe"]["seed"] = 7
    path.write_text(json.dumps(spec))
    seeds, find = [], load.find_doubts

    def spy(*given, seed, **options):
        seeds.append(seed)
        return find(*given, seed=seed, **options)

    monkeypatch.setattr(load, "find_doubts", spy)
    run = load.load_run("run")
    run.suspects(run.load_rows())
    assert seeds == [7]
