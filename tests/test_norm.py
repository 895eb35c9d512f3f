"""The fused batch norm against torch's: on a GPU, or in Triton's interpreter on the CPU (`test_triton`)."""

from __future__ import annotations

import copy
import statistics

import pytest
import torch
from interpreted import DEVICE, from_outside, on_device
from torch import Tensor, nn

from tolerant.kernels import batch_norm as kernels
from tolerant.kernels import can
from tolerant.train import build
from tolerant.train.networks.norm import BatchNorm


def fused(norm: BatchNorm, x: Tensor, residual: Tensor | None) -> Tensor:
    return kernels.norm_relu(x, residual, norm, norm.relu, norm.tickets())


def plain(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    out = nn.functional.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, norm.momentum, norm.eps
    )
    out = out if residual is None else out + residual
    return out.relu() if relu else out


def case(shape, *, far=0.0, relu=True, residual=True, dtype=torch.float32, seed=0):
    """The fused norm's output, gradients and statistics, and torch's in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.randn(*size, generator=generator).to(DEVICE)

    norm = BatchNorm(shape[1], relu=relu).to(DEVICE)
    with torch.no_grad():
        norm.weight.copy_(draw(shape[1]))
        norm.bias.copy_(draw(shape[1]))
        norm.running_mean.copy_(draw(shape[1]))
    x, other, dy = ((draw(*shape) + far) if i == 0 else draw(*shape) for i in range(3))
    x, other, dy = (t.to(dtype, memory_format=torch.channels_last) for t in (x, other, dy))
    results = []
    for exact in (False, True):
        mine = copy.deepcopy(norm).double() if exact else copy.deepcopy(norm)
        inputs = [t.double() if exact else t.clone() for t in ((x, other) if residual else (x,))]
        inputs = [t.requires_grad_() for t in inputs]
        given = inputs[1] if residual else None
        if exact:
            y = plain(mine, inputs[0], given, relu)
            mine.num_batches_tracked += 1
        else:
            y = fused(mine, inputs[0], given)
        y.backward(dy.to(y.dtype))
        named = {"y": y.detach(), "weight": mine.weight.grad, "bias": mine.bias.grad}
        named |= {f"input {i}": t.grad for i, t in enumerate(inputs)}
        named |= {f"buffer {n}": b for n, b in mine.named_buffers()}
        results.append(named)
    return results


SHAPES = [(4, 16, 5, 3), (3, 20, 7, 7), (2, 130, 2, 1)]


@on_device
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("relu", "residual"), [(True, True), (True, False), (False, False), (False, True)])
def test_values_and_gradients(shape, relu, residual):
    ours, exact = case(shape, relu=relu, residual=residual)
    for name, truth in exact.items():
        torch.testing.assert_close(
            ours[name].double(), truth.double(), rtol=2e-5, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


@on_device
def test_values_far_from_zero_keep_their_digits():
    """Mean 1000, deviation 1: a sum of squares in fp32 would have no digit of the variance left."""
    ours, exact = case((4, 16, 8, 8), far=1000.0)
    torch.testing.assert_close(ours["y"].double(), exact["y"], rtol=1e-3, atol=1e-3)
    variance = "buffer running_var"
    torch.testing.assert_close(ours[variance].double(), exact[variance], rtol=1e-5, atol=0.0)


@on_device
def test_bf16_is_rounded_once():
    ours, exact = case((4, 16, 5, 5), dtype=torch.bfloat16)
    assert ours["y"].dtype == ours["input 0"].dtype == torch.bfloat16
    assert ours["weight"].dtype == torch.float32
    torch.testing.assert_close(ours["y"].double(), exact["y"], rtol=2**-7, atol=1e-4)
    torch.testing.assert_close(ours["weight"].double(), exact["weight"], rtol=1e-2, atol=2e-2)


@on_device
def test_many_programs_agree_with_one(monkeypatch):
    few = case((4, 16, 6, 6))[0]
    monkeypatch.setattr(kernels, "SUM_TILE", 64)
    kernels._cut.cache_clear()
    try:
        many = case((4, 16, 6, 6))[0]
        again = case((4, 16, 6, 6))[0]
    finally:
        kernels._cut.cache_clear()
    for name, value in few.items():
        torch.testing.assert_close(many[name], value, rtol=1e-5, atol=1e-5)
        assert torch.equal(many[name], again[name])


@on_device
def test_not_a_number_is_not_hidden():
    norm = BatchNorm(16).to(DEVICE)
    x = torch.full((2, 16, 2, 2), float("nan"), device=DEVICE).to(memory_format=torch.channels_last)
    assert fused(norm, x, None).isnan().all()


@on_device
def test_scoring_without_gradients(monkeypatch):
    monkeypatch.setattr(can, "run_norm", lambda x, residual: True)
    norm = BatchNorm(16).to(DEVICE).eval()
    generator = torch.Generator().manual_seed(0)
    x, other = (torch.randn(3, 16, 5, 4, generator=generator).to(DEVICE) for _ in range(2))
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.copy_(torch.rand(16, generator=generator) + 0.5)
        x = x.to(memory_format=torch.channels_last)
        found = norm(x, other)
    expected = (nn.BatchNorm2d.forward(norm, x) + other).relu()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["resnet18", "cnn8"])
def test_a_network_is_as_near_the_truth_as_with_torchs(name, monkeypatch):
    """Backward passes in fp32, with the fused norms and with torch's, against float64.

    Medians over batches: where rounding turns a ReLU or a maximum over, an error is ten times the usual one.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    errors = {"fused": [], "torch": []}
    for seed in range(9):
        generator = torch.Generator("cuda").manual_seed(seed)
        x = torch.rand(32, 3, 32, 32, device="cuda", generator=generator)
        x = x.to(memory_format=torch.channels_last)
        y = torch.randint(10, (32,), device="cuda", generator=generator)
        found = {}
        for kind, dtype in (("fused", torch.float32), ("torch", torch.float32), ("exact", torch.float64)):
            monkeypatch.setattr(can, "device_has_triton", lambda _, kind=kind: kind == "fused")
            model = build(name, 10).cuda().to(dtype, memory_format=torch.channels_last).train()
            nn.functional.cross_entropy(model(x.to(dtype)), y).backward()
            found[kind] = torch.cat([p.grad.flatten().double() for p in model.parameters()])
        for kind, each in errors.items():
            each.append(float((found[kind] - found["exact"]).norm() / found["exact"].norm()))
    fused, plain = map(statistics.median, errors.values())
    # Which batches have such a turn differs between the two, and a median may be one of them (cnn8, five
    # batches, H200: 3.2e-4 against 1.0e-4). So what is below a thousandth passes, whatever the other has.
    assert fused < max(3 * plain, 1e-3), errors
    assert fused < 0.01


