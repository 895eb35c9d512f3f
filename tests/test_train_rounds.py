"""Methods of several rounds: what each decides, and that a chain of them is one run."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from forked import forked_ranks
from test_train_resume import assert_same
from torch import nn
from train_helpers import pictures, quick, table

from tolerant.data import NoisyDataset
from tolerant.data.distort import distort, draw_distortion
from tolerant.noise import corrupt, symmetric
from tolerant.train import Callback, Fleet, Job, PruneSchedule, Relabel, Round, build, join_ranks, train
from tolerant.train.engine.check_job import check_job
from tolerant.train.engine.mixup import blend, draw_shares, one_hot
from tolerant.train.engine.weights import Average, Weights
from tolerant.train.networks.network_committee import NetworkCommittee
from tolerant.train.rounds.relabel import Teacher, count_transition
from tolerant.train.rounds.round import taught

RECIPE = quick(
    batch_size=32, average=0.9, schedule="cosine", warm_up=0.15, validation_fraction=0.0, select="last"
)
QUIET = {"loss": "lq", "device": "cpu", "progress": "quiet"}
TAUGHT = (
    Round(epochs=4, loss="lq", loss_args={"q": 0.7}),
    Round(epochs=5, mixup=1.0, networks=2, relabel=Relabel(start_epoch=2, every=1)),
)


def fit(rounds=TAUGHT, dataset=None, **changes):
    arguments = {"model": "mlp", "recipe": RECIPE, "device": "cpu", "progress": "quiet"}
    return train(dataset or table(), rounds=rounds, test=table(80, 0.0, seed=1), **{**arguments, **changes})


@pytest.mark.parametrize("prune", [None, PruneSchedule(2, 1, 0.3)])
def test_a_method_of_one_round_is_the_training_it_describes(prune):
    recipe = quick(epochs=4)
    plain = train(table(), model="mlp", loss="lq", prune=prune, recipe=recipe, device="cpu", progress="quiet")
    rounds = (Round(epochs=4, loss="lq", prune=prune),)
    chain = train(table(), model="mlp", rounds=rounds, recipe=recipe, device="cpu", progress="quiet")
    for record in chain.history:
        assert record.pop("round") == 0
    assert_same(chain, plain)


@pytest.mark.parametrize("soft", [True, False])
def test_wrong_labels_are_trained_under_the_right_ones(soft):
    first, second = TAUGHT
    result = fit((first, replace(second, relabel=replace(second.relabel, soft=soft, sure=0.6))))
    rows, last = table(), result.history[-1]
    right = result.labels == rows.true_labels
    assert (rows.given_labels == rows.true_labels).mean() < 0.75
    assert right[result.kept].mean() == last["label_accuracy"] > 0.95
    assert last["relabelled_fraction"] == (result.labels != rows.given_labels).mean() > 0.2
    assert [record["round"] for record in result.history] == [0] * 4 + [1] * 5
    assert [record["epoch"] for record in result.history] == list(range(9))
    assert isinstance(result.model, NetworkCommittee)
    assert result.test_accuracy == last["test_accuracy"] > 0.95


def test_the_model_before_decides_first_even_where_the_new_one_may_from_the_start():
    """A network that had seen nothing decided, and gave all rows their given labels back."""
    first, second = TAUGHT
    result = fit((first, replace(second, relabel=Relabel(start_epoch=0, every=9))))
    assert min(record["relabelled_fraction"] for record in result.history[4:]) > 0.2
    assert result.history[-1]["label_accuracy"] > 0.95


def test_the_packages_rounds_are_decided_once_by_the_round_before(monkeypatch):
    heard, decide = [], Teacher.decide
    monkeypatch.setattr(Teacher, "decide", lambda self, probs: heard.append(probs) or decide(self, probs))
    history = fit(taught(4, 5, 6, q=0.7)).history
    first, second = heard
    assert not torch.equal(first, second)
    assert all(len({record["relabelled_fraction"] for record in history[at:][:5]}) == 1 for at in (4, 9))
    assert history[-1]["label_accuracy"] > 0.95


def test_each_round_draws_anew():
    first, second = (Round(epochs=1), Round(epochs=1))
    seen = []

    class Watch(Callback):
        def on_epoch_end(self, job, record):
            seen.append(record["train_loss"])

    fit((first, second), callbacks=[Watch()])
    assert seen[0] != seen[1]


def test_a_continued_network_goes_on_from_the_round_before():
    recipe = replace(RECIPE, lr=1e-12)  # which changes nothing that can be seen
    one = fit((Round(epochs=6),))
    two = fit((Round(epochs=6), Round(epochs=1, fresh=False)), recipe=recipe)
    alone = fit((Round(epochs=6),), recipe=recipe)
    torch.testing.assert_close(two.model.state_dict(), alone.model.state_dict())
    assert one.test_accuracy > alone.test_accuracy


def test_side_by_side_is_the_same_as_alone():
    jobs = [
        Job(dataset=table(seed=seed), model="mlp", loss="cce", recipe=RECIPE, rounds=TAUGHT)
        for seed in (0, 1)
    ]
    together = Fleet(side_by_side=2, device="cpu", progress="quiet").run(jobs)
    for job, result in zip(jobs, together, strict=True):
        assert_same(result, Fleet(device="cpu", progress="quiet").run_one(job))


class Stopping(Callback):
    """Ctrl-C after so many epochs."""

    def __init__(self, epochs):
        self.epochs = epochs

    def on_epoch_end(self, job, record):
        self.epochs -= 1
        if self.epochs == 0:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("epochs", [2, 4, 5, 7, 8])
def test_stopped_in_any_round_it_goes_on_to_the_same_bits(tmp_path, epochs):
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path, callbacks=[Stopping(epochs)])
    assert_same(fit(checkpoint=tmp_path), fit())
    assert_same(fit(checkpoint=tmp_path), fit())  # read back


def fit_over_ranks():
    torch.set_num_threads(1)
    with join_ranks("cpu"):
        result = fit()
    weights = torch.cat([t.double().flatten() for t in result.model.state_dict().values()])
    print(json.dumps([result.kept.tolist(), result.labels.tolist(), weights.tolist(), result.test_accuracy]))


def test_ranks_agree():
    first, second = forked_ranks(2, fit_over_ranks)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)[3] > 0.9


# The decision.


def drawn(num_rows=6000, rate=0.4, num_classes=5, sharpness=10.0, seed=0):
    """Labels drawn from known probabilities, most of them sure, then made wrong."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(num_rows, num_classes))
    probs = torch.softmax(torch.from_numpy(logits), 1).float()
    true = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(seed))[:, 0]
    transition = symmetric(num_classes, rate)
    given = torch.from_numpy(corrupt(true.numpy(), transition, seed=seed, kind="symmetric").given_labels)
    return probs, true, given, torch.from_numpy(transition).float()


