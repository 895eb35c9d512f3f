"""A run cannot be lost: killed for real, interrupted, out of disk, and gone on from to the same bits."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import forked
from safetensors.torch import load_file
from torch import nn
from train_helpers import quick, table

import tolerant.files
from tolerant.data import NoisyDataset
from tolerant.losses import make_loss
from tolerant.noise import symmetric
from tolerant.threads import one_thread
from tolerant.train import Callback, PruneSchedule, TrainResult, train
from tolerant.train.engine.checkpoint import Checkpoints
from tolerant.train.engine.fleet import _Stop

RECIPE = quick(epochs=30, dropout=0.2, lr=0.05, milestones=(20,))
PRUNE = PruneSchedule(10, 5, 0.3)


def fit(**changes) -> TrainResult:
    arguments = {"model": "mlp", "loss": "lq", "recipe": RECIPE, "prune": PRUNE, "device": "cpu"}
    return train(table(), progress="quiet", test=table(50, 0.0, seed=1), **{**arguments, **changes})


@pytest.fixture(scope="module", autouse=True)
def as_many_threads_as_a_fork() -> Iterator[None]:
    """Others would round differently, and those of OpenMP are not in a fork, which then waits for them."""
    with one_thread():
        yield


@pytest.fixture(scope="module")
def uninterrupted() -> TrainResult:
    result = fit()
    assert 0 < result.epoch < 29
    assert not result.kept.all()
    return result


def assert_same(result: TrainResult, wanted: TrainResult) -> None:
    for name, tensor in wanted.model.state_dict().items():
        assert torch.equal(result.model.state_dict()[name], tensor), name
    assert result.epoch == wanted.epoch
    assert np.array_equal(result.kept, wanted.kept)
    assert np.array_equal(result.pruned_at, wanted.pruned_at)
    skip = ("images_per_s", "time_s")
    for ours, theirs in zip(result.history, wanted.history, strict=True):
        assert {k: v for k, v in ours.items() if k not in skip} == {
            k: v for k, v in theirs.items() if k not in skip
        }


def kill_until_it_ends(folder: Path, seed: int) -> None:
    waits = random.Random(seed)
    for epochs in (1, 30):  # the first is for what is imported late
        begun = time.perf_counter()
        fit(recipe=replace(RECIPE, epochs=epochs))
    whole = time.perf_counter() - begun
    for kills in range(200):
        child = os.fork()
        if child == 0:
            fit(checkpoint=folder)
            os._exit(0)
        # Longer and longer: early kills strike the first epochs (of the first three at most 0.36 of them),
        # and the last child gets through.
        time.sleep(waits.uniform(0.0, 0.06 * whole * (kills + 1)))
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != -signal.SIGKILL:  # done, or an error that says so at once
            print(kills)
            sys.exit(ended)


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path, uninterrupted):
    seed = int.from_bytes(os.urandom(4), "little")
    ran = forked(lambda: kill_until_it_ends(tmp_path, seed))
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) >= 3, f"too few kills with seed {seed}: {ran.stdout}"
    assert_same(fit(checkpoint=tmp_path), uninterrupted)
    names = sorted(path.name for path in tmp_path.iterdir())
    best = f"best-{uninterrupted.epoch:05d}.safetensors"
    assert names == [".checkpoint.lock", best, "checkpoint.json", "state-00030-0000000.safetensors"]


class Interrupting(nn.Module):
    """Sends a signal, such as Ctrl-C, to its own process in one forward pass."""

    calls = 0
    at = -1
    signal = signal.SIGINT

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 4))

    def forward(self, x):
        if self.training:
            type(self).calls += 1
            if self.calls == self.at:
                os.kill(os.getpid(), self.signal)
        return self.net(x)


@pytest.mark.parametrize("held_out", [0.1, 0.0], ids=["best-prunes", "current-prunes"])
def test_ctrl_c_saves_in_the_middle_of_an_epoch(tmp_path, held_out):
    """An epoch that pruning begins: without validation rows the model that pruned is no longer there."""
    torch.manual_seed(0)
    select = "validation" if held_out else "last"
    recipe = replace(RECIPE, lr=0.3, validation_fraction=held_out, select=select)
    run = {"model": Interrupting(), "recipe": recipe, "prune": PruneSchedule(10, 5, 0.5)}
    Interrupting.at = -1
    wanted = fit(**run)
    at = 10 * (5 if held_out else 6) + 2  # steps an epoch until pruning
    Interrupting.calls, Interrupting.at = 0, at
    with pytest.raises(KeyboardInterrupt):
        fit(**run, checkpoint=tmp_path, checkpoint_every=100)
    record = json.loads((tmp_path / "checkpoint.json").read_text())
    assert (record["epoch"], record["step"]) == (10, 2)
    assert Interrupting.calls == at
    assert_same(fit(**run, checkpoint=tmp_path, checkpoint_every=100), wanted)


def test_the_speed_of_a_resumed_epoch_is_that_of_the_rows_since(tmp_path, monkeypatch):
    monkeypatch.setattr("tolerant.train.engine.device.Clock.marked_s", lambda clock: 1.0)
    recipe = replace(RECIPE, epochs=2)
    run = {"model": Interrupting(), "recipe": recipe, "prune": None, "checkpoint": tmp_path}
    Interrupting.calls, Interrupting.at = 0, 5 + 2  # all batches of the first epoch, two of the second
    with pytest.raises(KeyboardInterrupt):
        fit(**run)
    whole, resumed = (record["images_per_s"] for record in fit(**run).history)
    assert whole - resumed == 2 * recipe.batch_size


def test_ctrl_c_without_a_folder_just_ends():
    before = signal.getsignal(signal.SIGINT)  # started in the background, a process ignores it
    Interrupting.calls, Interrupting.at = 0, 2
    with pytest.raises(KeyboardInterrupt):
        fit(model=Interrupting())
    assert Interrupting.calls == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_does_not_wait_for_the_step():
    stop = _Stop()
    with stop.on_signal():
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_what_a_scheduler_or_a_closed_terminal_sends_saves_and_then_ends(tmp_path, number):
    torch.manual_seed(0)
    model = Interrupting()
    Interrupting.at = -1
    wanted = fit(model=model)

    def work(before=signal.SIG_DFL):
        signal.signal(number, before)
        Interrupting.calls, Interrupting.at, Interrupting.signal = 0, 23, number
        fit(model=model, checkpoint=tmp_path, checkpoint_every=100)

    ended = forked(work)
    assert ended.returncode == -number, ended.stderr
    record = json.loads((tmp_path / "checkpoint.json").read_text())
    assert (record["epoch"], record["step"]) == (4, 3)
    assert_same(fit(model=model, checkpoint=tmp_path, checkpoint_every=100), wanted)
    for path in tmp_path.iterdir():
        path.unlink()
    assert forked(lambda: work(signal.SIG_IGN)).returncode == 0  # nohup
    heard = []

    def own_handler():  # which may go on for a while, as Slurm's users' do
        with suppress(KeyboardInterrupt):
            work(lambda *_: heard.append((tmp_path / "checkpoint.json").exists()))
        os._exit(7 if heard == [True] else 8)

    for path in tmp_path.iterdir():
        path.unlink()
    assert forked(own_handler).returncode == 7


class After(Callback):
    """Does something once, after one epoch."""

    def __init__(self, epoch, do):
        self.epoch, self.do = epoch, do

    def on_epoch_end(self, job, record):
        if record["epoch"] == self.epoch:
            self.do()


@pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only")])
def test_full_disk_ends_with_the_last_good_checkpoint(tmp_path, monkeypatch, uninterrupted, code, words):
    def fail(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        full = After(12, lambda: patch.setattr(tolerant.files.os, "fsync", fail))
        with pytest.raises(OSError, match=f"(?s){words}.*intact|{words}.*nothing was written"):
            fit(checkpoint=tmp_path, callbacks=[full])
    record = json.loads((tmp_path / "checkpoint.json").read_text())
    assert record["epoch"] in (12, 13)  # that of epoch 12 may still be on its way when the disk fills
    assert_same(fit(checkpoint=tmp_path), uninterrupted)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    heard = []
    with pytest.raises(OSError, match="cannot write"):
        fit(checkpoint=tmp_path / "file" / "run", callbacks=[After(0, lambda: heard.append(1))])
    assert not heard


def test_a_value_that_cannot_be_stored_is_refused_before_training(tmp_path):
    class Never(Callback):
        def on_start(self, job, record):
            pytest.fail("training began")

    with pytest.raises(TypeError, match="int64"):
        fit(model_args={"hidden": [np.int64(8)]}, checkpoint=tmp_path, callbacks=[Never()])


def test_a_finished_run_is_read_back_without_training(tmp_path, uninterrupted):
    fit(checkpoint=tmp_path)
    heard = []
    again = fit(checkpoint=tmp_path, callbacks=[After(29, lambda: heard.append(1))])
    assert not heard
    assert_same(again, uninterrupted)


def test_a_checkpoint_of_before_is_gone_on_from(tmp_path):
    """Written by version 0.1.0 after seven of ten epochs; losses have since been rounded differently."""
    folder = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "checkpoint_of_before", folder)
    stored = json.loads((folder / "checkpoint.json").read_text())
    best = load_file(folder / "best-00003.safetensors")
    job = {"recipe": quick(epochs=10, lr=0.3), "model_args": {"hidden": (8,)}}
    job["prune"] = PruneSchedule(4, 2, 0.3)
    gone_on, whole = fit(checkpoint=folder, **job), fit(**job)
    assert gone_on.history[:7] == stored["history"]
    assert gone_on.epoch == whole.epoch == 3
    assert all(torch.equal(tensor, best[name]) for name, tensor in gone_on.model.state_dict().items())
    assert np.array_equal(gone_on.kept, whole.kept)
    assert np.array_equal(gone_on.pruned_at, whole.pruned_at)
    assert not whole.kept.all()
    for record, expected in zip(gone_on.history[7:], whole.history[7:], strict=True):
        assert record["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-4)


def test_what_the_best_epoch_was_is_gone_on_from(tmp_path):
    """Where no epoch beats the most frequent label the loss chooses: that of the best one must be known."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(800, 4)).astype(np.float32)
    given = (rng.random(800) < 0.05 * np.exp(inputs[:, 0]) / np.exp(0.5)).astype(np.int64)
    data = NoisyDataset(inputs, given, None, ("often", "rare"))
    recipe = quick(epochs=6, lr=0.02, validation_fraction=0.25)
    job = {"model": "mlp", "loss": "cce", "recipe": recipe, "device": "cpu", "progress": "quiet"}
    whole = train(data, **job)
    assert whole.epoch > 2

    def stop():
        raise KeyError

    with pytest.raises(KeyError):
        train(data, **job, checkpoint=tmp_path, callbacks=[After(2, stop)])
    assert_same(train(data, **job, checkpoint=tmp_path), whole)


