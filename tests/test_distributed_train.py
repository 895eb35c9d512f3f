"""One run over two ranks is the run of one process: on the CPU, with gloo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from forked import forked_ranks
from torch import nn
from train_helpers import pictures, quick, table

from tolerant.train import Callback, PruneSchedule, join_ranks, train
from tolerant.train.engine import ranks as distributed
from tolerant.train.engine.capture import split_batches
from tolerant.train.engine.ranks import Ranks, current_ranks


class Net(nn.Module):
    """Convolutions without batch norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 4)
        )

    def forward(self, x):
        return self.layers(x)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


PRUNE = PruneSchedule(start_epoch=2, every=1, k=0.3)
# 297 training rows: batches of 64 and a last one of 41, cut into 21 and 20.
CASES: dict[str, dict[str, Any]] = {
    "table": {"dataset": table(), "model": mlp(), "loss": "lq", "prune": PRUNE,
              "recipe": quick(lr=0.3, epochs=4)},
    "pictures": {"dataset": pictures(), "model": Net(), "loss": "cce", "recipe": quick(lr=0.02)},
    "weighed": {"dataset": table(), "model": mlp(), "loss": "lq", "prune": PRUNE,
                "recipe": quick(prune_by="weight", optimizer="adam", lr=0.03, epochs=4)},
    "odd": {"dataset": table(298), "model": mlp(), "loss": "lq", "recipe": quick(batch_size=51)},
    # 6 x 49 and 3: a rank has two rows of the last batch, the other one.
    "three": {"dataset": table(), "model": mlp(), "loss": "lq", "recipe": quick(batch_size=49)},
}  # fmt: skip


class Told(Callback):
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_epoch_end(self, job, record):
        self.epochs.append(record["epoch"])


def run(case: str, folder: Path | None = None) -> dict[str, Any]:
    told = Told()
    options = {"test": table(100, seed=1)} | CASES[case]
    if case == "pictures":
        options["test"] = pictures(100, seed=1)
    result = train(**options, callbacks=[told], device="cpu", progress="quiet", checkpoint=folder)
    return {
        "weights": torch.cat([p.detach().flatten() for p in result.model.parameters()]).tolist(),
        "history": result.history,
        "kept": result.kept.tolist(),
        "epoch": result.epoch,
        "told": told.epochs,
    }


def rank(number: int, port: int, folder: str) -> None:
    env = {
        "RANK": number,
        "LOCAL_RANK": number,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    os.environ.update({name: str(value) for name, value in env.items()})
    torch.set_num_threads(1)
    with join_ranks() as ranks:
        assert ranks == Ranks(number, 2)
        found = {case: run(case, Path(folder) / case) for case in CASES}
        found["stopped"] = run("table", Path(folder) / "stopped")
        try:  # as on machines that do not share their disks
            run("table", Path(folder) / "table" if number == 0 else Path(folder) / "elsewhere")
        except ValueError as error:
            found["apart"] = {"refused": str(error)}
    assert current_ranks() == Ranks(0, 1)
    (Path(folder) / f"{number}.json").write_text(json.dumps(found))


class Stopped(nn.Linear):
    """Ctrl-C in the third of the second epoch's five steps."""

    steps = 0

    def forward(self, x):
        self.steps += self.training
        if self.steps == 8:
            signal.raise_signal(signal.SIGINT)
        return super().forward(x)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CASES["table"]["model"][2], "__class__", Stopped)
        with pytest.raises(KeyboardInterrupt):
            run("table", folder / "stopped")
    # As torchrun does: a port found free and closed again may be another's when rank 0 opens it.
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    mp.start_processes(rank, (store.port, str(folder)), nprocs=2, start_method="fork")
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(2)]


def assert_same_run(found: dict[str, Any], alone: dict[str, Any]) -> None:
    np.testing.assert_allclose(found["weights"], alone["weights"], atol=1e-5)
    assert found["kept"] == alone["kept"]
    assert found["epoch"] == alone["epoch"]
    for record, expected in zip(found["history"], alone["history"], strict=True):
        assert record.keys() == expected.keys()
        for name in record.keys() - {"time_s", "images_per_s"}:
            assert record[name] == pytest.approx(expected[name], abs=1e-5), name


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_are_one_process(ranks, case):
    alone = run(case)
    for found in (ranks[0][case], ranks[1][case]):
        assert_same_run(found, alone)
    assert ranks[0][case]["weights"] == ranks[1][case]["weights"]
    assert ranks[0][case]["told"] == alone["told"] == list(range(len(alone["history"])))
    assert ranks[1][case]["told"] == []
    assert all(alone["kept"]) == ("prune" not in CASES[case])