def decided(teacher, probs):
    teacher.decide(probs)
    for _ in teacher.arrive():
        pass
    return teacher


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_transition_matrix_is_found(power):
    """However sure the model is of itself."""
    probs, _, given, transition = drawn()
    found = count_transition(torch.softmax(power * probs.log(), 1), one_hot(given, 5))
    assert (found - transition).abs().max() < 0.05


def test_a_model_of_the_given_labels_does_not_make_them_right():
    """Its own uncertainty explains every label, so that the likeliest T is the identity."""
    _, true, given, transition = drawn()
    of_given = transition[true]
    found = count_transition(of_given, one_hot(given, 5))
    assert (found - transition).abs().max() < 0.05
    teacher = decided(Teacher(Relabel(), given, 5), of_given)
    assert (teacher.labels_on_host == true).float().mean() > 0.99


def test_a_class_that_no_row_is_taken_for_is_labelled_mostly_right():
    probs, _, given, _ = drawn()
    found = count_transition(probs * torch.tensor([1, 1, 1e-6, 1, 1]), one_hot(given, 5))
    assert found[2].argmax() == 2
    torch.testing.assert_close(found.sum(1), torch.ones(5))


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_probabilities_that_are_too_sure_or_not_sure_enough_are_set_right(power):
    probs, true, given, _ = drawn()
    distorted = torch.softmax(power * probs.log(), 1)
    exact, found = (decided(Teacher(Relabel(soft=False), given, 5), each) for each in (probs, distorted))
    assert (exact.targets == found.targets).float().mean() > 0.95
    assert (exact.kept == found.kept).float().mean() > 0.9
    accuracy = (exact.targets == true)[exact.kept].float().mean()
    assert accuracy > 0.9 > (given == true).float().mean()


def test_soft_labels_are_as_sure_as_they_are_right():
    probs, true, given, _ = drawn()
    teacher = decided(Teacher(Relabel(sure=0.0), given, 5), probs)
    assert teacher.kept.all()
    torch.testing.assert_close(teacher.targets.sum(1), torch.ones(len(given)))
    assert torch.equal(teacher.targets.argmax(1), teacher.labels_on_host)
    right = (teacher.labels_on_host == true).float().mean()
    assert abs(teacher.targets.amax(1).mean() - right) < 0.03


