"""The loop is the paper's protocol: against a plain loop, and property by property."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from train_helpers import CLASSES, pictures, quick, table

import tolerant.data.batches as batches
from tolerant.data import NoisyDataset, split_validation
from tolerant.data.augment import augment
from tolerant.data.dataset import LazySubset
from tolerant.experiment.row import by_rule
from tolerant.losses import LqLoss
from tolerant.train import (
    Callback,
    DivergedError,
    Guards,
    Job,
    Preprocess,
    PruneSchedule,
    Recipe,
    Run,
    build,
    pick_device,
    predict_log_proba,
    train,
)
from tolerant.train.engine import loop
from tolerant.train.engine.device import keep_freed_memory
from tolerant.train.engine.device_rows import Rows
from tolerant.train.engine.ranks import Ranks
from tolerant.train.engine.weights import Weights

CPU = torch.device("cpu")


def fit(data=None, model="mlp", loss="lq", recipe=None, **more):
    data = table() if data is None else data
    return train(
        data, model=model, loss=loss, recipe=recipe or quick(), device="cpu", progress="quiet", **more
    )


def state(result):
    return result.model.state_dict()


def assert_same_weights(a, b):
    assert state(a).keys() == state(b).keys()
    for name, tensor in state(a).items():
        assert torch.equal(tensor, state(b)[name]), name


def assert_other_weights(a, b):
    assert any(not torch.equal(t, state(b)[n]) for n, t in state(a).items())


def assert_near(tensor, wanted, relative):
    distance = (tensor - wanted).double().norm() / wanted.double().norm()
    assert distance < relative


def test_equals_a_plain_loop():
    """Written out: NCHW, torch's SGD, one batch after another, the short last one included."""
    data = pictures()
    recipe = quick(epochs=2, milestones=(1,), lr_step_decay=0.1, select="last", weight_decay=1e-2, lr=0.02)
    run = Run(Job(dataset=data, model="small-cnn", loss="lq", recipe=recipe), CPU)
    result = fit(data, "small-cnn", recipe=recipe)
    rows = data.subset(result.train_index)
    mean = torch.from_numpy(rows.inputs.astype(np.float64).mean(0) / 255).float()
    model, loss = build("small-cnn", 4, image_size=(16, 16)), LqLoss()
    optimizer, steps = torch.optim.SGD(model.parameters(), recipe.lr, 0.9, weight_decay=1e-2), 0
    for run.epoch in range(2):
        order, draws, _ = run.draw_epoch()
        assert sorted(order.tolist()) == list(range(297))
        for index in order.split(64):
            images = torch.from_numpy(rows.inputs[index.numpy()])
            inputs = augment(images, mean=mean, flip=draws["flip"][index], shift=draws["shift"][index])
            logits = model(inputs.contiguous())
            optimizer.zero_grad()
            loss(logits, torch.from_numpy(rows.given_labels)[index]).backward()
            optimizer.param_groups[0]["lr"] = 0.02 / 10**run.epoch / (1 + 0.1 * steps)
            optimizer.step()
            steps += 1
    assert [record["lr"] for record in result.history] == [0.02, pytest.approx(0.002 / 1.5)]
    assert len(index) == 297 - 4 * 64
    for name, tensor in model.state_dict().items():
        assert_near(state(result)[name], tensor, 1e-2)


@pytest.mark.parametrize("kind", ["image", "table"])
@pytest.mark.parametrize("center", ["pixel", "channel", "none"])
@pytest.mark.parametrize("scale", ["auto", "unit", "std"])
def test_preprocess_is_measured_on_the_training_rows(kind, center, scale):
    data = pictures(100) if kind == "image" else table(100)
    recipe = Recipe(center=center, scale=scale, batch_size=8, precision="fp32")
    run = Run(Job(dataset=data, model="mlp", loss="cce", recipe=recipe), CPU)
    x = data.inputs[run.train_index].astype(np.float64)
    with_std = scale == "std" or (scale == "auto" and kind == "table")
    if kind == "image":
        factor = 1 / x.std() if with_std else 1 / 255
        centre = {"pixel": x.mean(0), "channel": x.mean((0, 1, 2)), "none": 0.0}[center]
    else:
        factor = 1 / x.std(0) if with_std else 1.0
        centre = 0.0 if center == "none" else x.mean(0)
    wanted = (data.inputs[run.validation_index] - centre) * factor
    got = torch.cat([inputs for _, inputs in run.splits.validation.in_order(4)]).numpy()
    if kind == "image":
        got = got.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_constant_column_does_not_explode():
    inputs = np.full((382, 2), 2039.7464599609375, np.float32)  # rounding gives it a variance of 2.5e-8
    inputs[:, 1] += np.arange(382)
    preprocess = Preprocess.fit(inputs, "table", Recipe())
    assert preprocess.scale[0] == 1
    assert np.all(np.abs(inputs * preprocess.scale - preprocess.mean) < 2)