def test_two_ranks_go_on_in_the_epoch_in_which_one_process_was_stopped(ranks):
    alone = run("table")
    for found in (ranks[0]["stopped"], ranks[1]["stopped"]):
        assert_same_run(found, alone)
    assert ranks[0]["stopped"]["told"] == [1, 2, 3]


def test_a_checkpoint_that_one_rank_does_not_see_is_refused(ranks):
    assert "apart" not in ranks[0]
    assert "checkpoint must be a folder that all ranks see" in ranks[1]["apart"]["refused"]


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    for name, value in (("is_available", True), ("device_count", 1), ("current_device", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    with (
        pytest.raises(ValueError, match=r"at most one rank per GPU.*Lower --nproc"),
        join_ranks(),
    ):
        pass


class Killed(nn.Linear):
    """Ends rank 1 within the third epoch, the first time."""

    steps = 0

    def forward(self, x):
        self.steps += self.training
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if self.steps == 13 and (os.environ["RANK"], restarts) == ("1", "0"):
            os._exit(9)
        return super().forward(x)


def run_until_killed(folder: str) -> None:
    CASES["table"]["model"][2].__class__ = Killed
    with join_ranks("cpu") as ranks:
        found = run("table", Path(folder) / "run")
        if ranks.rank == 0:
            (Path(folder) / "found.json").write_text(json.dumps(found))


def assert_no_row_is_lost(found: dict[str, Any]) -> None:
    # The checkpoint is written beside the training: the last one may have been lost with rank 0.
    assert found["told"] in ([2, 3], [1, 2, 3])
    assert_same_run(found, run("table"))


def test_after_a_killed_rank_one_process_goes_on_alone(tmp_path):
    left, killed = forked_ranks(2, lambda: run_until_killed(str(tmp_path)))
    assert killed.returncode == 9
    assert left.returncode != 0
    assert_no_row_is_lost(run("table", tmp_path / "run"))


def test_torchrun_starts_a_killed_rank_again(tmp_path):
    """Both ranks, which go on from the last whole epoch to the same weights."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    code += f"import test_distributed_train; test_distributed_train.run_until_killed({str(tmp_path)!r})"
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               "--max-restarts=1", "--monitor-interval=0.1", str(tmp_path / "script.py")]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert_no_row_is_lost(json.loads((tmp_path / "found.json").read_text()))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("whole", [1, 2, 6, 64, 65])
def test_shares_make_up_the_batch(size, whole):
    index = torch.arange(whole) + 100
    ranks = [Ranks(number, size) for number in range(size)]
    shares = [r.share(index) for r in ranks if r.fraction(whole)]
    assert sorted(torch.cat(shares).tolist()) == index.tolist()
    assert sum(r.fraction(whole) for r in ranks) == pytest.approx(1)
    assert all(len(r.share(index)) for r in ranks)  # a rank without rows still takes part in a step
    two = torch.cat([index, index + whole])
    for r in ranks:
        order, step = r.share_batches(two, whole)
        if step:
            assert [part.tolist() for part in order.split(step)] == [
                r.share(index).tolist(),
                (r.share(index) + whole).tolist(),
            ]


def test_running_statistics_are_averaged_over_ranks(monkeypatch):
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda sums: sums.add_(3.0))  # the other rank's are 3
    norm = nn.BatchNorm1d(2)
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(5.0)
    Ranks(0, 2).average_statistics(norm.buffers())
    assert (norm.running_mean.tolist(), norm.running_var.tolist()) == ([2.0, 2.0], [4.0, 4.0])
    assert norm.num_batches_tracked == 0


def test_last_batch_has_two_rows_a_rank():
    assert split_batches(67, 32, ranks=2) == (1, 35)
    assert split_batches(68, 32, ranks=2) == (2, 4)
    assert split_batches(3, 32, ranks=2) == (0, 3)
