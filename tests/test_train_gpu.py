"""The CUDA path: captured steps, side by side, against the plain ones. Runs on a GPU only."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from train_helpers import pictures, quick, table

from tolerant.train import (
    DivergedError,
    Fleet,
    Job,
    PruneSchedule,
    Relabel,
    Round,
    Run,
    TrainResult,
    build,
    train,
)
from tolerant.train.networks.overlap import Overlap

pytestmark = pytest.mark.gpu


def _weights(result: TrainResult) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def _distance(a: TrainResult, b: TrainResult) -> float:
    return float((_weights(a) - _weights(b)).norm() / _weights(b).norm())


def _train(graph: bool | None = None, model: str = "small-cnn", **changes):
    arguments = {"loss": "lq", "test": pictures(200, 0.0, seed=1), "progress": "quiet"}
    recipe = changes.pop("recipe", quick())
    data = changes.pop("dataset", pictures())
    return train(data, model=model, recipe=recipe, device="cuda", graph=graph, **{**arguments, **changes})


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_graph_equals_eager(optimizer, precision):
    """297 rows, batch 64: four captured steps and a short one of 41 rows, three epochs."""
    lr = 0.02 if optimizer == "sgd" else 1e-3
    recipe = quick(optimizer=optimizer, precision=precision, lr=lr, score_every=0)
    captured, plain = (_train(graph, recipe=recipe) for graph in (True, False))
    assert _distance(captured, plain) < (2e-3 if precision == "fp32" else 3e-2)
    for a, b in zip(captured.history, plain.history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=3e-2)


def test_cpu_and_gpu_see_the_same_batches():
    """Order and augmentation are drawn on the CPU, so fp32 runs stay together for some steps."""
    recipe = quick(epochs=1, lr=1e-3)
    data = pictures()
    on_gpu = _train(recipe=recipe, dataset=data)
    on_cpu = train(data, model="small-cnn", loss="lq", recipe=recipe, device="cpu", progress="quiet")
    assert _distance(on_gpu, on_cpu) < 1e-3
    assert on_gpu.history[0]["train_loss"] == pytest.approx(on_cpu.history[0]["train_loss"], rel=1e-3)


def test_predicting_leaves_the_model_where_it_was():
    result = _train(recipe=quick(epochs=1))
    result.predict_log_proba(pictures(), device="cuda")
    assert {weights.device.type for weights in result.model.parameters()} == {"cpu"}
    on_gpu = result.model.to("cuda")
    result.predict_log_proba(pictures(), device="cpu")
    assert {weights.device.type for weights in on_gpu.parameters()} == {"cuda"}


def test_loss_falls_in_bf16():
    recipe = quick(epochs=4, precision="bf16", lr=0.01)
    result = _train(model="resnet18", recipe=recipe, dataset=pictures(2000))
    losses = [record["train_loss"] for record in result.history]
    assert losses[-1] < 0.9 * losses[0]  # the first is a mean over an epoch that learns most
    assert result.oracle_test_accuracy > 0.9


def test_gradient_of_the_first_step_agrees_within_bf16():
    """The first update is -lr times the gradient: compare its direction in bf16 and fp32."""
    steps = []
    for precision in ("fp32", "bf16"):
        job = Job(dataset=pictures(), model="small-cnn", loss="lq", recipe=quick(precision=precision))
        run = Run(job, torch.device("cuda", 0))
        before = torch.cat([t.detach().flatten() for t in run.weights.trained.values()])
        with torch.cuda.stream(run.stepper.stream):
            run.stepper.begin(*run.draw_epoch()[:2], 0.01, 0)
            run.stepper.step()
            torch.cuda.synchronize()
        after = torch.cat([t.detach().flatten() for t in run.weights.trained.values()])
        steps.append(after - before)
    cosine = torch.nn.functional.cosine_similarity(*steps, dim=0)
    assert cosine > 0.99
    assert float(steps[1].norm()) == pytest.approx(float(steps[0].norm()), rel=0.05)


@pytest.mark.parametrize("taught", [False, True])
def test_no_host_sync_inside_an_epoch(taught):
    recipe = quick(precision="bf16")
    if taught:
        recipe = replace(recipe, mixup=1.0, average=0.9, augment="strong", nesterov=True, decay_on="matrices")
    networks = 2 if taught else 1
    job = Job(dataset=pictures(), model="small-cnn", loss="cce", recipe=recipe, networks=networks)
    run = Run(job, torch.device("cuda", 0))
    with torch.cuda.stream(run.stepper.stream):
        order, draws, seed = run.draw_epoch()
        run.stepper.begin(order, draws, 0.01, seed)
        run.stepper.step()  # captures, which does wait
        torch.cuda.synchronize()
        try:
            torch.cuda.set_sync_debug_mode("error")
            while run.stepper.steps_done < run.stepper.num_steps:
                run.stepper.step()
            run.stepper.begin(order, draws, 0.01, seed)
            run.stepper.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_rounds_are_the_same_captured_and_side_by_side():
    last = {"validation_fraction": 0.0, "select": "last", "score_every": 0, "precision": "fp32"}
    recipe = quick(lr=0.05, schedule="cosine", average=0.9, center="channel", scale="std", **last)
    relabel = Relabel(start_epoch=1, every=1)
    rounds = (
        Round(epochs=4, loss="lq"),
        Round(epochs=3, mixup=1.0, augment="strong", networks=2, relabel=relabel),
    )
    job = Job(
        dataset=pictures(700), model="fast", model_args={"width": 8}, loss="cce", recipe=recipe, rounds=rounds
    )
    plain, captured = (
        Fleet(device="cuda", progress="quiet", graph=graph).run_one(job) for graph in (False, True)
    )
    both = Fleet(side_by_side=2, device="cuda", progress="quiet").run([job, job])
    for result in (captured, *both):
        assert _distance(result, plain) < 0.05
        assert result.history[-1]["train_loss"] == pytest.approx(plain.history[-1]["train_loss"], rel=0.05)
        assert (result.labels == plain.labels).mean() > 0.95


def test_capture_leaves_no_trace():
    """Warm-up steps must change neither weights, statistics nor momentum: lr 0 keeps all weights."""
    job = Job(dataset=pictures(), model="small-cnn", loss="lq", recipe=quick())
    run = Run(job, torch.device("cuda", 0))
    before = {n: t.clone() for n, t in run.weights.tensors().items()}
    with torch.cuda.stream(run.stepper.stream):
        run.stepper.begin(*run.draw_epoch()[:2], 0.0, 0)
        run.stepper.step()
        torch.cuda.synchronize()
    after = run.weights.tensors()
    assert all(torch.equal(before[n], after[n]) for n in run.weights.trained)
    assert int(after["1.num_batches_tracked"]) == 1
    assert int(run.stepper.position) == 64


def test_prune_in_the_middle():
    """Pruned rows leave: fewer steps, another last batch, the same graph."""
    data = pictures(700)
    result = _train(dataset=data, recipe=quick(epochs=5), prune=PruneSchedule(3, 1, 0.4))
    first, last = result.history[0], result.history[-1]
    assert first["kept_fraction"] == 1.0
    assert last["kept_fraction"] < 0.85
    assert last["prune_precision"] > 0.9
    assert last["prune_recall"] > 0.8
    weighed = _train(dataset=data, recipe=quick(epochs=5, prune_by="weight"), prune=PruneSchedule(3, 1, 0.4))
    assert weighed.history[-1]["prune_precision"] > 0.9


def test_fleet_of_two_equals_two_alone():
    recipes = [quick(seed=seed, dropout=0.2, epochs=4) for seed in (0, 1)]
    data, test = pictures(), pictures(200, 0.0, seed=1)
    jobs = [Job(dataset=data, model="small-cnn", loss="lq", recipe=r, test=test) for r in recipes]
    together = Fleet(side_by_side=2, device="cuda", progress="quiet").run(jobs)
    for recipe, result in zip(recipes, together, strict=True):
        assert isinstance(result, TrainResult), result
        assert _distance(result, _train(recipe=recipe, dataset=data)) < 5e-3
    assert _distance(*together) > 0.1


def test_fleet_goes_on_when_one_fails():
    jobs = [
        Job(dataset=table(), model="mlp", loss="lq", recipe=quick()),
        Job(dataset=table(), model="mlp", loss="cce", recipe=quick(lr=1e18)),
        Job(dataset=table(), model="resnet18", loss="cce", recipe=quick()),
    ]
    good, diverged, wrong = Fleet(side_by_side=3, device="cuda", progress="quiet").run(jobs)
    assert isinstance(good, TrainResult)
    assert isinstance(diverged, DivergedError)
    assert isinstance(wrong, ValueError)


def test_resume(tmp_path):
    """A run stopped after every epoch ends where an uninterrupted one does."""

    class Stop:
        def on_start(self, job, record): ...
        def on_end(self, job, result): ...
        def on_epoch_end(self, job, record):
            raise RuntimeError("stop")

    recipe = quick(precision="bf16", lr=0.01)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="stop"):
            _train(recipe=recipe, checkpoint=tmp_path, callbacks=[Stop()])
    resumed = _train(recipe=recipe, checkpoint=tmp_path)
    assert len(resumed.history) == 3
    assert _distance(resumed, _train(recipe=recipe)) < 3e-2


def test_rows_that_do_not_fit_are_streamed(monkeypatch):
    import tolerant.data.batches as batches

    recipe = quick(lr=1e-3)
    resident = _train(graph=False, recipe=recipe)
    monkeypatch.setattr(batches, "fits", lambda inputs, device: False)
    streamed = _train(recipe=recipe)
    assert _distance(streamed, resident) < 1e-3


def test_forward_correction():
    transition = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    result = _train(loss="cce", transition=transition, recipe=quick(epochs=12))
    assert result.oracle_test_accuracy > 0.9


@pytest.mark.filterwarnings("default")
def test_compiled_and_captured():
    recipe = quick(precision="bf16", lr=0.02, score_every=0)
    compiled = _train(recipe=quick(precision="bf16", lr=0.02, score_every=0, compile=True))
    assert _distance(compiled, _train(recipe=recipe)) < 5e-2


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradients_beside_the_backward_pass_are_the_same(precision):
    """Weight gradients on a second stream, against the same step on one stream."""
    x = torch.rand(64, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(10, (64,), device="cuda")
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    found = []
    for overlap in (Overlap(torch.device("cuda", 0)).step, nullcontext):
        model = build("resnet18", 10).cuda().to(memory_format=torch.channels_last)
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
                module.to(dtype)
        for _ in range(3):  # the memory of the last step is used again
            model.zero_grad()
            with overlap():
                torch.nn.functional.cross_entropy(model(x.to(dtype)).float(), y).backward()
        found.append({name: p.grad.float() for name, p in model.named_parameters()})
    for name, gradient in found[1].items():
        assert (found[0][name] - gradient).norm() <= 0.02 * gradient.norm() + 1e-6, name