@pytest.mark.parametrize(("side", "most"), [(28, 500), (32, 500), (64, 125), (320, 5)])
def test_large_pictures_are_scored_in_smaller_parts(side: int, most: int):
    sizes = []

    class Sizes(nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            return x.mean((2, 3))

    inputs = np.zeros((501 if most == 500 else most + 1, side, side, 3), np.uint8)
    rows = NoisyDataset(inputs, np.zeros(len(inputs), np.int64), None, ("a", "b", "c"), None, "image")
    probs = predict_log_proba(Sizes(), rows, Preprocess.fit(inputs, "image", Recipe()))
    assert probs.shape == (len(inputs), 3)
    assert len(sizes) == 2
    assert max(sizes) <= most


def test_pixels_are_measured_alike_however_the_rows_are_cut(monkeypatch: pytest.MonkeyPatch):
    inputs = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    whole = Preprocess.fit(inputs, "image", Recipe(scale="std"))
    monkeypatch.setattr("tolerant.data.standardise._CHUNK_CELLS", 3 * 8 * 8 * 3)
    cut = Preprocess.fit(inputs, "image", Recipe(scale="std"))
    assert np.array_equal(whole.mean, cut.mean)
    assert whole.scale == cut.scale


def test_chosen_epoch_is_the_first_of_the_best_validation_epochs():
    data = table()
    result = fit(data, recipe=quick(epochs=8), test=table(100, 0.0, seed=1))
    accuracies = [record["validation_accuracy"] for record in result.history]
    assert result.epoch == accuracies.index(max(accuracies))
    assert 0 < result.epoch < 7  # else the test shows nothing
    held_out = data.subset(result.validation_index)
    right = result.predict_log_proba(held_out).argmax(1) == held_out.given_labels
    assert right.mean() == result.validation_accuracy == max(accuracies)
    tests = [record["test_accuracy"] for record in result.history]
    assert result.test_accuracy == tests[result.epoch]
    assert (result.last_test_accuracy, result.oracle_test_accuracy) == (tests[-1], max(tests))
    last = fit(data, recipe=quick(epochs=8, select="last"), test=table(100, 0.0, seed=1))
    assert (last.epoch, last.test_accuracy) == (7, tests[-1])
    assert_other_weights(last, result)


def test_the_test_set_is_recorded_and_never_used():
    """With its labels shuffled, and without it, everything else is the same to the last bit."""
    data, test = pictures(), pictures(100, 0.0, seed=1)
    shuffled = replace(test, true_labels=np.random.default_rng(2).permutation(test.true_labels))
    recipe = quick(epochs=8, batch_norm_momentum=0.5)
    results = [
        fit(data, "small-cnn", recipe=recipe, prune=PruneSchedule(6, 1, 0.3), test=t)
        for t in (test, shuffled, None)
    ]
    for other in results[1:]:
        assert_same_weights(results[0], other)
        assert np.array_equal(results[0].kept, other.kept)
        assert results[0].epoch == other.epoch
    assert not results[0].kept.all()
    assert results[0].history[-1]["test_accuracy"] != results[1].history[-1]["test_accuracy"]


def test_pruning_keeps_what_the_best_model_so_far_believes():
    """{p_y > k} of the model that a run of the epochs before pruning chooses, recomputed."""
    data, k = table(), 0.6
    before = fit(data, recipe=quick(epochs=20))
    assert before.epoch < 19  # the best epoch, not the last, must have pruned
    after = fit(data, recipe=quick(epochs=21), prune=PruneSchedule(20, 10, k))
    rows = data.subset(before.train_index)
    log_p = predict_log_proba(before.model, rows, before.preprocess)
    p_y = np.exp(log_p[np.arange(len(rows)), rows.given_labels])
    assert np.array_equal(after.kept, p_y > k)
    assert after.history[19]["kept_fraction"] == 1.0
    last = after.history[20]
    wrong = rows.flipped
    assert last["kept_fraction"] == pytest.approx(after.kept.mean())
    assert last["prune_precision"] == pytest.approx(wrong[~after.kept].mean())
    assert last["prune_recall"] == pytest.approx((~after.kept)[wrong].mean())


def test_training_goes_on_from_the_current_weights_not_from_those_that_pruned():
    job = Job(
        dataset=table(), model="mlp", loss="lq", recipe=quick(epochs=20), prune=PruneSchedule(20, 1, 0.6)
    )
    run = Run(job, CPU)
    list(run.go())
    assert run.alternation.best_epoch < 19
    before = {name: tensor.clone() for name, tensor in run.weights.tensors().items()}
    list(run._prune())
    assert not run.alternation.kept.all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.weights.tensors().items())


