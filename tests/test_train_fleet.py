"""Several runs by one thread: the same results as one by one, whatever happens to the others."""

from __future__ import annotations

import io
import os
import signal
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from train_helpers import quick, table

from tolerant.train import Callback, DivergedError, Fleet, Job, PruneSchedule, TrainResult, train
from tolerant.train.engine import fleet
from tolerant.train.engine.capture import split_batches
from tolerant.train.engine.display import Display
from tolerant.train.engine.ranks import Ranks


def job(seed: int = 0, **changes) -> Job:
    values = {"model": "mlp", "loss": "lq", "recipe": quick(seed=seed, dropout=0.2)}
    return Job(dataset=table(), prune=PruneSchedule(2, 1, 0.2), **{**values, **changes})


def alone(one: Job) -> TrainResult:
    return train(
        one.dataset,
        model=one.model,
        loss=one.loss,
        recipe=one.recipe,
        prune=one.prune,
        device="cpu",
        progress="quiet",
    )


def same(a: TrainResult, b: TrainResult) -> bool:
    theirs = b.model.state_dict()
    return all(torch.equal(t, theirs[n]) for n, t in a.model.state_dict().items())


@pytest.mark.parametrize("side_by_side", [1, 3, 8])
def test_side_by_side_gives_what_each_gives_alone(side_by_side):
    """Dropout too: interleaved runs must not eat each other's random numbers."""
    jobs = [job(seed) for seed in range(4)]
    heard = []
    fleet = Fleet(side_by_side=side_by_side, device="cpu", progress="quiet")
    results = fleet.run(iter(jobs), on_result=lambda index, result: heard.append((index, result)))
    assert all(same(result, alone(one)) for result, one in zip(results, jobs, strict=True))
    assert sorted(index for index, _ in heard) == [0, 1, 2, 3]
    assert all(results[index] is result for index, result in heard)


def _functional(seed: int) -> torch.nn.Module:
    """A network whose dropout does not show among its modules."""

    class Net(torch.nn.Linear):
        def forward(self, x):
            return super().forward(torch.nn.functional.dropout(x, 0.2, self.training))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net(table().inputs.shape[1], table().num_classes)


@pytest.mark.parametrize("kind", ["plain", "dropout", "a module"])
def test_threads_give_what_each_gives_alone(kind):
    """As under joblib's threads. All draw from the one generator that torch has."""
    recipe = quick(dropout=0.2 if kind == "dropout" else 0.0)
    jobs = [
        job(model=_functional(seed) if kind == "a module" else "mlp", recipe=replace(recipe, seed=seed))
        for seed in range(4)
    ]
    before = torch.random.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            results = pool.map(alone, jobs)
            assert [same(result, alone(one)) for result, one in zip(results, jobs, strict=True)] == [True] * 4
    assert torch.equal(torch.random.get_rng_state(), before)


def test_at_most_so_many_run_at_once():
    running, most = set(), []

    class Count(Callback):
        def on_start(self, job, record):
            running.add(job.name)
            most.append(len(running))

        def on_end(self, job, result):
            running.remove(job.name)

    jobs = [job(name=str(n), callbacks=[Count()]) for n in range(5)]
    Fleet(side_by_side=2, device="cpu", progress="quiet").run(jobs)
    assert max(most) == 2


def test_one_that_fails_stops_no_other():
    jobs = [
        job(),
        job(loss="cce", recipe=quick(lr=1e18)),
        job(model="resnet18"),
        job(seed=1),
    ]
    first, diverged, refused, last = Fleet(side_by_side=4, device="cpu", progress="quiet").run(jobs)
    assert same(first, alone(jobs[0]))
    assert isinstance(diverged, DivergedError)
    assert isinstance(refused, ValueError)
    assert same(last, alone(jobs[3]))


@pytest.mark.parametrize("bad", [{"model": "resnet18"}, {"loss": "cce", "recipe": quick(lr=1e18)}])
def test_over_several_ranks_one_that_fails_ends_all(monkeypatch, bad):
    """The other ranks may be in the midst of it, and would average its gradients with the next job's."""
    monkeypatch.setattr(fleet, "current_ranks", lambda: Ranks(0, 2))
    ended = []
    with pytest.raises((ValueError, DivergedError)):
        Fleet(device="cpu", progress="quiet").run(
            [job(), job(**bad), job(seed=1)], lambda *one: ended.append(one)
        )
    assert [index for index, _ in ended] == [0]


