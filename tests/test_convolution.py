"""Depthwise and 1 x 1 convolutions without cuDNN: the same numbers, on whatever calls `torch.conv2d`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tolerant.data.features import convolution
from tolerant.data.features.convolution import convolve, without_plans

KINDS = {  # of (channels in, channels out), and the options of `nn.Conv2d`
    "depthwise": ((6, 6), {"kernel_size": 3, "padding": 1, "groups": 6, "bias": False}),
    "depthwise, stride, bias": ((6, 6), {"kernel_size": 5, "padding": (2, 1), "stride": 2, "groups": 6}),
    "two filters a channel": ((6, 12), {"kernel_size": 3, "dilation": 2, "groups": 6}),
    "1 x 1": ((6, 4), {"kernel_size": 1, "bias": False}),
    "1 x 1, bias": ((6, 4), {"kernel_size": 1}),
    "1 x 1, stride": ((6, 4), {"kernel_size": 1, "stride": 2}),
    "1 x 1, padded": ((6, 4), {"kernel_size": 1, "padding": 1}),
    "same size": ((6, 6), {"kernel_size": 3, "padding": "same", "groups": 6}),
    "groups": ((6, 6), {"kernel_size": 3, "groups": 2}),
    "usual": ((6, 4), {"kernel_size": 3, "stride": (2, 1)}),
}


def passes(kind: str, device: str, layout: torch.memory_format, own: bool) -> list[torch.Tensor]:
    """The result, and the gradients of inputs and weights."""
    (before, after), options = KINDS[kind]
    torch.manual_seed(0)
    layer = nn.Conv2d(before, after, **options).double().to(device, memory_format=layout)
    x = torch.randn(3, before, 9, 8).double().to(device, memory_format=layout).requires_grad_()
    call = convolve if own else F.conv2d
    out = call(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    (out * torch.linspace(-1, 1, out.numel(), device=device, dtype=x.dtype).view(out.shape)).sum().backward()
    return [out, x.grad, *(weights.grad for weights in layer.parameters())]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradients_are_those_of_torch(kind, device, layout):
    for mine, torchs in zip(*(passes(kind, device, layout, own) for own in (True, False)), strict=True):
        torch.testing.assert_close(mine, torchs)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 3, 1))


def test_a_network_of_any_origin_is_served(monkeypatch):
    """On a CPU as if it were a GPU."""
    served = []
    monkeypatch.setattr(convolution, "convolve", lambda *given: served.append(given) or convolve(*given))
    x, net = torch.randn(2, 4, 8, 8), network()
    with convolution._WithoutPlans():
        mine = net(x)
    assert len(served) == 2
    torch.testing.assert_close(mine, net(x))
    with without_plans(x):
        net(x)
    assert len(served) == 2  # a CPU has no plans


def test_under_autocast_a_depthwise_convolution_is_in_bf16_and_cudnn_is_back_afterwards():
    (layer, *_), x = network(), torch.randn(2, 4, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = convolve(x, layer.weight, layer.bias, groups=4)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), layer(x), rtol=2e-2, atol=2e-2)
    assert torch.backends.cudnn.enabled


def test_an_error_leaves_cudnn_as_it_was():
    with pytest.raises(RuntimeError):
        convolve(torch.zeros(1, 4, 2, 2), torch.zeros(4, 1, 3, 3), groups=4)
    assert torch.backends.cudnn.enabled


@pytest.mark.gpu
def test_depthwise_layers_ask_cudnn_for_nothing():
    from torch.profiler import ProfilerActivity, profile

    net, x = network().cuda().to(memory_format=torch.channels_last), torch.randn(2, 4, 8, 8).cuda()
    with profile(activities=[ProfilerActivity.CPU]) as seen, without_plans(x):
        net(x.contiguous(memory_format=torch.channels_last)).sum().backward()
    called = {event.key for event in seen.key_averages()}
    assert "aten::_conv_depthwise2d" in called
    assert "aten::cudnn_convolution" not in called