def test_checkpoint_of_another_run_is_refused(tmp_path):
    recipe = quick(epochs=1)
    fit(checkpoint=tmp_path, recipe=recipe)
    for changes, words in (
        ({"recipe": quick(epochs=1, lr=0.5)}, "recipe lr was 0.1 and is now 0.5"),
        ({"recipe": recipe, "prune": PruneSchedule(10, 5, 0.4)}, "prune k was 0.3 and is now 0.4"),
        ({"recipe": recipe, "loss": "cce"}, "loss was"),
        ({"recipe": recipe, "model_args": {"hidden": (8,)}}, "model_args hidden"),
    ):
        with pytest.raises(ValueError, match=words):
            fit(checkpoint=tmp_path, **changes)


def test_other_weights_transitions_or_validation_rows_are_another_run(tmp_path):
    recipe = quick(epochs=1)
    weighted = [make_loss("lq", weight=torch.tensor([1.0, 2.0, 3.0, w])) for w in (4.0, 5.0)]
    rows = [table(50, 0.0, seed=seed) for seed in (1, 2)]
    row_weights = [np.linspace(1, 2, len(table())), np.linspace(1, 3, len(table()))]
    transitions = [symmetric(4, rate) for rate in (0.2, 0.3)]
    for name, values in (
        ("loss", [*weighted, "lq"]),
        ("validation", [*rows, None]),
        ("sample_weight", [*row_weights, None]),
        ("transition", transitions),
    ):
        first, *others = ({name: value, "recipe": recipe} for value in values)
        fit(checkpoint=tmp_path / name, **first)
        for other in others:
            with pytest.raises(ValueError, match=f"another run: {name}"):
                fit(checkpoint=tmp_path / name, **other)
        fit(checkpoint=tmp_path / name, **first)


