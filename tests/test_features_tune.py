"""Training a pretrained network further, by what its features tell of the labels."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from data_makers import write_tiny_vit
from own_data_helpers import tolerant
from PIL import Image

from tolerant import NoisyLabelClassifier
from tolerant.data.dataset import NoisyDataset
from tolerant.data.features import extract, load_body, load_extractor
from tolerant.data.standardise import Preprocess
from tolerant.own_data import Settings, load_run, task, tuned
from tolerant.own_data.choose_features import to_tune
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant
from tolerant.own_data.doubts import find_doubts
from tolerant.own_data.learn import learn
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.train import Recipe, build
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.networks.network_committee import NetworkCommittee

COLOURS = np.array([[200, 40, 40], [40, 40, 200]])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    """The name of a tiny transformer for pictures."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    write_tiny_vit(folder)
    return f"hf:{folder}"


tuned_halves = tuned._halves


def named(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def build_like(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
    copied = copy.deepcopy(model)
    copied.load_state_dict({**copied.state_dict(), **weights})
    return copied


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """240 in two colours, with their true and given labels; one in ten is wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 240)
    noise = rng.normal(0, 40, (240, 30, 34, 3))
    given = np.where(rng.random(240) < 0.1, 1 - true, true)
    return np.clip(COLOURS[true][:, None, None] + noise, 0, 255).astype(np.uint8), true, given


def test_it_learns_what_the_features_tell_and_keeps_a_part_of_what_it_was(tiny, pictures):
    images, true, given = pictures
    model = NoisyLabelClassifier(features=tiny, tune=True, epochs=4, folds=2, random_state=0)
    model.fit(images, given)
    assert (model.predict(images) == true).mean() > 0.95
    suspects = model.suspects_
    assert (given != true)[suspects.index].mean() > 0.9
    assert (suspects.trained_as == true[suspects.index]).mean() > 0.9
    before, after = load_body(tiny).net.state_dict(), model.model_.networks[0].body.state_dict()
    assert not any(torch.equal(before[name], after[name].cpu()) for name in before)


def test_it_begins_as_a_discriminant_of_its_features(tiny, pictures):
    images, _, given = pictures
    found = extract(images, load_extractor(tiny, "image"))
    features = found[np.arange(len(found))]
    discriminant = RoundDiscriminant().fit(features, given)
    model = NetworkCommittee([build("pretrained", 2, features=tiny)], mirror=True)
    tuned._begin(model, discriminant, features)
    rows = NoisyDataset(images, given, None, ("red", "blue"), None, "image")
    plain = Preprocess.fit(images, "image", Recipe(center="none", scale="unit"))
    # Features are the mean over a picture and its mirror image, in 16 bits; here probabilities are.
    probs = np.exp(predict_log_proba(model, rows, plain))
    np.testing.assert_allclose(probs, discriminant.predict_proba(features), atol=0.02)


def test_each_half_is_judged_by_the_network_that_has_not_learnt_it(tiny, pictures, monkeypatch):
    """And the weights are the mean of both, each a part of the way from where it began."""
    images, _, given = pictures
    halves: list[tuned._Half] = []
    mean = tuned._mean
    monkeypatch.setattr(tuned, "_halves", lambda *args: halves.extend(tuned_halves(*args)) or halves)
    ends: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr(
        tuned, "_mean", lambda results: ends.extend(named(each.model) for each in results) or mean(results)
    )
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        task, "find_doubts", lambda *args, **options: asked.append(options) or find_doubts(*args, **options)
    )
    rows = NoisyDataset(images, given, None, ("red", "blue"), None, "image")
    learned = learn(rows, to_tune(Settings(epochs=1), tiny), folds=2, device="cpu", progress="quiet")
    assert asked[-1]["rate_probs"] is learned.rate_probs
    assert sorted(np.concatenate([half.held_out for half in halves])) == list(range(len(rows)))
    for half, other, end in zip(halves, reversed(halves), ends, strict=True):
        assert np.array_equal(half.held_out, other.used)
        model = build_like(learned.result.model, end)
        own = np.exp(predict_log_proba(model, rows.subset(half.held_out), learned.result.preprocess))
        both = (learned.rate_probs[half.held_out] + own) / 2
        np.testing.assert_allclose(learned.probs[half.held_out], both, atol=1e-6)
    for name, weight in named(learned.result.model).items():
        torch.testing.assert_close(weight, (ends[0][name] + ends[1][name]) / 2)


def test_rare_classes_count_as_for_any_classifier(tiny, pictures):
    images, _, given = pictures
    kept = np.flatnonzero((given == 0) | (np.arange(len(given)) % 6 == 0))
    options = {"features": tiny, "tune": True, "epochs": 1, "folds": 2, "random_state": 0}
    plain, balanced = (
        NoisyLabelClassifier(class_weight=each, **options).fit(images[kept], given[kept])
        for each in ("none", "balanced")
    )
    share = np.bincount(given[kept]) / len(kept)
    moved = [each.model_.networks[0].last.bias.detach().numpy() for each in (plain, balanced)]
    np.testing.assert_allclose(moved[1] - moved[0], -np.log(share), atol=1e-5)


def test_labels_are_doubted_as_if_no_row_had_weighed_more(tiny, pictures, monkeypatch):
    class Said(OutOfFold):
        def unweighted(self, given_labels, sample_weight):
            assert np.array_equal(sample_weight, weight)
            return OutOfFold(np.full_like(self.probs, 0.5), self.held_out)

    images, _, given = pictures
    weight = np.where(given == 1, 9.0, 1.0)
    monkeypatch.setattr(tuned, "OutOfFold", Said)
    rows = NoisyDataset(images, given, None, ("red", "blue"), None, "image")
    settings = to_tune(Settings(epochs=1), tiny)
    learned = learn(rows, settings, folds=2, sample_weight=weight, device="cpu", progress="quiet")
    np.testing.assert_allclose(learned.probs, (learned.rate_probs + 0.5) / 2, atol=1e-6)


def test_a_reviewed_label_is_not_unlearnt(tiny, pictures, monkeypatch):
    """What somebody has decided is taught as it is."""
    images, true, given = pictures
    wrong = np.flatnonzero(given != true)
    reviewed = np.isin(np.arange(len(given)), wrong)
    rows = NoisyDataset(images, given, None, ("red", "blue"), None, "image")
    settings = to_tune(Settings(epochs=1), tiny)
    learned = learn(rows, settings, folds=2, reviewed=reviewed, device="cpu", progress="quiet")
    assert (learned.trained_as[wrong] == given[wrong]).all()
    learned = learn(rows, settings, folds=2, device="cpu", progress="quiet")
    assert (learned.trained_as[wrong] == true[wrong]).mean() > 0.9


def test_it_goes_on_from_the_last_fit(tiny, pictures, monkeypatch):
    images, _, given = pictures
    options = {"features": tiny, "tune": True, "epochs": 1, "folds": 2, "random_state": 0}
    model = NoisyLabelClassifier(warm_start=True, **options).fit(images, given)
    first = model.predict_proba(images)
    monkeypatch.setattr(tuned, "_LEARNT", 0.0)
    np.testing.assert_allclose(model.fit(images, given).predict_proba(images), first, atol=1e-6)


@pytest.mark.gpu
def test_a_captured_step_trains_the_bundled_network(pictures):
    images, true, given = pictures
    model = NoisyLabelClassifier(features="lite0", tune=True, folds=2, random_state=0, device="cuda")
    assert (model.fit(images, given).predict(images) == true).mean() > 0.95


def test_the_body_computes_as_in_prediction_while_it_learns(tiny):
    net = build("pretrained", 3, features=tiny).train()
    assert net.training
    assert not any(part.training for part in net.body.modules())
    net(torch.rand(4, 3, 28, 28)).sum().backward()
    assert all(weight.grad is not None for weight in net.head.parameters())
    assert any(weight.grad is not None for weight in net.body.parameters())


def test_the_layers_of_the_largest_maps_stay_as_they_are():
    net = build("pretrained", 3).train()
    net(torch.rand(2, 3, 32, 32)).sum().backward()
    body = net.body.net
    learns = [all(weight.grad is not None for weight in block.parameters()) for block in body._blocks]
    assert learns == [False] * 3 + [True] * 13
    assert body._conv_stem.weight.grad is None
    assert body._conv_head.bias.grad is not None


def test_a_new_head_sees_the_features_of_the_extractor():
    """Pixels of 0 to 1, as a recipe without centring gives them, to what `lite0` gives for the picture."""
    picture = np.random.default_rng(0).integers(0, 256, (1, 40, 48, 3), np.uint8)
    net = build("pretrained", 3, image_size=(40, 48)).eval()
    seen: list[torch.Tensor] = []
    net.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        net(torch.from_numpy(picture).permute(0, 3, 1, 2) / 255)
    want = load_extractor("lite0", "image")(picture)[0, 0]
    np.testing.assert_allclose(seen[0][0], want, atol=2e-4)


def test_pictures_that_the_network_enlarges_are_scored_in_smaller_parts(tiny, monkeypatch):
    net, sizes = build("pretrained", 2, features=tiny).eval(), []
    monkeypatch.setattr(net.frame, "size", 320)
    monkeypatch.setattr(net, "forward", lambda x: sizes.append(len(x)) or x.mean((2, 3))[:, :2])
    images = np.zeros((7, 32, 32, 3), np.uint8)
    rows = NoisyDataset(images, np.zeros(7, np.int64), None, ("a", "b"), None, "image")
    predict_log_proba(net, rows, Preprocess.fit(images, "image", Recipe()))
    assert sizes == [4, 3]  # of 320 pixels five fit where 500 of 32 do


def test_the_command_trains_and_labels_new_pictures(tiny, pictures, tmp_path):
    images, true, given = pictures
    for number, (image, label) in enumerate(zip(images, given, strict=True)):
        path = tmp_path / "pictures" / ("red", "blue")[label] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    words = ("--features", tiny, "--tune", "--epochs", 3, "--folds", 2)
    said = tolerant("train", tmp_path / "pictures", "--out", tmp_path / "run", *words)
    assert "--tune" in said.split("Next")[-1]  # in the command that it suggests next
    assert "itself learns from 240 pictures, in 3 epochs" in said
    assert "So few teach it little" in said
    run = load_run(tmp_path / "run")
    assert (run.spec["model"], run.spec["model_args"]) == ("pretrained", {"features": tiny})
    assert "trained_as" in (tmp_path / "run" / "suspects.csv").read_text().splitlines()[0]
    tolerant("predict", tmp_path / "run", tmp_path / "pictures", "--out", tmp_path / "new.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()[1:]
    rows = {int(line.split("/")[1].split(".")[0]): line.split(",")[1] for line in lines}
    right = [rows[number] == ("red", "blue")[label] for number, label in enumerate(true)]
    assert np.mean(right) > 0.9
    again = run.suspects(run.load_rows()).to_frame()
    written = (tmp_path / "run" / "suspects.csv").read_text().splitlines()[1:]
    assert [line.split(",")[2] for line in written] == again["id"].tolist()
    moved = np.array(run.spec["doubt_prior"]), run.spec["doubt_tau"]
    doubted = find_doubts(run.audit["given_labels"], run.audit["rate_probs"], *moved, of_true=True)
    assert run.suspects(run.load_rows()).noise_rate == doubted.noise_rate


def test_only_pictures_can_be_tuned():
    model = NoisyLabelClassifier(tune=True, features="lite0", epochs=1, folds=2)
    with pytest.raises(ValueError, match=r"tune \(--tune\) trains a network for pictures"):
        model.fit(np.ones((40, 3)), [0, 1] * 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "lite0", "tune": "none"}, "tune must be True or False; got 'none'"),
        ({}, r"tune \(--tune\) needs a pretrained network: features='lite0'"),
        ({"features": "lite0", "model": "resnet18"}, "leave out model='resnet18'"),
        ({"features": "torch:x.pt2"}, r"cannot be trained further; these can: lite0.*timm:MODEL"),
        ({"features": "lite00"}, "Did you mean 'lite0'"),
        ({"features": "minilm"}, "minilm is for texts, and these rows are pictures"),
        ({"features": "lite0", "folds": 0}, r"needs folds.*got folds=0 \(--folds 0\).*Leave folds out"),
        ({"features": "lite0", "q": 0.5}, "leaves q nothing to say; got q=0.5"),
        ({"features": "lite0", "method": "rounds"}, "leaves method nothing to say; got method='rounds'"),
    ],
)
def test_what_cannot_be_tuned_is_said(options, message, pictures):
    images, _, given = pictures
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(**{"epochs": 1, "folds": 2, "tune": True, **options}).fit(images, given)
