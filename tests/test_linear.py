"""Head and loss in one, against F.linear and the plain loss."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tolerant.functional import linear_lq_loss
from tolerant.losses import LinearLqLoss, LqLoss, TruncatedLqLoss

HYPER = [{"q": 0.7}, {"q": 0.0}, {"q": 1.0}, {"q": 0.7, "k": 0.3}, {"q": 0.0, "k": 0.3}]


def problem(n: int = 13, h: int = 6, c: int = 5, dtype: torch.dtype = torch.float64, device: str = "cpu"):
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, h, generator=g, dtype=torch.float64)
    weight = torch.randn(c, h, generator=g, dtype=torch.float64)
    bias = torch.randn(c, generator=g, dtype=torch.float64)
    labels = torch.randint(c, (n,), generator=g)
    labels[3] = -100
    sample_weight = torch.rand(n, generator=g, dtype=torch.float64)
    sample_weight[2] = 0
    tensors = [t.to(device, dtype) for t in (hidden, weight, bias, sample_weight)]
    return *tensors, labels.to(device)


def reference(hyper: dict[str, float], reduction: str = "mean"):
    return (TruncatedLqLoss if "k" in hyper else LqLoss)(reduction=reduction, impl="plain", **hyper)


def grads(loss: Tensor, inputs: list[Tensor], upstream: Tensor | None = None) -> list[Tensor]:
    return list(torch.autograd.grad(loss, inputs, upstream))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk_rows", [None, 4, 1])
@pytest.mark.parametrize("hyper", HYPER, ids=str)
def test_equals_linear_then_loss(hyper: dict[str, float], chunk_rows: int | None, reduction: str) -> None:
    hidden, weight, bias, sample_weight, labels = problem()
    inputs = [t.requires_grad_() for t in (hidden, weight, bias)]
    truth = reference(hyper, reduction)(F.linear(*inputs), labels, sample_weight)
    upstream = torch.linspace(-1, 2, len(labels)).double() if reduction == "none" else torch.tensor(0.3)
    upstream = upstream.to(truth.dtype)
    loss = linear_lq_loss(
        hidden, weight, labels, bias=bias, sample_weight=sample_weight,
        reduction=reduction, chunk_rows=chunk_rows, **hyper,
    )  # fmt: skip
    torch.testing.assert_close(loss, truth, rtol=1e-12, atol=1e-14)
    expected = grads(truth, inputs, upstream)
    for got, want in zip(grads(loss, inputs, upstream), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13)


def test_a_second_backward_pass_starts_from_the_same_gradient() -> None:
    hidden, weight, _, _, labels = problem()
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    loss = linear_lq_loss(hidden, weight, labels, chunk_rows=4)
    first = [
        g.clone() for g in torch.autograd.grad(loss, inputs, torch.tensor(3.0).double(), retain_graph=True)
    ]
    second = torch.autograd.grad(loss, inputs)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, 3 * b)


def test_second_derivatives() -> None:
    hidden, weight, bias, _, labels = problem(n=4, h=3, c=3)
    labels[3] = 1
    inputs = [t.requires_grad_() for t in (hidden, weight, bias)]
    assert torch.autograd.gradgradcheck(
        lambda h, w, b: linear_lq_loss(h, w, labels, bias=b, chunk_rows=2), inputs
    )


@pytest.mark.parametrize("dead", ["all", "none", "first", "last", "some"])
def test_truncated_skips_exactly_the_dead_rows(dead: str) -> None:
    n, c = 8, 3
    live = {
        "all": [], "none": range(n), "first": range(5, n), "last": range(3), "some": [1, 4, 5, 7],
    }[dead]  # fmt: skip
    weight = torch.eye(c, dtype=torch.float64).requires_grad_()
    labels = torch.arange(n) % c
    hidden = torch.zeros(n, c, dtype=torch.float64)
    for i in live:
        hidden[i, labels[i]] = 3.0
    hidden += 0.01 * torch.randn(n, c, dtype=torch.float64)
    hidden.requires_grad_()
    loss = linear_lq_loss(hidden, weight, labels, k=0.5, q=0.7)
    got = grads(loss, [hidden, weight])
    truth = TruncatedLqLoss(q=0.7, k=0.5, impl="plain")(hidden @ weight.t(), labels)
    for a, b in zip(got, grads(truth, [hidden, weight]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-14)
    assert sorted(got[0].abs().sum(1).nonzero().flatten().tolist()) == sorted(live)


@pytest.mark.parametrize("share", [0.05, 0.6, 0.95])
def test_live_rows_of_several_chunks_go_together(share: float) -> None:
    g = torch.Generator().manual_seed(0)
    n, c = 1500, 3
    weight = torch.eye(c, dtype=torch.float64).requires_grad_()
    labels = torch.randint(c, (n,), generator=g)
    live = torch.rand(n, generator=g) < share
    hidden = 0.01 * torch.randn(n, c, generator=g, dtype=torch.float64)
    hidden[live, labels[live]] += 3.0
    hidden.requires_grad_()
    truth = TruncatedLqLoss(q=0.7, k=0.5, impl="plain")(hidden @ weight.t(), labels)
    loss = linear_lq_loss(hidden, weight, labels, k=0.5, q=0.7, chunk_rows=640)
    torch.testing.assert_close(loss, truth, rtol=1e-12, atol=0)
    got = grads(loss, [hidden, weight])
    for a, b in zip(got, grads(truth, [hidden, weight]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)
    assert torch.equal(got[0].any(1), live)


def test_tied_embedding_and_gradient_accumulation() -> None:
    torch.manual_seed(0)
    tokens, labels = torch.randint(7, (2, 5)), torch.randint(7, (2, 5))

    def run(fused: bool) -> Tensor:
        embedding = nn.Embedding(7, 4, dtype=torch.float64)
        with torch.no_grad():
            embedding.weight.copy_(torch.arange(28).view(7, 4).sin())
        for t, y in zip(tokens, labels, strict=True):  # two micro-batches
            hidden = embedding(t).tanh()
            if fused:
                loss = linear_lq_loss(hidden, embedding.weight, y)
            else:
                loss = LqLoss(q=0.7)(F.linear(hidden, embedding.weight), y)
            (loss / 2).backward()
        assert embedding.weight.grad is not None
        return embedding.weight.grad

    torch.testing.assert_close(run(True), run(False), rtol=1e-11, atol=1e-14)


def test_q_1_has_the_gradient_of_dynamic_fine_tuning() -> None:
    hidden, weight, _, _, labels = problem()
    labels[3] = 2
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    log_p = F.log_softmax(F.linear(*inputs), -1).gather(1, labels.unsqueeze(1)).squeeze(1)
    dft = -(log_p.detach().exp() * log_p).mean()
    loss = linear_lq_loss(hidden, weight, labels, q=1.0)
    for a, b in zip(grads(loss, inputs), grads(dft, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_only_the_wanted_gradients() -> None:
    hidden, weight, bias, _, labels = problem()
    loss = linear_lq_loss(hidden, weight, labels, bias=bias.requires_grad_())
    assert hidden.grad is None
    (got,) = grads(loss, [bias])
    (want,) = grads(LqLoss(q=0.7)(F.linear(hidden, weight, bias), labels), [bias])
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-14)
    assert not linear_lq_loss(hidden, weight, labels).requires_grad


def test_a_loss_that_gets_no_gradient_passes_none_on() -> None:
    class Unused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return None

    hidden, weight, _, _, labels = problem()
    Unused.apply(linear_lq_loss(hidden.requires_grad_(), weight, labels)).backward()
    assert hidden.grad is None


def test_leading_dimensions_and_all_ignored() -> None:
    hidden, weight, _, _, labels = problem(n=12)
    shaped = linear_lq_loss(hidden.view(3, 4, -1), weight, labels.view(3, 4), reduction="none")
    assert shaped.shape == (3, 4)
    torch.testing.assert_close(shaped.flatten(), linear_lq_loss(hidden, weight, labels, reduction="none"))
    hidden.requires_grad_()
    nothing = linear_lq_loss(hidden, weight, torch.full_like(labels, -100))
    (grad,) = grads(nothing, [hidden])
    assert nothing.isnan()  # as F.cross_entropy
    assert not grad.any()


def errors(got: list[Tensor], truth: list[Tensor]) -> list[float]:
    """Of each gradient, relative to its norm."""
    return [((g.double() - t).norm() / t.norm()).item() for g, t in zip(got, truth, strict=True)]


@pytest.mark.parametrize("q", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_gradients_are_off_by_their_own_rounding_alone(
    dtype: torch.dtype, with_bias: bool, q: float
) -> None:
    """Logits rounded to bf16 put them 0.4 to 1.1 % off here."""
    hidden, weight, bias, _, labels = problem(n=37, h=24, c=53)
    low = [t.to(dtype).requires_grad_() for t in (hidden, weight, bias)[: 2 + with_bias]]
    exact = [t.detach().double().requires_grad_() for t in low]
    truth = grads(LqLoss(q=q, impl="plain")(F.linear(*exact), labels), exact)
    loss = linear_lq_loss(low[0], low[1], labels, q=q, bias=low[2] if with_bias else None)
    got = grads(loss, low)
    assert {g.dtype for g in got} == {dtype}
    assert max(errors(got, truth)) < torch.finfo(dtype).eps  # 0.8 % in bf16
    again = torch.autograd.grad(
        linear_lq_loss(low[0], low[1], labels, q=q, bias=low[2] if with_bias else None),
        low,
        create_graph=True,  # the plain way
    )
    assert max(errors([g.detach() for g in again], truth)) < torch.finfo(dtype).eps


def test_a_layers_gradient_does_not_drift_over_many_chunks() -> None:
    """In bf16 a sum of 64 chunks is 4 times as far off as one chunk; 8 are 1.8 times as far."""
    hidden, weight, _, _, labels = problem(n=1024, h=16, c=50)
    low = [hidden.bfloat16(), (0.3 * weight).bfloat16().requires_grad_()]
    exact = [t.detach().double().requires_grad_(t.requires_grad) for t in low]
    truth = grads(LqLoss(q=0.7, impl="plain")(F.linear(*exact), labels), exact[1:])
    found = {
        (chunk_rows, fp32): errors(
            grads(linear_lq_loss(*low, labels, chunk_rows=chunk_rows, accumulate_fp32=fp32), low[1:]), truth
        )[0]
        for chunk_rows, fp32 in [(1024, None), (128, None), (16, None), (16, False), (128, True)]
    }
    one = found[1024, None]
    assert found[16, None] < 1.1 * one
    assert found[128, True] < 1.1 * one
    assert found[128, None] < 2.2 * one < 0.01
    assert found[16, False] > 2.2 * one  # what the fp32 sum is for


def test_a_third_of_a_bf16_loss_has_a_third_of_the_gradient() -> None:
    """Over three accumulated batches: 1 / 3 rounded to bf16 would be 0.2 % too large for every weight."""
    hidden, weight, bias, _, labels = problem(n=96, h=32, c=50)
    low = [t.bfloat16().requires_grad_() for t in (hidden, weight, bias)]
    whole, third = (linear_lq_loss(*low[:2], labels, bias=low[2]) for _ in range(2))
    for one, part in zip(grads(whole, low), grads(third / 3, low), strict=True):
        share = (part.double() * one.double()).sum() / one.double().square().sum()
        assert share.item() == pytest.approx(1 / 3, rel=4e-4)


def test_fp16_waits_for_the_loss_scale() -> None:
    hidden, weight, _, _, labels = problem(n=4)
    hidden, weight = (hidden * 1e-3).half().requires_grad_(), weight.half()
    loss = linear_lq_loss(hidden, weight, labels, sample_weight=torch.full((4,), 1e-7), reduction="sum")
    (grad,) = torch.autograd.grad(loss, [hidden], torch.tensor(1e6))
    assert grad[0].abs().max() > 1e-2  # rounded before the scale it would be 0 or one step of 6e-8


@pytest.mark.parametrize("hyper", [{"q": 0.7}, {"q": 0.7, "k": 0.3}], ids=str)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_without_numbers(device: str, hyper: dict[str, float]) -> None:
    """Estimates of memory run a step on them; which rows are live cannot be counted there."""
    with FakeTensorMode() if device == "cpu" else nullcontext():
        shapes = ((9, 6), (5, 6), (5,))
        hidden, weight, bias = (torch.zeros(s, device=device, requires_grad=True) for s in shapes)
        labels = torch.zeros(9, dtype=torch.long, device=device)
        linear_lq_loss(hidden, weight, labels, bias=bias, chunk_rows=4, **hyper).backward()
    assert tuple(t.grad.shape for t in (hidden, weight, bias)) == shapes


def test_transforms_of_torch_func() -> None:
    hidden, weight, _, _, labels = problem()

    def plain(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return reference({"q": 0.7})(F.linear(hidden, weight), labels)

    per_row = (hidden[:, None], weight, labels.clamp(min=0)[:, None])
    for loss in (linear_lq_loss, plain):
        gradients = torch.func.vmap(torch.func.grad(loss, 1), (0, None, 0))(*per_row)
        _, pull = torch.func.vjp(lambda *inputs, loss=loss: loss(*inputs, labels), hidden, weight)
        found = [gradients, *pull(hidden.new_tensor(0.3))]
        if loss is linear_lq_loss:
            ours = found
    torch.testing.assert_close(ours, found)


def test_autocast_computes_in_its_dtype() -> None:
    hidden, weight, _, _, labels = problem(dtype=torch.float32)
    weight.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_lq_loss(hidden, weight, labels)
    (grad,) = grads(loss, [weight])
    assert grad.dtype == torch.float32
    assert torch.equal(grad, grad.bfloat16().float())


def test_module_prints_and_checks_itself() -> None:
    module = LinearLqLoss(q=0.5, k=0.2)
    assert "q=0.5" in repr(module)
    hidden, weight, bias, _, labels = problem()
    expected = TruncatedLqLoss(q=0.5, k=0.2)(F.linear(hidden, weight, bias), labels)
    torch.testing.assert_close(module(hidden, weight, labels, bias=bias), expected)
    module.q = 0.9  # annealed: it must count
    expected = TruncatedLqLoss(q=0.9, k=0.2)(F.linear(hidden, weight, bias), labels)
    torch.testing.assert_close(module(hidden, weight, labels, bias=bias), expected)
    assert "q=0.9" in repr(module)
    with pytest.raises(ValueError, match="q must be"):
        LinearLqLoss(q=2.0)
    with pytest.raises(ValueError, match="k must be"):
        linear_lq_loss(hidden, weight, labels, k=1.5)
    with pytest.raises(ValueError, match=r"weight must have shape \(C, H\)"):
        linear_lq_loss(hidden, weight[:, :3], labels)
    with pytest.raises(ValueError, match="labels must have hidden's shape"):
        linear_lq_loss(hidden, weight, labels[:4])
    with pytest.raises(TypeError, match="labels must be a tensor; got ndarray"):
        linear_lq_loss(hidden, weight, labels.numpy())
    with pytest.raises(ValueError, match=r"chunk_rows must be at least 1, or None .* got -1"):
        linear_lq_loss(hidden, weight, labels, chunk_rows=-1)
    ones = torch.ones(len(labels), requires_grad=True)
    with pytest.raises(ValueError, match="must not require a gradient"):
        linear_lq_loss(hidden, weight, labels, sample_weight=ones)


@pytest.mark.gpu
@pytest.mark.parametrize("hyper", HYPER, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_the_gpu(hyper: dict[str, float], dtype: torch.dtype) -> None:
    hidden, weight, bias, sample_weight, labels = problem(300, 64, 1000, dtype, "cuda")
    with torch.no_grad():  # a good part of the rows alive
        hidden += 0.2 * weight[labels.clamp(min=0)]
    inputs = [t.requires_grad_() for t in (hidden, weight, bias)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    weights = sample_weight.float()
    truth = reference(hyper)(F.linear(*exact), labels, weights.double())
    plain = reference(hyper)(F.linear(*inputs), labels, weights)
    loss = linear_lq_loss(hidden, weight, labels, bias=bias, sample_weight=weights, chunk_rows=128, **hyper)
    again = linear_lq_loss(hidden, weight, labels, bias=bias, sample_weight=weights, chunk_rows=128, **hyper)
    assert torch.equal(loss, again)
    assert (loss - truth).abs() <= 2 * (plain - truth).abs() + 1e-5 * truth.abs()
    ours, repeat = grads(loss, inputs), grads(again, inputs)
    assert all(torch.equal(got, same) for got, same in zip(ours, repeat, strict=True))
    want = grads(truth, exact)
    eager = errors(grads(plain, inputs), want)
    # Sums in bf16 of three chunks are rounded three times, and the products take bf16's gradients of logits.
    assert all(
        error <= min(1.5 * of_eager, 0.01) + torch.finfo(dtype).eps / 4
        for error, of_eager in zip(errors(ours, want), eager, strict=True)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("chunk_rows", [64, 1024])
def test_bf16_on_the_gpu_is_off_by_its_own_rounding_alone(chunk_rows: int) -> None:
    """Sixteen chunks, whose sum is in fp32 by itself, are as near the truth as one."""
    hidden, weight, bias, _, labels = problem(1024, 64, 1000, torch.bfloat16, "cuda")
    inputs = [t.requires_grad_() for t in (hidden, weight, bias)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    for q in (0.0, 0.7, 1.0):
        truth = grads(LqLoss(q=q)(F.linear(*exact), labels), exact)
        loss = linear_lq_loss(hidden, weight, labels, q=q, bias=bias, chunk_rows=chunk_rows)
        assert max(errors(grads(loss, inputs), truth)) < 2**-7