def test_weights_of_another_network_of_ones_own_are_refused(tmp_path):
    """Networks of one's own are told apart by their class alone; their weights then do not fit."""

    def network(*widths):
        return nn.Sequential(*[nn.Linear(*each) for each in pairwise((6, *widths, 4))])

    recipe = quick(epochs=1)
    fit(checkpoint=tmp_path, recipe=recipe, model=network(8))
    wider, longer = r"has shape \(8, 6\), the model's \(9, 6\)", "only one"
    for other, words in ((network(9), wider), (network(8, 4), longer)):
        with pytest.raises(ValueError, match=f"the stored .*{words}"):
            fit(checkpoint=tmp_path, recipe=recipe, model=other)


def test_damaged_checkpoints_are_named(tmp_path):
    recipe = quick(epochs=1)
    fit(checkpoint=tmp_path, recipe=recipe)
    state = next(tmp_path.glob("state-*"))
    whole = state.read_bytes()
    state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{state.name}.*cannot be read"):
        fit(checkpoint=tmp_path, recipe=recipe)
    (tmp_path / "checkpoint.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match=r"checkpoint\.json is not a checkpoint of this version"):
        fit(checkpoint=tmp_path, recipe=recipe)
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"checkpoint\.json is not a valid JSON.*Delete the folder to start anew"
    ):
        fit(checkpoint=tmp_path, recipe=recipe)


