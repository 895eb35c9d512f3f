"""A grid on a real Ray of two workers: the rows of the local engine, once each, past a killed worker."""

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

import pytest
from test_experiment_run import lasting

from tolerant.experiment import Cluster, Store, changed, named_grid, part, run
from tolerant.experiment.engines.ray import _check_room

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")
# Ray in a process of its own: it warns of its own doings, and warnings are errors here.
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}
ENV.pop("RAY_ADDRESS", None)
# Two workers on any machine: Ray counts the cores that a container may use, and Python all there are.
ENV["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": 2})
EPOCHS = 24


@needs_ray
def test_rows_are_those_of_the_local_engine_past_a_killed_worker(tmp_path: Path) -> None:
    quick = "from tolerant.experiment import time_left; time_left.HEARTBEAT_S = 0"
    code = f"{quick}; from tolerant.cli import main; main()"
    words = ["reproduce", "digits", "--engine", "ray", "--cpus", "1", "--device", "cpu", "--rate", "0.4"]
    words += ["--epochs", str(EPOCHS), "--results", str(tmp_path / "ray")]
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

    specs = part(named_grid("digits"), noise_rate=[0.4])
    specs = [changed(spec, {"epochs": EPOCHS}) for spec in specs]
    local = run(specs, results=tmp_path / "local", checkpoints=tmp_path / "local-runs", device="cpu")
    assert len(local.rows) == 5
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


@needs_ray
def test_own_ray_shares_of_a_gpu_and_a_failed_run(tmp_path: Path) -> None:
    """The GPU is one that Ray is told of; half of it is asked for, and the training is on the CPU."""
    script = tmp_path / "script.py"
    script.write_text(f"""
import json
from dataclasses import replace
import ray
from tolerant.experiment import Cluster, changed, named_grid, part, run

ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, object_store_memory=100 << 20)
good = changed(part(named_grid("digits"), method=["lq"], noise_rate=[0.2])[0], {{"epochs": 2}})
bad, greedy = replace(good, dataset="digit"), replace(good, model="resnet34", model_args={{}})
folders = {{"results": {str(tmp_path / "rows")!r}, "checkpoints": {str(tmp_path / "runs")!r}}}
report = run([bad, good], device="cpu", cluster=Cluster(gpus=0.5), **folders)
try:
    run([greedy], device="cuda", cluster=Cluster(gpus=0), **folders)
except ValueError as error:
    refused = str(error)
found = {{"rows": report.rows, "failed": [outcome.text for outcome in report.failed], "refused": refused}}
found |= {{"bad": bad.key, "good": good.key, "still": ray.is_initialized()}}
open({str(tmp_path / "found.json")!r}, "w").write(json.dumps(found))
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    (row,) = found["rows"]
    assert (row["key"], row["side_by_side"]) == (found["good"], 2)
    assert row["device_s"] == pytest.approx(row["time_s"] / 2, abs=0.02)
    assert len(found["failed"]) == 1
    assert "digit" in found["failed"][0]
    assert "Traceback" in (tmp_path / "runs" / found["bad"] / "error.txt").read_text()
    assert "needs gpus above 0" in found["refused"]
    assert found["still"]


def test_more_than_the_machine_has_is_refused() -> None:
    _check_room({"CPU": 2.0}, Cluster(cpus=2.0))
    with pytest.raises(ValueError, match="cpus must be at most the 2 of this machine; got 3"):
        _check_room({"CPU": 2.0}, Cluster(cpus=3.0))
    with pytest.raises(ValueError, match="gpus must be at most the 0 of this machine"):
        _check_room({"CPU": 2.0}, Cluster(gpus=0.5))
    with pytest.raises(ValueError, match="0 or more"):
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
