"""Training a pretrained network further, by what its features tell of the labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from data_makers import write_tiny_vit
from own_data_helpers import tolerant
from PIL import Image

from tolerant import NoisyLabelClassifier
from tolerant.data.dataset import NoisyDataset
from tolerant.data.features import load_body
from tolerant.data.standardise import Preprocess
from tolerant.own_data import Settings, load_run, tuned
from tolerant.own_data.choose_features import to_tune
from tolerant.own_data.classifiers import learn_committee
from tolerant.own_data.learn import learn
from tolerant.train import Recipe, build
from tolerant.train.engine.evaluate import predict_log_proba

COLOURS = np.array([[200, 40, 40], [40, 40, 200]])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    """The name of a tiny transformer for pictures."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    write_tiny_vit(folder)
    return f"hf:{folder}"


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


def test_it_begins_as_the_discriminant_of_its_features(tiny, pictures, monkeypatch):
    images, _, given = pictures
    monkeypatch.setattr(tuned, "_LEARNT", 0.0)
    options = {"features": tiny, "folds": 2, "random_state": 0}
    model = NoisyLabelClassifier(tune=True, epochs=1, **options).fit(images, given)
    with monkeypatch.context() as patch:
        patch.setattr(learn_committee, "teach", lambda classifier, *_: classifier)
        features = NoisyLabelClassifier(**options).fit(images, given)
    # Features are stored in 16 bits, and are the mean over mirror images; here logits are.
    np.testing.assert_allclose(model.predict_proba(images), features.predict_proba(images), atol=0.02)
    assert model.suspects_.index.tolist() == features.suspects_.index.tolist()


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


def test_a_new_head_sees_the_features_of_the_extractor():
    """Pixels of 0 to 1, as a recipe without centring gives them, to what `lite0` gives for the picture."""
    from tolerant.data.features import load_extractor

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
    run = load_run(tmp_path / "run")
    assert (run.spec["model"], run.spec["model_args"]) == ("pretrained", {"features": tiny})
    assert "trained_as" in (tmp_path / "run" / "suspects.csv").read_text().splitlines()[0]
    tolerant("predict", tmp_path / "run", tmp_path / "pictures", "--out", tmp_path / "new.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()[1:]
    rows = {int(line.split("/")[1].split(".")[0]): line.split(",")[1] for line in lines}
    right = [rows[number] == ("red", "blue")[label] for number, label in enumerate(true)]
    assert np.mean(right) > 0.9
    again = run.suspects(run.load_rows()).to_frame()
    assert (again["trained_as"] != again["given_label"]).mean() > 0.9


def test_only_pictures_can_be_tuned():
    model = NoisyLabelClassifier(tune=True, features="lite0", epochs=1, folds=2)
    with pytest.raises(ValueError, match=r"tune \(--tune\) trains a network for pictures"):
        model.fit(np.ones((40, 3)), [0, 1] * 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
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