def test_ctrl_c_saves_all_and_the_same_call_goes_on(tmp_path):
    class Interrupt(Callback):
        fired = False

        def on_epoch_end(self, job, record):
            if record["epoch"] == 1 and not Interrupt.fired:
                Interrupt.fired = True
                os.kill(os.getpid(), signal.SIGINT)

    jobs = [job(seed, checkpoint=tmp_path / str(seed), callbacks=[Interrupt()]) for seed in range(3)]
    fleet = Fleet(side_by_side=2, device="cpu", progress="quiet")
    with pytest.raises(KeyboardInterrupt):
        fleet.run(jobs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    results = fleet.run(jobs)
    assert all(same(result, alone(one)) for result, one in zip(results, jobs, strict=True))


def test_two_runs_with_one_checkpoint_folder_do_not_write_over_each_other(tmp_path):
    jobs = [job(seed, checkpoint=tmp_path) for seed in (0, 1)]
    first, second = Fleet(side_by_side=2, device="cpu", progress="quiet").run(jobs)
    assert same(first, alone(jobs[0]))
    with pytest.raises(ValueError, match=r"in use: another run of this process .* a folder of its own"):
        raise second
    with pytest.raises(ValueError, match="belongs to another run"):  # once the first has ended, as ever
        Fleet(device="cpu", progress="quiet").run_one(jobs[1])


def test_runs_cut_short_by_an_error_leave_their_folders(tmp_path):
    def on_result(index: int, result: TrainResult | Exception) -> None:
        raise OSError("no row can be stored")

    jobs = [job(recipe=quick(epochs=epochs), checkpoint=tmp_path / str(epochs)) for epochs in (1, 3)]
    with pytest.raises(OSError, match="no row can be stored") as kept:
        Fleet(side_by_side=2, device="cpu", progress="quiet").run(jobs, on_result)
    assert kept.value.__traceback__ is not None, "which holds the runs"
    assert isinstance(Fleet(device="cpu", progress="quiet").run_one(jobs[1]), TrainResult)


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_memory_of_ended_and_failed_runs_is_there_for_the_next(side_by_side, monkeypatch):
    """A run is its rows, weights and graph on the device; an error kept as a result must not keep them."""
    runs, alive = [], []

    class Watched(fleet.Run):
        def __init__(self, *args, **kwargs):
            alive.append(sum(run() is not None for run in runs))
            super().__init__(*args, **kwargs)
            runs.append(weakref.ref(self))

    class Fail(Callback):
        def on_epoch_end(self, job, record):
            try:
                raise OSError("disk")
            except OSError as error:
                raise ValueError("stop") from error

    monkeypatch.setattr(fleet, "Run", Watched)
    jobs = [job(callbacks=[Fail()]) if seed in (0, 3) else job(seed) for seed in range(5)]
    results = Fleet(side_by_side=side_by_side, device="cpu", progress="quiet").run(jobs)
    assert [type(result) for result in results] == [
        ValueError, TrainResult, TrainResult, ValueError, TrainResult
    ]  # fmt: skip
    assert max(alive) == side_by_side - 1


def test_memory_of_a_failed_run_is_there_for_those_beside_it(monkeypatch):
    """Also when no other is waiting to start."""
    runs, alive = [], []

    class Watched(fleet.Run):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            runs.append(weakref.ref(self))

    class Fail(Callback):
        def on_epoch_end(self, job, record):
            raise ValueError("stop")

    class Look(Callback):
        def on_epoch_end(self, job, record):
            alive.append(runs[0]() is not None)

    monkeypatch.setattr(fleet, "Run", Watched)
    jobs = [job(callbacks=[Fail()]), job(1, callbacks=[Look()])]
    failed, _ = Fleet(side_by_side=2, device="cpu", progress="quiet").run(jobs)
    assert isinstance(failed, ValueError)
    assert not alive[-1]


def test_refusals():
    with pytest.raises(ValueError, match="side_by_side must be a whole number of at least 1; got 0"):
        Fleet(side_by_side=0)
    with pytest.raises(ValueError, match="progress must be 'auto', 'bar', 'lines' or 'quiet'"):
        Display("loud")


@pytest.mark.parametrize("size", [2, 3, 64])
@pytest.mark.parametrize("num_rows", [*range(2, 12), 127, 128, 129, 130, 193])
def test_every_row_is_in_one_batch_and_none_is_alone(num_rows, size):
    full, last = split_batches(num_rows, size)
    assert full * size + last == num_rows
    assert last != 1
    assert last <= size + 1


def test_one_line_a_run_where_no_one_watches(capsys, monkeypatch):
    Fleet(side_by_side=1, device="cpu").run([job(name="one"), job(1, name="two")])
    lines = capsys.readouterr().err.splitlines()
    assert [line[:14] for line in lines] == ["one: epoch 3/3", "two: epoch 3/3"]
    monkeypatch.setattr("tolerant.train.engine.display._FIRST_LINE_S", 0.0)  # of a run of a minute
    Fleet(side_by_side=1, device="cpu").run([job(name="one")])
    assert [line[:14] for line in capsys.readouterr().err.splitlines()] == [
        "one: epoch 1/3",
        "one: epoch 3/3",
    ]
    monkeypatch.setattr("tolerant.train.engine.display._LINE_S", 0.0)  # of minutes
    Fleet(side_by_side=1, device="cpu").run([job(name="one")])
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_one_line_an_epoch_where_asked_for(capsys):
    Fleet(side_by_side=1, device="cpu", progress="lines").run([job(name="digits lq")])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("digits lq: epoch 1/3  loss ")
    assert "kept" in lines[2]
    assert "rows/s" in lines[2]
    Fleet(side_by_side=1, device="cpu", progress="quiet").run([job()])
    assert capsys.readouterr().err == ""


def test_bars_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    jobs = [job(seed, name=f"seed {seed}") for seed in range(2)]
    Fleet(side_by_side=2, device="cpu").run(jobs)
    shown = screen.getvalue()
    assert "seed 0" in shown
    assert "seed 1" in shown
    assert "epoch 3/3" in shown
    assert "kept" in shown


@pytest.mark.parametrize(("columns", "shown"), [("80", "val "), ("140", "validation ")])
def test_a_bar_is_not_cut_off(columns, shown, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    job = Job(dataset=table(), model="mlp", loss="lq", recipe=quick(), test=table(), name="truncated L_q")
    Fleet(side_by_side=1, device="cpu", progress="bar").run([job])
    said = capsys.readouterr().err
    assert shown in said
    assert "truncated L_q" in said
    assert "…" not in said