@pytest.mark.parametrize("soft", [True, False])
def test_rows_of_which_no_label_is_sure_are_left_out_until_one_is(soft):
    probs, true, given, _ = drawn()
    teacher = decided(Teacher(Relabel(soft=soft, sure=0.8, carry=0.0), given, 5), probs)
    targets = decided(Teacher(Relabel(sure=0.0), given, 5), probs).targets
    out = ~teacher.kept
    assert torch.equal(out, targets.amax(1) < 0.8)
    assert 0.05 < out.float().mean() < 0.5
    assert torch.equal(teacher.labels_on_host[out], given[out])
    right = (teacher.labels_on_host == true).float()
    assert right[~out].mean() > right.mean() + 0.03
    sure = torch.nn.functional.one_hot(true, 5).float() * 0.98 + 0.004
    assert decided(teacher, sure).kept.all()


def test_labels_that_are_right_stay():
    probs, true, _, _ = drawn()
    teacher = decided(Teacher(Relabel(), true, 5), probs)
    assert teacher.relabelled_fraction < 0.01


def test_a_later_model_does_not_change_everything_at_once():
    probs, _, given, _ = drawn()
    teacher = decided(Teacher(Relabel(carry=0.5, sure=0.0), given, 5), probs)
    labels = teacher.labels_on_host
    decided(teacher, probs.flip(1))
    last_alone = decided(Teacher(Relabel(carry=0.0, sure=0.0), given, 5), probs.flip(1)).labels_on_host
    assert (teacher.labels_on_host == labels).float().mean() > (last_alone == labels).float().mean()


def test_a_weak_model_teaches_nothing():
    given = drawn()[2]
    guesses = torch.softmax(torch.randn(len(given), 5, generator=torch.Generator().manual_seed(0)), 1)
    teacher = decided(Teacher(Relabel(), given, 5), guesses)
    assert torch.equal(teacher.labels_on_host, given)
    assert teacher.kept.all()


def test_a_class_that_would_vanish_keeps_its_labels():
    probs, _, given, _ = drawn()
    blind = probs.clone()
    blind[:, 2] = 0
    teacher = decided(Teacher(Relabel(), given, 5), blind / blind.sum(1, keepdim=True))
    rows = given == 2
    assert (teacher.labels_on_host[rows] == 2).all()
    assert teacher.kept[rows].all()
    assert (teacher.labels_on_host[~rows] != given[~rows]).any()


def test_a_model_that_is_sure_of_nothing_leaves_nothing_out():
    """All rows were left out, and the training said that it had diverged."""
    probs, _, given, _ = drawn(rate=0.0)
    teacher = decided(Teacher(Relabel(soft=False, sure=0.999999), given, 5), probs**0.01)
    assert teacher.kept.all()
    assert torch.equal(teacher.labels_on_host, given)
    strict = replace(TAUGHT[1], relabel=Relabel(start_epoch=2, every=1, soft=False, sure=0.9999999))
    assert np.isfinite(fit((TAUGHT[0], strict)).history[-1]["train_loss"])


def test_labels_that_somebody_has_checked_stay():
    probs, _, given, _ = drawn()
    trusted = np.arange(len(given)) % 2 == 0
    teacher = decided(Teacher(Relabel(), given, 5, trusted=trusted), probs)
    assert torch.equal(teacher.labels_on_host[trusted], given[trusted])
    assert teacher.kept[trusted].all()
    assert (teacher.labels_on_host != given).any()


# The step.


def test_the_average_follows_the_last_tenth_of_the_steps_then_fewer():
    values = torch.arange(1.0, 401.0)
    average = Average({"w": torch.zeros(1), "count": torch.zeros(1, dtype=torch.long)}, decay=0.95)
    for step, value in enumerate(values.tolist(), 1):
        average.follow({"w": torch.tensor([value]), "count": torch.tensor([step])})
        if step == 1:
            assert average.tensors["w"] == 1.0  # nothing is left of where it started
        if step == 100:
            assert 88 < average.tensors["w"] < 93
    torch.testing.assert_close(average.tensors["w"], torch.tensor([400.0 - 19.0]), rtol=1e-3, atol=0)
    assert average.tensors["count"] == 400