@pytest.mark.gpu
def test_tickets_of_a_capture_are_its_own():
    """Zeros that a graph will fill are not there yet for a step outside of it."""
    norm, warm = BatchNorm(16).cuda(), BatchNorm(16).cuda()
    x = torch.randn(4, 16, 5, 5, device="cuda").to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = warm(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = norm(x)
        assert norm._tickets is None
        assert torch.equal(norm(x), expected)
        for _ in range(2):
            graph.replay()
            assert torch.equal(captured, expected)


@from_outside
def test_on_a_cpu_it_is_torchs_own():
    norm, x, other = BatchNorm(5), torch.randn(3, 5, 4, 4), torch.randn(3, 5, 4, 4)
    reference = copy.deepcopy(norm)
    assert torch.equal(norm(x, other), plain(reference, x, other, relu=True))
    assert norm.num_batches_tracked == 1
    norm.eval()
    reference.eval()
    expected = nn.BatchNorm2d.forward(reference, x)
    assert torch.equal(BatchNorm.forward(norm, x), expected.relu())


@from_outside
def test_statistics_of_all_batches_alike_are_torchs_own(monkeypatch):
    """momentum=None, torch's cumulative mean: the kernel knows a fixed momentum alone."""
    monkeypatch.setattr(can, "run_norm", lambda x, residual: True)
    norm, reference = BatchNorm(5, relu=False), nn.BatchNorm2d(5, momentum=None)
    norm.momentum = None
    for seed in range(3):
        x = torch.randn(3, 5, 4, 4, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(norm(x), reference(x))
    assert torch.equal(norm.running_mean, reference.running_mean)