def test_a_row_that_is_kept_again_was_not_pruned_for_good(monkeypatch):
    job = Job(dataset=table(), model="mlp", loss="lq", recipe=quick(), prune=PruneSchedule(0, 1, 0.5))
    run = Run(job, CPU)
    for run.epoch, pruned in enumerate(([3, 4], [4, 5], [4])):
        log_p_y = torch.zeros(297)
        log_p_y[pruned] = -9.0
        monkeypatch.setattr(loop, "score", lambda *_, scored=log_p_y, **__: Mock(log_p_y=scored))
        list(run._prune())
    assert np.flatnonzero(run.pruned_at >= 0).tolist() == [4]
    assert run.pruned_at[4] == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_where_no_epoch_beats_the_most_frequent_label_the_loss_chooses(weighted):
    """Of ties the first was taken: an epoch of a few steps, whose ranking was that of its first weights.

    One row in twenty is of the rare class, and none is so likely of it that a model should say so.
    """
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(800, 4)).astype(np.float32)
    given = (rng.random(800) < 0.05 * np.exp(inputs[:, 0]) / np.exp(0.5)).astype(np.int64)
    data = NoisyDataset(inputs, given, None, ("often", "rare"))
    recipe = quick(epochs=6, lr=0.02, validation_fraction=0.25)
    result = fit(data, recipe=recipe, loss="cce", sample_weight=np.full(800, 3.0) if weighted else None)
    accuracies = {round(record["validation_accuracy"], 6) for record in result.history}
    assert len(accuracies) == 1  # all epochs are alike by it
    losses = [record["validation_loss"] for record in result.history]
    assert result.epoch == int(np.argmin(losses)) > 0


@pytest.mark.parametrize(("at_most", "prunes"), [(1.0, True), (0.6, True), (0.5, False)])
def test_a_round_that_would_prune_too_many_is_left_out(at_most, prunes):
    """Of 297 rows 178, a share of 0.599, lie at or below k."""
    recipe, prune = quick(epochs=10), PruneSchedule(10, 1, 0.5)
    job = Job(dataset=table(), model="mlp", loss="lq", recipe=recipe, prune=prune)
    scoring = Run(job, CPU)
    list(scoring.go())
    list(scoring._prune())
    prune = replace(prune, k=float(np.sort(scoring.alternation.pruner.p_y.numpy())[177]))
    run = Run(replace(job, prune=prune, guards=Guards(at_most=at_most, class_at_most=1.0)), CPU)
    list(run.go())
    list(run._prune())
    num_kept = int(run.alternation.kept.sum())
    assert num_kept == (119 if prunes else 297)
    assert (run.pruned_at >= 0).sum() == 297 - num_kept


def test_a_class_that_would_be_pruned_nearly_empty_stays_and_the_others_are_pruned():
    data, prune = table(), PruneSchedule(3, 1, 0.5)
    given = np.where(np.arange(330) % 25 == 0, 0, data.given_labels % 3 + 1)  # class 0: rows of any kind
    job = Job(dataset=data.with_given_labels(given), model="mlp", loss="lq", recipe=quick(), prune=prune)
    job = replace(job, guards=Guards(at_most=1.0))
    run = Run(job, CPU)
    list(run.go())
    list(run._prune())
    p_y = np.exp(predict_log_proba(run.stepper.model, job.dataset, run.splits.preprocess))
    of_class_0 = given[run.train_index] == 0
    doubted = p_y[run.train_index, given[run.train_index]] <= 0.5
    assert doubted[of_class_0].mean() > 0.75
    kept = run.alternation.kept.numpy()
    assert kept[of_class_0].all()
    assert not kept[~of_class_0].all()
    assert (run.pruned_at[of_class_0] == -1).all()


