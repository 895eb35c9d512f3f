"""The networks: sizes, shapes, seeds, and what they refuse; every card, for all that it takes."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tolerant.train import NETWORKS, build

SIZES = {
    "image": ({"in_channels": 1, "image_size": (28, 28)}, (4, 1, 28, 28)),
    "table": ({"num_features": 5}, (4, 5)),
}
TAKEN = [(name, kind) for name, card in NETWORKS.items() for kind in card.takes]


@pytest.mark.parametrize(("name", "kind"), TAKEN)
def test_every_network_learns_from_every_weight(name, kind):
    size, batch = SIZES[kind]
    model = build(name, 7, **size)
    logits = model(torch.randn(batch))
    assert logits.shape == (4, 7)
    torch.nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    learnt = [weight for weight in model.parameters() if weight.requires_grad]
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in learnt)
    assert len(learnt) == len([*model.parameters()]) or name == "pretrained"  # which leaves some as they came


@pytest.mark.parametrize(("name", "kind"), TAKEN)
def test_weights_come_from_the_seed_alone(name, kind):
    size, _ = SIZES[kind]
    torch.manual_seed(5)
    first = build(name, 3, seed=1, **size).state_dict()
    drawn = torch.rand(1)
    again = build(name, 3, seed=1, **size).state_dict()
    other = build(name, 3, seed=2, **size).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))  # the caller's generator is where it was


@pytest.mark.parametrize(("name", "millions"), [("resnet18", 11.174), ("resnet34", 21.282)])
def test_resnets_have_the_published_size(name, millions):
    model = build(name, 10)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=1e-3)


def _multiplications(name: str, **shape: int | tuple[int, int]) -> float:
    """Multiplications of one picture in convolutions and dense layers."""
    model, total = build(name, 10, **shape).eval(), 0

    def count(module, inputs, output):
        nonlocal total
        total += output[0, 0].numel() * module.weight.numel()

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    size = shape.get("image_size", (32, 32))
    model(torch.randn(1, shape.get("in_channels", 3), *size))
    return total


def test_cost_of_a_picture_is_the_one_mfu_is_counted_with(monkeypatch):
    """Training costs three passes of two operations a multiplication."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    gflop = importlib.import_module("tables").GFLOP
    assert 6e-9 * _multiplications("resnet34") == pytest.approx(gflop["resnet34"], rel=1e-3)
    small = _multiplications("resnet18", in_channels=1, image_size=(28, 28))
    assert 6e-9 * small == pytest.approx(gflop["resnet18"], rel=1e-3)


def test_cnn8_is_table_2s():
    model = build("cnn8", 10)
    widths = [m.out_channels for m in model if isinstance(m, nn.Conv2d)]
    assert widths == [64, 64, 128, 128, 196, 196]
    dense = [m.out_features for m in model if isinstance(m, nn.Linear)]
    assert dense == [256, 10]
    assert sum(isinstance(m, nn.BatchNorm1d) for m in model) == 1
    for dense, relus in (("relu", 1), ("linear", 0)):
        other = build("cnn8", 10, dense=dense)
        assert not any(isinstance(m, nn.BatchNorm1d) for m in other)
        assert sum(isinstance(m, nn.ReLU) for m in other) == relus
    with pytest.raises(ValueError, match="dense must be one of norm-relu, relu, linear; got 'tanh'"):
        build("cnn8", 10, dense="tanh")


def test_cnn8s_dense_layer_can_have_a_penalty_of_its_own():
    """The same network, and the gradient of the loss plus that of dense_l2 times the squared norm."""
    pictures = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    gradients = []
    for options in ({}, {"dense_l2": 0.01}):
        model = build("cnn8", 10, image_size=(8, 8), seed=3, **options)
        model(pictures).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    weight = dict(model.named_parameters())
    (dense,) = (name for name, p in weight.items() if p.ndim == 2 and len(p) == 256)
    gradients[0][dense] += 2 * 0.01 * weight[dense].detach()
    for name in weight:
        torch.testing.assert_close(gradients[1][name], gradients[0][name], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="dense_l2 must be a finite number of at least 0; got -1"):
        build("cnn8", 10, dense_l2=-1)


def test_initialisations_have_their_sizes():
    """Standard deviations of a 3 x 3 convolution between 128 channels."""
    n = 9 * 128
    expected = {"torch": (3 * n) ** -0.5, "he": (2 / n) ** 0.5, "glorot": n**-0.5}
    for init, size in expected.items():
        model = build("cnn8", 10, init=init)
        conv = next(m for m in model if isinstance(m, nn.Conv2d) and m.in_channels == 128 == m.out_channels)
        assert float(conv.weight.detach().std()) == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize(("name", "kind"), TAKEN)
def test_dropout_is_used(name, kind):
    size, batch = SIZES[kind]
    model = build(name, 3, dropout=0.5, **size)
    x = torch.randn(batch)
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_card_says_what_its_network_is_and_has_options_with_defaults(name):
    card = NETWORKS[name]
    assert re.fullmatch(r"\S.{20,100}[.]", card.summary)
    for option in inspect.signature(card.make).parameters.values():
        assert (option.name in card.options) == (option.default is not option.empty)
        assert option.annotation is not option.empty


def test_the_widths_of_mlp():
    model = build("mlp", 3, num_features=5, hidden=(8, 4))
    assert [m.out_features for m in model if isinstance(m, nn.Linear)] == [8, 4, 3]


def test_what_a_network_does_not_take_is_said(monkeypatch):
    card = replace(NETWORKS["mlp"], name="columns", takes=("table",))
    monkeypatch.setitem(NETWORKS, "columns", card)
    with pytest.raises(ValueError, match=r"'columns' takes tables, not pictures\. Use 'mlp' or .*'resnet34'"):
        build("columns", 3)
    with pytest.raises(ValueError, match=r"not rows of 5 features\. Use 'mlp' or .*'columns'"):
        build("cnn8", 3, num_features=5)


def test_refusals():
    with pytest.raises(ValueError, match="Did you mean 'resnet34'"):
        build("resnet43", 10)
    with pytest.raises(TypeError, match=r"model 'mlp' has no option 'width'\. It takes: init, hidden\."):
        build("mlp", 10, width=64)
    for width in (0, -1, 2.5, True, "8"):
        with pytest.raises(ValueError, match="width must be a whole number of at least 1; got"):
            build("small-cnn", 10, width=width)
        with pytest.raises(ValueError, match="hidden must be widths of 1 or more, as in"):
            build("mlp", 10, hidden=(8, width))
    with pytest.raises(ValueError, match="num_classes must be a whole number of at least 2; got 1"):
        build("mlp", 1)
    with pytest.raises(ValueError, match=r"at least \(8, 8\)"):
        build("cnn8", 3, image_size=(4, 32))
