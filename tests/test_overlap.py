"""Convolutions whose weight gradients come apart from the backward pass, against torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tolerant.train.networks import overlap
from tolerant.train.networks.overlap import Conv2d, _Conv, _eight_channels


class _Now:
    """In place of a second stream: the gradient is computed at once."""

    def later(self, weight: Tensor, gradient: Callable[[], Tensor], *reads: Tensor) -> None:
        weight.grad = gradient()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3, 8, 12])
@pytest.mark.parametrize("stride", [1, 2])
def test_values_and_gradients_are_torchs(channels, stride, dtype):
    """Channels that are added to reach eight must show nowhere."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(shape, generator=generator).to(dtype, memory_format=torch.channels_last)
        for shape in ((2, channels, 7, 6), (5, channels, 3, 3))
    )
    found = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    expected = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    out = _Conv.apply(*found, ([stride] * 2, [1, 1], [1, 1]), _Now())
    reference = F.conv2d(*expected, stride=stride, padding=1)
    dy = torch.randn(out.shape, generator=generator).to(dtype)
    for result in (out, reference):
        result.backward(dy)
    # bf16 sums may be rounded in another order
    near = {} if dtype == torch.float32 else {"rtol": 2**-6, "atol": 2**-4}
    torch.testing.assert_close(out, reference, **near)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.grad.shape == theirs.grad.shape
        torch.testing.assert_close(ours.grad, theirs.grad, **near)


@pytest.mark.parametrize(
    "options", [{"groups": 2}, {"padding_mode": "reflect", "padding": 1}, {"padding": "same"}, {"bias": True}]
)
def test_what_it_does_not_know_is_left_to_torch(options, monkeypatch):
    conv = Conv2d(4, 6, 3, **{"bias": False, **options})
    x = torch.randn(2, 4, 7, 6)
    monkeypatch.setattr(overlap._this_thread, "overlap", _Now(), raising=False)
    torch.testing.assert_close(conv(x), nn.Conv2d.forward(conv, x))


def test_weights_made_of_others_are_trained(monkeypatch):
    conv = parametrizations.weight_norm(Conv2d(4, 6, 3, bias=False))
    monkeypatch.setattr(overlap._this_thread, "overlap", _Now(), raising=False)
    conv(torch.randn(2, 4, 7, 6)).sum().backward()
    assert all(parameter.grad is not None for parameter in conv.parameters())


def test_only_few_channels_of_16_bits_are_added_to():
    for channels, dtype, width in ((1, torch.bfloat16, 8), (3, torch.float16, 8), (3, torch.float32, 3)):
        padded = _eight_channels(torch.ones(2, channels, 4, 4, dtype=dtype))
        assert padded.shape[1] == width
        assert padded.sum() == 2 * channels * 16
    wide = torch.ones(2, 12, 4, 4, dtype=torch.bfloat16)
    assert _eight_channels(wide) is wide