def test_pruned_rows_do_not_train(monkeypatch):
    """Spoiling the inputs of the rows that get pruned changes nothing after pruning."""
    data = table()
    recipe, prune = quick(epochs=1, select="last"), PruneSchedule(0, 10, 0.2)
    first = fit(data, recipe=recipe, prune=prune)
    assert 0.1 < first.kept.mean() < 0.95
    run = Run(Job(dataset=data, model="mlp", loss="lq", recipe=recipe, prune=prune), CPU)
    begin = run.stepper.begin

    def spoil_then_begin(*epoch):
        assert np.array_equal(run.alternation.kept.numpy(), first.kept)
        run.rows._resident[torch.from_numpy(~first.kept)] = 1e3
        begin(*epoch)

    monkeypatch.setattr(run.stepper, "begin", spoil_then_begin)
    list(run.go())
    assert_same_weights(run.result, first)


def test_pruning_leaves_order_and_augmentation_of_the_others():
    job = Job(dataset=pictures(), model="mlp", loss="lq", recipe=quick(), prune=PruneSchedule(0, 1, 0.5))
    run = Run(job, CPU)
    order, draws, _ = run.draw_epoch()
    run.alternation.decide([3, 5, 7], [0.1, 0.1, 0.1])
    kept_order, kept_draws, _ = run.draw_epoch()
    assert kept_order.tolist() == [row for row in order.tolist() if row not in (3, 5, 7)]
    assert all(torch.equal(draws[name], kept_draws[name]) for name in ("flip", "shift"))


def test_zero_weights_stay_in_the_batch_and_do_not_train():
    """prune_by="weight": a batch's mean counts all its rows, the pruned ones adding nothing."""
    data, recipe = table(), quick(epochs=1, prune_by="weight", select="last")
    prune = PruneSchedule(0, 10, 0.2)
    result = fit(data, recipe=recipe, prune=prune)
    run = Run(Job(dataset=data, model="mlp", loss="lq", recipe=recipe, prune=prune), CPU)
    rows = data.subset(result.train_index)
    inputs = torch.cat([x for _, x in run.rows.in_order(50)])
    labels, kept = torch.from_numpy(rows.given_labels), torch.from_numpy(result.kept)
    model, loss = build("mlp", 4, num_features=6), LqLoss(reduction="none")
    optimizer = torch.optim.SGD(model.parameters(), recipe.lr, 0.9, weight_decay=2e-4)
    for index in run.draw_epoch()[0].split(64):
        optimizer.zero_grad()
        (loss(model(inputs[index]), labels[index]) * kept[index]).mean().backward()
        optimizer.step()
    assert not kept.all()
    for name, tensor in model.state_dict().items():
        assert_near(state(result)[name], tensor, 1e-5)


def test_sample_weights_count_in_the_validation_accuracy():
    data = table()
    weight = np.random.default_rng(0).exponential(size=len(data))
    result = fit(data, sample_weight=weight.tolist())
    held_out = data.subset(result.validation_index)
    right = result.predict_log_proba(held_out).argmax(1) == held_out.given_labels
    expected = np.average(right, weights=weight[result.validation_index])
    assert abs(expected - right.mean()) > 0.01
    assert result.validation_accuracy == pytest.approx(expected)


@pytest.mark.parametrize("make", [LqLoss, nn.CrossEntropyLoss])
def test_only_the_ratios_of_class_weights_matter_beside_sample_weights(make):
    """As without them, where a mean divides by the class weights: they change no learning rate."""
    ratios = torch.tensor([1.0, 2.0, 1.0, 0.5])
    weight = np.linspace(1, 2, 330)
    first, scaled = (fit(loss=make(weight=ratios * scale), sample_weight=weight) for scale in (1, 1024))
    assert_same_weights(first, scaled)
    equal, none = (
        fit(loss=make(weight=torch.full((4,), 8.0)), sample_weight=w) for w in (np.ones(330), None)
    )
    for name, tensor in state(none).items():
        assert_near(state(equal)[name], tensor, 1e-5)


def test_a_seed_is_a_run():
    first, again, other = (fit(recipe=quick(seed=seed, dropout=0.3)) for seed in (0, 0, 1))
    assert_same_weights(first, again)
    assert_other_weights(first, other)
    assert not np.array_equal(first.train_index, other.train_index)


