"""Training a pretrained network further: its last layer, or all of it."""

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
from tolerant.own_data import load_run
from tolerant.train import Recipe, build
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.weights import Weights
from tolerant.train.networks.network_committee import NetworkCommittee

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


@pytest.mark.parametrize("tune", ["head", "all"])
def test_what_is_tuned_learns_and_the_rest_stays(tune, tiny, pictures):
    images, true, given = pictures
    model = NoisyLabelClassifier(features=tiny, tune=tune, epochs=6, folds=2, random_state=0, lr=5e-3)
    model.fit(images, given)
    assert (model.predict(images) == true).mean() > 0.95
    assert (given != true)[model.suspects_.index].mean() > 0.9
    before, after = load_body(tiny).net.state_dict(), model.model_.networks[0].body.state_dict()
    same = [torch.equal(before[name], after[name].cpu()) for name in before]
    assert all(same) if tune == "head" else not any(same)


@pytest.mark.gpu
@pytest.mark.parametrize("tune", ["head", "all"])
def test_a_captured_step_trains_the_bundled_network(tune, pictures):
    images, true, given = pictures
    model = NoisyLabelClassifier(
        features="lite0", tune=tune, epochs=6, folds=0, random_state=0, device="cuda"
    ).fit(images, given)
    assert (model.predict(images) == true).mean() > 0.95


def test_the_statistics_of_a_body_stay_with_its_weights():
    net = build("pretrained", 3, image_size=(28, 28), tune="head")
    before = {name: tensor.clone() for name, tensor in net.body.named_buffers()}
    net.train()(torch.rand(4, 3, 28, 28))
    assert all(torch.equal(before[name], tensor) for name, tensor in net.body.named_buffers())


def test_a_body_learns_more_slowly_in_a_committee_too():
    net = build("pretrained", 3, image_size=(28, 28))
    committee = NetworkCommittee([net], mirror=True)
    named = dict(committee.named_parameters())
    slow = {name: weight for name, weight in named.items() if committee.lr_scales.get(name, 1.0) < 1.0}
    assert {id(weight) for weight in slow.values()} == {id(weight) for weight in net.body.parameters()}
    assert committee.lr_scales.keys() == slow.keys()


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


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_body_learns_at_a_tenth_of_the_rate(optimizer, tiny):
    net = build("pretrained", 3, features=tiny).train()
    recipe = Recipe(optimizer=optimizer, lr=0.01, momentum=0.0, weight_decay=0.0)
    weights = Weights(net, recipe, bf16=False)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    weights.step()
    for name, parameter in net.named_parameters():
        moved = (before[name] - parameter.detach()).mean()
        assert moved == pytest.approx(0.001 if name.startswith("body.") else 0.01, rel=1e-3), name


def test_the_command_trains_and_labels_new_pictures(tiny, pictures, tmp_path):
    images, true, given = pictures
    for number, (image, label) in enumerate(zip(images, given, strict=True)):
        path = tmp_path / "pictures" / ("red", "blue")[label] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    words = ("--features", tiny, "--tune", "all", "--epochs", 3, "--folds", 0)
    said = tolerant("train", tmp_path / "pictures", "--out", tmp_path / "run", *words)
    assert "--tune all" in said  # in the command that it suggests next
    spec = load_run(tmp_path / "run").spec
    assert (spec["model"], spec["model_args"]) == ("pretrained", {"features": tiny, "tune": "all"})
    tolerant("predict", tmp_path / "run", tmp_path / "pictures", "--out", tmp_path / "new.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()[1:]
    rows = {int(line.split("/")[1].split(".")[0]): line.split(",")[1] for line in lines}
    right = [rows[number] == ("red", "blue")[label] for number, label in enumerate(true)]
    assert np.mean(right) > 0.8


def test_only_pictures_can_be_tuned():
    model = NoisyLabelClassifier(tune="head", features="lite0", epochs=1, folds=0)
    with pytest.raises(ValueError, match=r"tune='head' \(--tune head\) trains a network for pictures"):
        model.fit(np.ones((40, 3)), [0, 1] * 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": "tail", "features": "lite0"}, "tune must be head, all or none; got 'tail'"),
        ({"tune": "all"}, r"tune='all' \(--tune all\) needs a pretrained network: features='lite0'"),
        ({"tune": "all", "features": "lite0", "model": "resnet18"}, "leave out model='resnet18'"),
        (
            {"tune": "all", "features": "torch:x.pt2"},
            r"cannot be trained further; these can: lite0.*timm:MODEL",
        ),
        ({"tune": "all", "features": "lite00"}, "Did you mean 'lite0'"),
        ({"tune": "all", "features": "minilm"}, "minilm is for texts, and these rows are pictures"),
    ],
)
def test_what_cannot_be_tuned_is_said(options, message, pictures):
    images, _, given = pictures
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(epochs=1, folds=0, **options).fit(images, given)