@pytest.mark.parametrize("decay_on", ["all", "matrices"])
def test_steps_are_those_of_torchs_optimiser(decay_on):
    recipe = quick(nesterov=True, weight_decay=0.1, decay_on=decay_on)
    ours, theirs = (build("mlp", 4, num_features=6, hidden=(8,)) for _ in range(2))
    groups = [p for p in theirs.parameters() if p.ndim > 1], [p for p in theirs.parameters() if p.ndim <= 1]
    spared = 0.0 if decay_on == "matrices" else 0.1
    optimizer = torch.optim.SGD(
        [{"params": groups[0]}, {"params": groups[1], "weight_decay": spared}],
        lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=0.1,
    )  # fmt: skip
    weights, x = Weights(ours, recipe, bf16=False), torch.randn(20, 6)
    for _ in range(3):
        for model, step in ((ours, weights.step), (theirs, optimizer.step)):
            model.zero_grad()
            model(x).square().mean().backward()
            step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_the_learning_rate_rises_and_falls_along_a_cosine():
    recipe = quick(epochs=10, lr=1.0, schedule="cosine", warm_up=0.2)
    assert [recipe.lr_at(epoch, part) for epoch, part in ((0, 0.0), (1, 0.0), (2, 0.0), (6, 0.0))] == [
        0,
        0.5,
        1,
        0.5,
    ]
    assert recipe.lr_at(9, 0.999) < 1e-4


def test_mixup_blends_inputs_and_labels_alike():
    share = draw_shares(1000, 0.5, torch.Generator().manual_seed(0))
    assert (share.mean() - 0.5).abs() < 0.05
    assert ((share < 0.1) | (share > 0.9)).float().mean() > 0.3  # Beta(1/2, 1/2) is at its ends
    labels = torch.arange(1000) % 4
    mixed = blend(one_hot(labels, 4), share)
    torch.testing.assert_close(mixed.sum(1), torch.ones(1000))
    assert mixed[3, 3] >= share[3] - 1e-6
    x = torch.rand(1000, 3, 2, 2).to(torch.bfloat16)
    assert blend(x, share).dtype == torch.bfloat16


def test_the_labels_of_rows_that_weigh_nothing_are_not_learnt_in_blends_either():
    """They came in with the other row's weight."""
    rows, weight = table(160), (np.arange(160) % 3 > 0).astype(float)
    recipe = replace(RECIPE, epochs=2, mixup=1.0)

    def weights_of(labels):
        result = train(rows.with_given_labels(labels), model="mlp", sample_weight=weight,
                       recipe=recipe, loss="cce", device="cpu", progress="quiet")  # fmt: skip
        return result.model.state_dict()

    others = np.where(weight == 0, (rows.given_labels + 1) % 4, rows.given_labels)
    torch.testing.assert_close(weights_of(rows.given_labels), weights_of(others), rtol=0, atol=0)
    assert not torch.equal(
        weights_of(rows.given_labels)["1.weight"], weights_of((rows.given_labels + 1) % 4)["1.weight"]
    )


def test_a_committee_predicts_the_mean_of_its_members():
    members = [build("mlp", 4, num_features=6, hidden=(8,), seed=seed) for seed in (0, 1)]
    committee, x = NetworkCommittee(members), torch.randn(7, 6)
    probs = torch.softmax(committee.eval()(x), 1)
    torch.testing.assert_close(probs, sum(torch.softmax(each(x), 1) for each in members) / 2)
    torch.testing.assert_close(committee.train()(x), torch.cat([each(x) for each in members]))


def test_a_mirror_is_looked_into_when_judging_alone():
    """The same weights as without, and the mean over both views."""
    data, test = pictures(96), pictures(40, 0.0, seed=1)
    recipe = replace(RECIPE, augment="flip", center="channel")  # a mean picture is not its mirror image
    plain, mirrored = (
        train(data, model="small-cnn", recipe=replace(recipe, mirror=mirror), test=test, **QUIET)
        for mirror in (False, True)
    )
    weights = {f"networks.0.{name}": tensor for name, tensor in plain.model.state_dict().items()}
    assert weights.keys() == mirrored.model.state_dict().keys()
    assert all(torch.equal(t, weights[name]) for name, t in mirrored.model.state_dict().items())
    flipped = replace(test, inputs=test.inputs[:, :, ::-1].copy())
    views = [np.exp(plain.predict_log_proba(each)) for each in (test, flipped)]
    assert not np.allclose(*views, atol=1e-4)
    probs = np.exp(mirrored.predict_log_proba(test))
    assert probs == pytest.approx((views[0] + views[1]) / 2, abs=1e-6)
    assert mirrored.test_accuracy == (probs.argmax(1) == test.true_labels).mean()
    with pytest.raises(ValueError, match=r"mirror is for pictures; got table rows\. Use mirror=False\."):
        train(table(), model="mlp", recipe=replace(recipe, mirror=True), **QUIET)