def test_torchs_default_device_changes_nothing():
    """As after ``torch.set_default_device("cuda")``; what lands on "meta" cannot be read."""
    for dataset, model in ((table(), "mlp"), (pictures(), "small-cnn")):
        run = {"model": model, "loss": "lq", "recipe": quick(), "progress": "quiet", "device": "cpu"}
        run["prune"] = PruneSchedule(start_epoch=1, every=1, k=0.05)
        expected = train(dataset, **run)
        with torch.device("meta"):
            found = train(dataset, **run)
        assert [r["train_loss"] for r in found.history] == [r["train_loss"] for r in expected.history]


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam", "lr": 0.01}, {"precision": "bf16"}], ids=str)
def test_torchs_default_dtype_is_not_that_of_named_models(changes):
    torch.set_default_dtype(torch.float64)
    try:
        rows = table()
        weight = np.linspace(0.5, 1.5, len(rows))
        result = train(
            rows, model="mlp", loss="lq", recipe=quick(**changes), sample_weight=weight, progress="quiet"
        )
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in result.model.parameters()} == {torch.float32}
    assert result.validation_accuracy > 0.5


def test_the_callers_generator_and_module_are_left_alone():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 4))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    torch.manual_seed(3)
    result = fit(model=model)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert int(result.model[1].num_batches_tracked) == 5 * (result.epoch + 1)


def test_no_row_has_no_score():
    rows = table()
    none = rows.subset(np.zeros(len(rows), bool))
    whole = Preprocess.fit(rows.inputs, "table", Recipe())
    assert predict_log_proba(nn.Linear(6, 4), none, whole).shape == (0, 4)


def test_scoring_leaves_every_part_in_its_mode():
    rows = table()
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)).train()
    model[1].eval()  # frozen, while the others are fine-tuned
    predict_log_proba(model, rows, Preprocess.fit(rows.inputs, "table", Recipe()))
    assert [part.training for part in model] == [True, False, True]


def test_rows_that_do_not_fit_are_streamed_to_the_same_bits(monkeypatch):
    resident = fit(pictures(), "small-cnn")
    monkeypatch.setattr(batches, "fits", lambda inputs, device: False)
    assert_same_weights(fit(pictures(), "small-cnn"), resident)