def test_checkpoint_every_few_epochs(tmp_path, uninterrupted):
    class Died(Exception):
        pass

    def die():
        raise Died

    with pytest.raises(Died):
        fit(checkpoint=tmp_path, checkpoint_every=4, callbacks=[After(13, die)])
    assert json.loads((tmp_path / "checkpoint.json").read_text())["epoch"] == 12
    assert_same(fit(checkpoint=tmp_path, checkpoint_every=4), uninterrupted)


def test_best_weights_on_disk_are_the_chosen_epochs(tmp_path, uninterrupted):
    fit(checkpoint=tmp_path)
    stored = load_file(tmp_path / f"best-{uninterrupted.epoch:05d}.safetensors")
    for name, tensor in uninterrupted.model.state_dict().items():
        assert torch.equal(stored[name], tensor)


def test_best_weights_are_written_once(tmp_path, monkeypatch):
    """Those of ResNet-34 are 85 MB; most epochs are not better than the best before."""
    written: list[str] = []
    write = tolerant.train.engine.checkpoint.write_atomic

    def note(path, data):
        written.append(path.name)
        write(path, data)

    monkeypatch.setattr("tolerant.train.engine.checkpoint.write_atomic", note)
    fit(checkpoint=tmp_path)
    best = [name for name in written if name.startswith("best-")]
    assert len(best) == len(set(best)) < 30


def test_only_its_own_files_are_cleared_away(tmp_path):
    own = [
        "state-00007-0000000.safetensors",
        "best-00003.safetensors",
        ".checkpoint.json.x_9",
    ]
    own += [".state-00008-0000000.safetensors.k3j2", ".best-00008.safetensors.0f"]
    users = [
        "best-practices.md",
        "state-of-the-art.csv",
        "best-00003.safetensors.bak",
        ".state-notes",
        "best-model.safetensors",
    ]
    kept = {*users, "checkpoint.json", "state-00009-0000000.safetensors", ".checkpoint.lock"}

    def names() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    def leave_behind() -> None:
        for name in own + users:
            (tmp_path / name).write_text("")

    leave_behind()
    checkpoints = Checkpoints(tmp_path, {})
    record = {"epoch": 9, "step": 0, "best_epoch": 0, "loss_sum": 0.0, "time_s": 0.0, "history": []}
    checkpoints.save(record, {"w": torch.ones(1)}, None)
    checkpoints.close()
    assert names() == kept
    # Killed before it could clear away: the next one to read does, but none of the other ranks.
    leave_behind()
    other_rank = Checkpoints(tmp_path, {}, lock=False)
    other_rank.load()
    other_rank.close()
    assert {"state-00007-0000000.safetensors", ".checkpoint.json.x_9"} < names()
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.load()
    checkpoints.close()
    assert names() == kept


def hold(folder: Path, training: Any) -> None:
    os.setsid()

    def wait() -> None:
        if os.fork() == 0:  # as a DataLoader's worker, which may live on for seconds
            time.sleep(60)
            os._exit(0)
        training.set()
        time.sleep(60)

    fit(checkpoint=folder, callbacks=[After(5, wait)])


def test_a_second_process_is_told_and_a_killed_one_is_in_nobodys_way(tmp_path, uninterrupted):
    context = multiprocessing.get_context("fork")
    training = context.Event()
    first = context.Process(target=hold, args=(tmp_path, training))
    first.start()
    try:
        assert training.wait(timeout=60)
        with pytest.raises(ValueError, match=r"in use: another process.*or use another folder"):
            fit(checkpoint=tmp_path)
        first.kill()
        first.join()
        assert_same(fit(checkpoint=tmp_path), uninterrupted)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)


def test_a_run_that_cannot_start_leaves_the_folder_to_others(tmp_path):
    fit(checkpoint=tmp_path)
    with pytest.raises(ValueError, match="belongs to another run") as kept:
        fit(checkpoint=tmp_path, loss="cce")
    other = forked(lambda: Checkpoints(tmp_path, {}))
    assert other.returncode == 0, other.stderr
    assert kept.value.__traceback__ is not None, "which holds the run"
