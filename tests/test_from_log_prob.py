"""L_q of log-probabilities that are there already, against L_q of logits."""

from __future__ import annotations

import mpmath
import pytest
import torch

from tolerant.functional import log_p_y, lq_from_log_prob, lq_loss, truncated_lq_loss

HYPER = [{"q": 0.7}, {"q": 0.0}, {"q": 1.0}, {"q": 0.7, "k": 0.3}, {"q": 0.0, "k": 0.3}]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("hyper", HYPER, ids=str)
def test_equals_the_loss_of_logits(hyper: dict[str, float], reduction: str) -> None:
    g = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(4, 5, 6, generator=g, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(5, (4, 6), generator=g)
    weight = torch.rand(4, 6, generator=g, dtype=torch.float64)
    ignore = torch.rand(4, 6, generator=g) < 0.3
    of_logits = truncated_lq_loss if "k" in hyper else lq_loss
    given = torch.where(ignore, -100, labels)
    want = of_logits(logits, given, weight, reduction=reduction, impl="plain", **hyper)
    log_p = log_p_y(logits, labels)
    got = lq_from_log_prob(log_p, weight=weight, ignore=ignore, reduction=reduction, **hyper)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
    upstream = torch.linspace(-1, 2, want.numel()).double().reshape(want.shape)
    for a, b in zip(*(torch.autograd.grad(x, [logits], upstream) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7, 1.0])
def test_all_digits_against_mpmath(q: float) -> None:
    """Autograd of expm1 would be 0 from -17 on; near 0 the value has no digits to spare."""
    log_p = torch.tensor([-80.0, -30.0, -17.0, -1.0, -1e-3, -1e-20, 0.0], requires_grad=True)
    losses = lq_from_log_prob(log_p, q=q, reduction="none")
    (slope,) = torch.autograd.grad(losses.sum(), log_p)
    for at, value, grad in zip(log_p.tolist(), losses.tolist(), slope.tolist(), strict=True):
        exact = -mpmath.expm1(q * mpmath.mpf(at)) / q if q else -mpmath.mpf(at)
        assert value == pytest.approx(float(exact), rel=1e-6, abs=0)
        assert grad == pytest.approx(-float(mpmath.exp(q * mpmath.mpf(at))), rel=1e-5, abs=1e-45)


def test_q_1_has_the_gradient_of_dynamic_fine_tuning() -> None:
    log_p = (-3 * torch.rand(20, dtype=torch.float64)).requires_grad_()
    dft = -(log_p.detach().exp() * log_p).mean()
    for a, b in zip(
        torch.autograd.grad(lq_from_log_prob(log_p, q=1.0), [log_p]),
        torch.autograd.grad(dft, [log_p]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_second_derivatives_and_the_weights_gradient() -> None:
    log_p = (-1 - torch.rand(3, 2, dtype=torch.float64)).requires_grad_()
    weight = torch.rand(3, 2, dtype=torch.float64).requires_grad_()
    for reduction in ("mean", "none"):
        assert torch.autograd.gradcheck(
            lambda p, w, how=reduction: lq_from_log_prob(p, weight=w, reduction=how), (log_p, weight)
        )
    assert torch.autograd.gradgradcheck(lambda p: lq_from_log_prob(p, q=0.4), (log_p,))


def test_what_is_ignored_is_not_read() -> None:
    log_p = torch.tensor([-1.0, float("nan"), float("-inf"), 7.0], requires_grad=True)
    ignore = torch.tensor([False, True, True, True])
    loss = lq_from_log_prob(log_p, q=0.7, ignore=ignore)
    torch.testing.assert_close(loss, lq_from_log_prob(torch.tensor([-1.0]), q=0.7))
    (grad,) = torch.autograd.grad(loss, log_p)
    assert grad[0] < 0
    assert not grad[1:].any()
    nothing = lq_from_log_prob(log_p, ignore=torch.ones(4, dtype=torch.bool))
    assert nothing.isnan()  # as the mean of torch's losses over no row
    assert not torch.autograd.grad(nothing, log_p)[0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_widened(dtype: torch.dtype) -> None:
    log_p = torch.tensor([-0.5, -9.0], dtype=dtype, requires_grad=True)
    loss = lq_from_log_prob(log_p, q=0.7, reduction="none")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, lq_from_log_prob(log_p.float(), q=0.7, reduction="none"))
    assert torch.autograd.grad(loss.sum(), log_p)[0].dtype == dtype


def test_bad_input_is_named() -> None:
    log_p = torch.zeros(3)
    with pytest.raises(ValueError, match=r"log_p must be log-probabilities, at most 0; got 3.*pass minus it"):
        lq_from_log_prob(torch.tensor([0.1, 3.0]))
    with pytest.raises(ValueError, match=r"weight must have shape \(3,\)"):
        lq_from_log_prob(log_p, weight=torch.ones(2))
    with pytest.raises(TypeError, match=r"ignore must be bool; got torch.int64"):
        lq_from_log_prob(log_p, ignore=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="log_p must be floating point"):
        lq_from_log_prob(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="q must be"):
        lq_from_log_prob(log_p, q=2.0)
    with pytest.raises(ValueError, match="reduction must be"):
        lq_from_log_prob(log_p, reduction="max")