@pytest.mark.parametrize("num_ranks", [1, 3, 30])
@pytest.mark.parametrize("resident", [True, False])
def test_a_rank_reads_only_the_rows_it_scores(monkeypatch, num_ranks, resident):
    data = pictures(100)
    read = []

    class Watched(LazySubset):
        def __getitem__(self, index):
            read.extend(index.tolist())
            return super().__getitem__(index)

    def rows(inputs):
        whole = Preprocess.fit(data.inputs, "image", Recipe())
        return Rows(replace(data, inputs=inputs), data.given_labels, whole, CPU, bf16=False)

    expected = {part.start: inputs for part, inputs in rows(data.inputs).in_order(7)}
    monkeypatch.setattr(batches, "fits", lambda inputs, device: resident)
    watched = rows(Watched(data.inputs, np.arange(100)))
    for rank in range(num_ranks):
        read.clear()
        found = {part.start: inputs for part, inputs in watched.in_order(7, Ranks(rank, num_ranks))}
        assert list(found) == list(expected)[rank::num_ranks]
        assert all(torch.equal(inputs, expected[start]) for start, inputs in found.items())
        assert read == ([] if resident else [row for row in range(100) if row // 7 % num_ranks == rank])


@pytest.mark.parametrize("augment_by", ["flip-crop", "flip", "crop", "none"])
def test_augmentation_by_name(augment_by):
    job = Job(dataset=pictures(), model="mlp", loss="lq", recipe=quick(augment=augment_by))
    draws = Run(job, CPU).draw_epoch()[1]
    assert (
        set(draws)
        == {
            "flip-crop": {"flip", "shift"},
            "flip": {"flip"},
            "crop": {"shift"},
            "none": set(),
        }[augment_by]
    )


def test_bf16_learns_what_fp32_learns():
    test = pictures(200, 0.0, seed=1)
    results = [
        fit(pictures(500), "small-cnn", recipe=quick(epochs=8, precision=p), test=test)
        for p in ("fp32", "bf16")
    ]
    for result in results:
        assert result.oracle_test_accuracy > 0.9
        assert all(t.dtype != torch.bfloat16 for t in state(result).values())
    fp32, bf16 = (torch.cat([p.flatten() for p in r.model.parameters()]) for r in results)
    assert not torch.equal(fp32, bf16)


def test_first_gradient_in_bf16_is_that_of_fp32():
    updates = []
    for precision in ("fp32", "bf16"):
        recipe = quick(precision=precision, weight_decay=0.0)
        run = Run(Job(dataset=pictures(), model="small-cnn", loss="lq", recipe=recipe), CPU)
        before = torch.cat([t.detach().flatten().clone() for t in run.weights.trained.values()])
        order, draws, seed = run.draw_epoch()
        run.stepper.begin(order, draws, 0.01, seed)
        run.stepper.step()
        updates.append(torch.cat([t.detach().flatten() for t in run.weights.trained.values()]) - before)
    assert F.cosine_similarity(*updates, dim=0) > 0.99


@pytest.mark.parametrize("bf16", [False, True])
def test_a_layer_that_a_step_leaves_out_stays_as_it_is(bf16):
    """Drawn layers, experts: the step before must not be repeated for them."""
    model = nn.ModuleDict({"always": nn.Linear(3, 3), "once": nn.Linear(3, 3)})
    weights = Weights(model, quick(), bf16=bf16)
    inputs = torch.ones(2, 3, dtype=torch.bfloat16 if bf16 else torch.float32)
    seen = []
    for step in range(3):
        weights.zero_grad()
        hidden = model["always"](inputs)
        (model["once"](hidden) if step == 0 else hidden).sum().backward()
        weights.step()
        seen.append({name: tensor.clone() for name, tensor in weights.tensors().items()})
    first, *_, last = seen
    assert torch.equal(first["once.weight"], last["once.weight"])
    assert not torch.equal(first["always.weight"], last["always.weight"])


def test_loaded_weights_are_those_that_bf16_computes_with():
    model = nn.Linear(3, 2)
    weights = Weights(model, quick(), bf16=True)
    for load, stored in ((weights.load, weights.tensors()), (weights.load_state, weights.state())):
        load({name: torch.full_like(tensor, 0.25) for name, tensor in stored.items()})
        assert model.weight.dtype == torch.bfloat16
        assert (model.weight == 0.25).all()
        weights.load({name: torch.zeros_like(tensor) for name, tensor in weights.tensors().items()})


def test_adam_is_torchs_adam():
    data, recipe = table(), quick(optimizer="adam", lr=1e-3, weight_decay=0.0, epochs=1, select="last")
    result = fit(data, recipe=recipe)
    run = Run(Job(dataset=data, model="mlp", loss="lq", recipe=recipe), CPU)
    inputs = torch.cat([x for _, x in run.rows.in_order(50)])
    labels = torch.from_numpy(data.given_labels[result.train_index])
    model = build("mlp", 4, num_features=6)
    optimizer = torch.optim.Adam(model.parameters())
    for index in run.draw_epoch()[0].split(64):
        optimizer.zero_grad()
        LqLoss()(model(inputs[index]), labels[index]).backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        assert_near(state(result)[name], tensor, 1e-5)


def test_batch_norm_momentum_and_loss_arguments_reach_their_places():
    job = Job(
        dataset=pictures(),
        model="small-cnn",
        model_args={"width": 8},
        loss="lq",
        loss_args={"q": 0.3},
        recipe=quick(batch_norm_momentum=0.01),
    )
    model = job.build_model()
    assert [m.momentum for m in model if isinstance(m, nn.BatchNorm2d)] == [0.01] * 3
    assert [m.out_channels for m in model if isinstance(m, nn.Conv2d)] == [8, 16, 32]
    assert job.build_loss().hyper == {"q": 0.3}
    for name, where in (("dropout", "set it in the recipe"), ("image_size", "it follows from the data")):
        odd = replace(job, model_args={name: 0.5})
        with pytest.raises(ValueError, match=f"options of the network alone; got '{name}': {where}"):
            odd.build_model()


def test_history_has_every_number_of_every_epoch():
    result = fit(test=table(50, 0.0, seed=1), prune=PruneSchedule(5, 1, 0.3), recipe=quick(epochs=8))
    assert [record["epoch"] for record in result.history] == list(range(8))
    for record in result.history:
        assert set(record) == {
            "epoch", "lr", "steps", "train_loss", "validation_loss", "validation_accuracy", "test_accuracy",
            "p_y_right", "p_y_wrong", "kept_fraction", "prune_precision", "prune_recall",
            "images_per_s", "time_s",
        }  # fmt: skip
    last = result.history[-1]
    assert last["p_y_right"] > 0.5 > last["p_y_wrong"]
    unknown = fit(replace(table(), true_labels=None), recipe=quick(epochs=2))
    assert "p_y_right" not in unknown.history[0]
    seldom = fit(recipe=quick(epochs=4, score_every=2))
    assert ["p_y_wrong" in record for record in seldom.history] == [False, True, False, True]


def test_the_test_set_is_looked_at_now_and_then_and_in_the_end():
    test = table(50, 0.0, seed=1)
    always = fit(test=test, recipe=quick(epochs=5, select="last"))
    seldom = fit(test=test, recipe=quick(epochs=5, select="last", test_every=2))
    tests = [record["test_accuracy"] for record in always.history]
    assert [r.get("test_accuracy") for r in seldom.history] == [None, tests[1], None, tests[3], tests[4]]
    assert (seldom.test_accuracy, seldom.oracle_test_accuracy) == (tests[4], max(tests[1], *tests[3:]))
    best = by_rule(seldom.history)["best_test"]
    assert best["test_accuracy"] == seldom.oracle_test_accuracy == tests[best["epoch"]]


def test_train_loss_is_the_mean_over_rows_of_an_epoch():
    result = fit(recipe=quick(epochs=1, lr=1e-12, augment="none", select="last"))
    run = Run(Job(dataset=table(), model="mlp", loss="lq", recipe=quick()), CPU)
    inputs = torch.cat([x for _, x in run.rows.in_order(50)])
    labels = torch.from_numpy(table().given_labels[result.train_index])
    whole = LqLoss()(build("mlp", 4, num_features=6)(inputs), labels).item()
    assert result.history[0]["train_loss"] == pytest.approx(whole, rel=1e-4)


def test_own_validation_rows_and_none_at_all():
    data, other = table(), table(80, seed=5)
    result = fit(data, validation=other)
    assert len(result.train_index) == len(data)
    assert len(result.validation_index) == 0
    right = result.predict_log_proba(other).argmax(1) == other.given_labels
    assert result.validation_accuracy == right.mean()
    everything = fit(data, recipe=quick(validation_fraction=0.0, select="last"))
    assert everything.validation_accuracy is None
    assert "validation_loss" not in everything.history[0]


def test_forward_correction_needs_and_uses_its_matrix():
    transition = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    with pytest.raises(ValueError, match=r"loss 'forward' needs transition.*got none"):
        fit(loss="forward")
    named = fit(loss="forward", transition=transition)
    assert_same_weights(named, fit(loss="cce", transition=transition))
    assert_other_weights(named, fit(loss="cce"))
    with pytest.raises(ValueError, match=r"transition must be 4 x 4.*got 3 x 3"):
        fit(loss="cce", transition=np.eye(3))
    with pytest.raises(ValueError, match="losses of p_y alone"):
        fit(loss="nce", transition=transition)


def test_validation_rows_of_ones_own_are_not_weighed():
    data, own = table(), table(50, 0.0, seed=1)
    result = fit(data, sample_weight=np.linspace(0, 2, len(data)), validation=own)
    right = result.predict_log_proba(own).argmax(1) == own.given_labels
    assert result.validation_accuracy == pytest.approx(right.mean())


class Hinge(torch.nn.Module):
    def forward(self, logits, labels):
        return torch.nn.functional.multi_margin_loss(logits, labels)


def test_what_cannot_be_trained_is_refused_at_once():
    data = table()
    with pytest.raises(ValueError, match=r"at least two classes; the 297 .* one \('a'\)"):
        fit(data.with_given_labels(np.zeros(len(data), int)))
    with pytest.raises(ValueError, match=r"got 64 with 45 rows \(5 more .* Use batch_size=11"):
        fit(data.subset(np.arange(50)))
    words = NoisyDataset(np.full(100, "x", object), np.arange(100) % 4, None, CLASSES, None, "text")
    with pytest.raises(ValueError, match="holds text"):
        fit(words)
    with pytest.raises(ValueError, match="test must have the classes of dataset"):
        fit(data, test=replace(data, class_names=("w", "x", "y", "z")))
    for name in ("validation", "test"):
        with pytest.raises(ValueError, match=f"{name} must have at least one row"):
            fit(data, **{name: data.subset([])})
        with pytest.raises(ValueError, match=rf"{name} .* table rows of shape \(6,\); got table .* \(5,\)"):
            fit(data, **{name: replace(data, inputs=data.inputs[:, :5])})
        with pytest.raises(ValueError, match=f"{name} must have inputs like dataset's"):
            fit(data, **{name: pictures()})
    with pytest.raises(ValueError, match="Did you mean 'lq'"):
        fit(loss="lqq")
    train_index, held_out = split_validation(len(data), 0.1, 0)
    for none_of, word in ((train_index, "training"), (held_out, "validation")):
        weight = np.ones(len(data))
        weight[none_of] = 0.0
        with pytest.raises(ValueError, match=f"sample_weight is 0 for every {word} row"):
            fit(data, sample_weight=weight)
    with pytest.raises(ValueError, match=r"sample_weight must be 330 finite .* got shape \(3,\)"):
        fit(data, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match=r"need a loss with a reduction; Hinge has none\. Leave"):
        fit(data, loss=Hinge(), sample_weight=np.ones(len(data)))
    with pytest.raises(ValueError, match="checkpoint_every must be a whole number of at least 1; got 0"):
        fit(data, checkpoint_every=0)
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu' or 'cuda'"):
        train(data, model="mlp", loss="lq", device="mps")


def test_a_step_that_cannot_be_captured_says_what_to_do(monkeypatch):
    def forbidden():
        raise RuntimeError("operation not permitted when stream is capturing")

    run = Run(Job(dataset=table(), model="mlp", loss="lq", recipe=quick()), CPU)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: forbidden())
    with pytest.raises(RuntimeError, match=r"cannot be recorded as a CUDA graph.*graph=False") as raised:
        run.stepper._capture()
    assert "not permitted" in str(raised.value.__cause__)


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"'cuda:3' is not available: torch sees 1 GPU"):
        pick_device("cuda:3")
    assert pick_device("cuda:0") == torch.device("cuda", 0)


