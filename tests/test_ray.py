"""A real Ray of two workers: grids and features are those of this machine, past a killed worker.

Ray starts twice: once as `tolerant` starts and ends it, once as somebody has started it before.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_experiment_run import lasting
from typer.testing import CliRunner

from tolerant.cli import make_app
from tolerant.data import features
from tolerant.data.features.cache import FeatureCache
from tolerant.experiment import Cluster, Store, changed, named_grid, part, run
from tolerant.experiment.engines.ray import _check_room

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")
# Ray in a process of its own: it warns of its own doings, and warnings are errors here.
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}
ENV.pop("RAY_ADDRESS", None)
# Two workers on any machine: Ray counts the cores that a container may use, and Python all there are.
ENV["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": 2})
EPOCHS, METHODS = 24, ["lq", "truncated-lq"]
TEXTS = [f"{'a red car' if number % 2 else 'two grey cats'} {number}" for number in range(70)]


@needs_ray
def test_rows_are_those_of_the_local_engine_past_a_killed_worker(tmp_path: Path) -> None:
    quick = "from tolerant.experiment import time_left; time_left.HEARTBEAT_S = 0"
    code = f"{quick}; from tolerant.cli import main; main()"
    words = ["reproduce", "digits", "--engine", "ray", "--cpus", "1", "--device", "cpu", "--rate", "0.4"]
    words += ["--loss", ",".join(METHODS), "--epochs", str(EPOCHS), "--results", str(tmp_path / "ray")]
    words += ["--checkpoints", str(tmp_path / "runs")]
    log = tmp_path / "log"
    with log.open("w") as file:
        driver = subprocess.Popen([sys.executable, "-c", code, *words], env=ENV, stdout=file, stderr=file)
    killed, deadline = None, time.monotonic() + 600
    try:
        while driver.poll() is None:
            assert time.monotonic() < deadline, log.read_text()
            if killed is None and list((tmp_path / "runs").glob("*/checkpoint.json")):
                for pid in workers(driver.pid)[:1]:  # a run is under way, past its first epochs
                    with suppress(ProcessLookupError):  # it has just ended
                        os.kill(pid, signal.SIGKILL)
                        killed = pid
            time.sleep(0.02)
    finally:
        driver.terminate()
        driver.wait()
    said = log.read_text()
    assert driver.returncode == 0, said
    assert killed is not None

    specs = part(named_grid("digits"), noise_rate=[0.4], method=METHODS)
    specs = [changed(spec, {"epochs": EPOCHS}) for spec in specs]
    local = run(specs, results=tmp_path / "local", checkpoints=tmp_path / "local-runs", device="cpu")
    assert len(local.rows) == len(METHODS)
    stores = Store(tmp_path / "local"), Store(tmp_path / "ray")
    lines = (tmp_path / "ray" / "digits.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["key"] for line in lines) == sorted(spec.key for spec in specs)
    rows, on_ray = ({row["key"]: row for row in store.rows()} for store in stores)
    for key in rows:
        assert lasting(on_ray[key]) == lasting(rows[key])
        assert stores[1].history(on_ray[key]) == stores[0].history(rows[key])
    assert not list((tmp_path / "runs").iterdir())
    # Between the lines of finished runs: epochs, as the workers told of them.
    assert any("runs, about" in line and "·" not in line for line in said.splitlines()), said


IN_OWN_RAY = """
import json, sys
from dataclasses import replace
from pathlib import Path

import ray
from tolerant.cli import make_app
from tolerant.experiment import Cluster, changed, named_grid, part, run

folder = Path(sys.argv[1])
ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, object_store_memory=100 << 20)
good = changed(part(named_grid("digits"), method=["lq"], noise_rate=[0.2])[0], {"epochs": 2})
bad, greedy = replace(good, dataset="digit"), replace(good, model="resnet34", model_args={})
folders = {"results": folder / "rows", "checkpoints": folder / "runs"}
report = run([bad, good], device="cpu", cluster=Cluster(gpus=0.5), **folders)
try:
    run([greedy], device="cuda", cluster=Cluster(gpus=0), **folders)
except ValueError as error:
    refused = str(error)
ray.cluster_resources = lambda: {"CPU": 2.0}  # the GPU is one in words alone
make_app()(["train", str(folder / "texts.csv"), *sys.argv[2:], "--engine", "ray"], standalone_mode=False)
found = {"rows": report.rows, "failed": [outcome.text for outcome in report.failed], "refused": refused}
found |= {"bad": bad.key, "good": good.key, "still": ray.is_initialized()}
(folder / "found.json").write_text(json.dumps(found))
"""


@needs_ray
def test_in_a_ray_of_ones_own_shares_of_a_gpu_a_failed_run_and_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is one that Ray is told of; half of it is asked for, and the training is on the CPU."""
    lines = [f"{text},{number % 2}" for number, text in enumerate(TEXTS)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    words = ["--features", "wordllama", "--epochs", "1", "--folds", "0", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", IN_OWN_RAY, str(tmp_path), *words],
        env=ENV | {"TOLERANT_CACHE": str(tmp_path / "ray")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["still"]
    check_the_grid(found, tmp_path)
    check_the_features(tmp_path, monkeypatch)


def check_the_grid(found: dict[str, Any], folder: Path) -> None:
    (row,) = found["rows"]
    assert (row["key"], row["side_by_side"]) == (found["good"], 2)
    assert row["device_s"] == pytest.approx(row["time_s"] / 2, abs=0.02)
    assert len(found["failed"]) == 1
    assert "digit" in found["failed"][0]
    assert "Traceback" in (folder / "runs" / found["bad"] / "error.txt").read_text()
    assert "needs gpus above 0" in found["refused"]


def check_the_features(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is that of this process."""
    extractor = features.load_extractor("wordllama", "text")
    monkeypatch.setenv("TOLERANT_CACHE", str(folder / "here"))
    here = features.extract(np.array(TEXTS, object), extractor)
    cache = FeatureCache(folder / "ray", extractor.identity, views=1, dim=256)
    places = cache.find(here.digests)
    assert (places >= 0).all()
    np.testing.assert_array_equal(cache.rows()[places], here.views(np.arange(len(here))))


def test_what_has_no_features_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,label\n" + "\n".join(f"{n},{n % 2}" for n in range(60)))
    train = ["train", str(tmp_path / "table.csv"), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(make_app(), [*train, "--engine", "ray"])
    assert "these rows are trained on without" in str(done.exception)
    done = CliRunner().invoke(make_app(), [*train, "--address", "x"])
    assert done.exit_code == 2
    assert "add --engine ray" in " ".join(done.output.split())


def test_more_than_the_machine_has_is_refused() -> None:
    _check_room({"CPU": 2.0}, Cluster(cpus=2.0))
    with pytest.raises(ValueError, match="cpus must be at most the 2 of this machine; got 3"):
        _check_room({"CPU": 2.0}, Cluster(cpus=3.0))
    with pytest.raises(ValueError, match="gpus must be at most the 0 of this machine"):
        _check_room({"CPU": 2.0}, Cluster(gpus=0.5))
    with pytest.raises(ValueError, match="must be a finite number of at least 0"):
        Cluster(gpus=-1.0)


def workers(driver: int) -> list[int]:
    """Processes of the driver's Ray that are training: Ray names them after their task."""
    parents, training = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::_train"):
                training.append(int(folder.name))
    return [pid for pid in training if parents.get(parents[pid]) == driver]