def test_pictures_go_through_a_method_side_by_side_and_after_a_stop(tmp_path):
    rounds = (
        Round(epochs=2, loss="lq"),
        Round(epochs=4, mixup=1.0, augment="strong", networks=2, relabel=Relabel(start_epoch=1)),
    )
    recipe = replace(RECIPE, augment="flip-crop", center="channel", mirror=True)
    job = Job(dataset=pictures(96), model="small-cnn", model_args={"width": 4}, loss="cce", recipe=recipe,
              rounds=rounds)  # fmt: skip
    alone = Fleet(device="cpu", progress="quiet").run_one(job)
    for result in Fleet(side_by_side=2, device="cpu", progress="quiet").run([job, job]):
        assert_same(result, alone)
    stopped = replace(job, checkpoint=tmp_path, callbacks=[Stopping(4)])
    with pytest.raises(KeyboardInterrupt):
        Fleet(device="cpu", progress="quiet").run([stopped])
    assert_same(Fleet(device="cpu", progress="quiet").run_one(replace(stopped, callbacks=())), alone)


def test_strong_augmentation_changes_pictures_within_limits():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, 32, 32, generator=generator)
    drawn = draw_distortion(64, generator)
    out = distort(x, **drawn)
    assert out.shape == x.shape
    assert (out != x).flatten(1).any(1).all()
    covered = (out == 0).all(1).flatten(1).float().mean(1)
    assert covered.max() <= (8 / 32) ** 2 + 0.01
    assert covered.mean() > 0.03
    still = {
        "affine": torch.eye(2, 3).repeat(64, 1, 1),
        "colour": torch.tensor([[0.0, 1.0, 1.0]]).repeat(64, 1),
    }
    torch.testing.assert_close(distort(x, **still, cover=torch.full((64, 2), -9.0)), x, rtol=1e-4, atol=1e-4)


def test_pictures_are_taught_too():
    rounds = (
        Round(epochs=3, loss="lq"),
        Round(epochs=3, mixup=1.0, augment="strong", relabel=Relabel(start_epoch=1)),
    )
    recipe = replace(RECIPE, augment="flip-crop", center="channel", scale="std")
    result = train(pictures(), model="small-cnn", model_args={"width": 8}, rounds=rounds, recipe=recipe,
                   device="cpu", progress="quiet")  # fmt: skip
    assert result.history[-1]["relabelled_fraction"] > 0


# What cannot run.


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        (
            (Round(epochs=2, relabel=Relabel(start_epoch=0)),),
            "relabels from epoch 0 on, where the model has seen no",
        ),
        ((Round(epochs=2, fresh=False),), "no network before it to go on with"),
        (
            (Round(epochs=2), Round(epochs=2, fresh=False, networks=2)),
            "networks must be the same; got 2",
        ),
        ((Round(epochs=2, loss="lqq"),), "lqq"),
        ((Round(epochs=2, mixup=-1.0),), "mixup must be a finite number of at least 0"),
    ],
)
def test_a_round_that_cannot_run_is_refused_before_the_first_epoch(rounds, message):
    with pytest.raises(ValueError, match=message):
        fit(rounds)


def test_values_of_rounds_are_checked():
    with pytest.raises(ValueError, match="prune or relabel, not both"):
        Round(epochs=2, prune=PruneSchedule(1, 1, 0.5), relabel=Relabel())
    with pytest.raises(ValueError, match=r"sure must be in \[0, 1\); got 1.5"):
        Relabel(sure=1.5)
    with pytest.raises(ValueError, match=r"unknown round key 'epoch'\. Did you mean 'epochs'"):
        Round.from_dict({"epoch": 3})
    with pytest.raises(ValueError, match="networks must be 1 for a module of one's own"):
        fit(model=nn.Linear(6, 4))
    assert Round.from_dict(TAUGHT[1].to_dict()) == TAUGHT[1]


def test_shares_of_labels_need_a_loss_that_takes_them():
    class OwnLoss(nn.Module):
        def forward(self, logits, labels):
            return nn.functional.nll_loss(logits.log_softmax(1), labels)

    rows: NoisyDataset = table()
    recipe = replace(quick(), mixup=1.0)
    with pytest.raises(ValueError, match="mixup needs a loss that takes probabilities of classes"):
        train(rows, model="mlp", loss=OwnLoss(), recipe=recipe, device="cpu", progress="quiet")
    job = Job(dataset=rows, model="mlp", loss=OwnLoss(), recipe=quick(), relabel=Relabel())
    with pytest.raises(ValueError, match=r"relabel needs a loss .* or Relabel\(soft=False\)"):
        check_job(job, job.split()[0])