def test_no_memory_is_kept_where_the_c_library_is_another(monkeypatch):
    """Windows has no library without a name: TypeError."""
    for error in (TypeError, AttributeError, OSError):

        def load(name, error=error):
            raise error(name)

        monkeypatch.setattr(ctypes, "CDLL", load)
        keep_freed_memory.__wrapped__()


def test_models_that_cannot_be_trained_are_refused_in_words():
    for dtype in (torch.float64, torch.bfloat16):
        with pytest.raises(ValueError, match=rf"in float32; its parameters are {dtype}\. Pass model\.float"):
            fit(model=nn.Linear(6, 4).to(dtype))
    with pytest.raises(TypeError, match=r"tensor of logits \(rows, classes\); got tuple"):
        fit(model=nn.LSTM(6, 4))
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        fit(model=nn.Linear(6, 4).requires_grad_(False))


class OddBuffers(nn.Linear):
    """Buffers of kinds that are rare, one of them replaced in every forward pass."""

    def __init__(self):
        super().__init__(6, 4)
        self.register_buffer("expanded", torch.arange(3.0).expand(4, 3))
        self.register_buffer("complex", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("flag", torch.tensor(True))
        self.register_buffer("unsaved", torch.ones(3), persistent=False)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("absent", None)

    def forward(self, x):
        logits = super().forward(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * logits.detach().mean(0)
        return logits - self.mean


def test_buffers_of_every_kind_are_chosen_and_gone_on_from(tmp_path):
    prune, model = PruneSchedule(1, 1, 0.3), OddBuffers()
    whole = fit(model=model, prune=prune)
    assert whole.model.mean.any()

    class Stop(Callback):
        def on_epoch_end(self, job, record):
            if record["epoch"] == 1:
                raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fit(model=model, prune=prune, checkpoint=tmp_path, callbacks=[Stop()])
    assert_same_weights(fit(model=model, prune=prune, checkpoint=tmp_path), whole)


def test_divergence_ends_the_run_with_epoch_rate_and_way_out(tmp_path):
    data = table()
    recipe = quick(epochs=5, lr=0.01, milestones=(2,), lr_decay=1e20)
    with pytest.raises(DivergedError, match=r"epoch 2 .* learning rate 1e\+18\. Use a lower lr.*last good"):
        fit(data, loss="cce", recipe=recipe, checkpoint=tmp_path)
    with pytest.raises(DivergedError):  # goes on from the good one, into the same wall
        fit(data, loss="cce", recipe=recipe, checkpoint=tmp_path)
    state_file = next(tmp_path.glob("state-00002-*"))
    from safetensors.torch import load_file

    assert all(torch.isfinite(t.float()).all() for t in load_file(state_file).values())


def test_callbacks_hear_start_epochs_and_end():
    heard = []

    class Ear(Callback):
        def on_start(self, job, record):
            heard.append(("start", record))

        def on_epoch_end(self, job, record):
            heard.append(("epoch", record["epoch"]))

        def on_end(self, job, result):
            heard.append(("end", result))

    result = fit(recipe=quick(epochs=2), callbacks=[Ear()])
    assert heard == [("start", None), ("epoch", 0), ("epoch", 1), ("end", result)]
