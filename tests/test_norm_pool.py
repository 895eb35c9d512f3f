"""Batch norm, pooling and ReLU in one: equal to torch's three, forward, backward and in the statistics."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tolerant.train.networks.norm import NormPool


def as_written(norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.relu(nn.BatchNorm2d.forward(norm, x)), 2)


@pytest.mark.parametrize("shape", [(5, 6, 8, 8), (3, 4, 7, 5), (2, 1, 2, 2)], ids=str)
@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_equals_torch_s_three(shape, falling, training):
    torch.manual_seed(0)
    norm = NormPool(shape[1]).double().train(training)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
        if falling:
            norm.weight[0] *= -1
    other = copy.deepcopy(norm)
    x = 3 + 2 * torch.randn(shape, dtype=torch.float64)
    ours, theirs = x.to(memory_format=torch.channels_last).requires_grad_(), x.clone().requires_grad_()
    out, expected = norm(ours), as_written(other, theirs)
    grad = torch.randn_like(expected)
    out.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(norm.weight.grad, other.weight.grad)
    torch.testing.assert_close(norm.bias.grad, other.bias.grad)
    torch.testing.assert_close(norm.state_dict(), other.state_dict())


def test_fp32_is_as_near_the_truth_as_torch():
    torch.manual_seed(0)
    x = 5 + torch.randn(16, 8, 16, 16)
    grad = torch.randn(16, 8, 8, 8)

    def gradients(norm, x, way):
        x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        way(norm, x).backward(grad.to(x.dtype))
        return [t.double() for t in (x.grad, norm.weight.grad, norm.bias.grad)]

    truth = gradients(NormPool(8).double(), x.double(), as_written)
    ours, theirs = (gradients(NormPool(8), x.clone(), way) for way in (NormPool.__call__, as_written))
    for exact, mine, torchs in zip(truth, ours, theirs, strict=True):
        tolerance = 1e-6 * exact.abs().max()
        assert (mine - exact).abs().max() <= (torchs - exact).abs().max() + tolerance
