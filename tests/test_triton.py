"""The Triton kernels against the plain path: on a GPU, or in Triton's interpreter on the CPU."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from interpreted import DEVICE, INTERPRETED, from_outside, on_device, run_interpreted
from torch import Tensor

from tolerant.functional import linear_lq_loss
from tolerant.kernels import can
from tolerant.kernels.log_prob import log_p_y
from tolerant.kernels.plain import phi_at
from tolerant.kernels.triton import launch as triton_launch
from tolerant.kernels.triton.launch import Call, Plan, launch
from tolerant.kernels.triton.loss import phi_loss
from tolerant.losses import REGISTRY, CCELoss, LqLoss, PhiLoss, make_loss

try:
    from tolerant.kernels.triton.forms import FORMS
except ImportError:  # no Triton for this system
    FORMS = {}

gpu_only = pytest.mark.gpu

NOT_DEFAULT = {"truncated-lq": {"k": 0.3}, "taylor": {"order": 3}}
HYPER = {name: {**REGISTRY[name].defaults, **NOT_DEFAULT.get(name, {})} for name in FORMS}
# The interpreter computes both sides of a choice, and numpy warns where a compiled kernel just drops one.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
PLANS = {
    "tile": Plan("tile", size=4, warps=1, programs_per_sm=3),
    "row": Plan("row", size=512, warps=1, programs_per_sm=3),
    "parts": Plan("row", size=128, warps=1, programs_per_sm=6),
}
# What the interpreter, thousands of times slower, is asked: every loss in fp32 on whole rows, a few in other
# dtypes and by the other plans, which differ in their sums, not in their losses.
CASES = [
    (kind, phi, dtype)
    for kind in PLANS
    for dtype in (torch.float32, torch.float64, torch.bfloat16)
    for phi in FORMS
    if not INTERPRETED or phi in ("lq", "truncated-lq") or (dtype == torch.float32 and kind == "row")
]


def losses_for(kind: str) -> tuple[str, ...]:
    return tuple(FORMS) if not INTERPRETED or kind == "row" else ("lq", "js")


@from_outside
def test_in_the_interpreter() -> None:
    run_interpreted("test_triton.py", "test_norm.py")


@pytest.fixture(params=PLANS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every kernel at one small size: also short rows in parts of 128, three of them at 300 classes."""
    monkeypatch.setattr(triton_launch, "plan_for", lambda *_: PLANS[request.param])
    return request.param


def plain(
    logits: Tensor, labels: Tensor, phi: str = "lq", sample_weight: Tensor | None = None, **options: object
) -> Tensor:
    return make_loss(phi, impl="plain", **{**HYPER[phi], **options})(logits, labels, sample_weight)


def fused(
    logits: Tensor, labels: Tensor, phi: str = "lq", sample_weight: Tensor | None = None, **options: object
) -> Tensor:
    return phi_loss(logits, labels, sample_weight, make_loss(phi, **{**HYPER[phi], **options}))


def hard_rows(num_classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Random and peaked rows, ties, gaps of 1e4 both ways, masked classes, one class left."""
    g = torch.Generator().manual_seed(1)
    z = torch.randn(12, num_classes, generator=g) * 3
    y = torch.randint(num_classes, (12,), generator=g)
    rows = torch.arange(12)
    z[2, y[2]] = 15.0
    z[3] = 0.0
    z[4, y[4]] = z[4].max()
    z[5] = -1e4
    z[5, y[5]] = 1e4
    z[6] = 1e4
    z[6, y[6]] = -1e4
    z[7, rows[:12].remainder(num_classes)] = float("-inf")
    z[7, y[7]] = 0.5
    z[8] = float("-inf")
    z[8, y[8]] = -3.0
    z[9, y[9]] = -20.0
    z[10] *= 1e-3
    return z.to(DEVICE, dtype), y.to(DEVICE)


def gradient(loss: Tensor, logits: Tensor, upstream: Tensor | None = None) -> Tensor:
    return torch.autograd.grad(loss, logits, upstream)[0]


@on_device
@pytest.mark.parametrize(("kind", "phi", "dtype"), CASES, indirect=["kind"])
def test_as_near_the_truth_as_the_plain_path(kind: str, phi: str, dtype: torch.dtype) -> None:
    z, y = hard_rows(300, dtype)
    z.requires_grad_()
    exact = z.detach().double().requires_grad_()
    losses = [f(t, y, phi, reduction="none") for f, t in ((plain, exact), (plain, z), (fused, z))]
    grads = [gradient(loss, t, torch.ones_like(loss)) for loss, t in zip(losses, (exact, z, z), strict=True)]
    # log p_y = -20 known to half an ulp is p_y known to 10 of them, on either path.
    digits = 4 + log_p_y(exact, y).detach().abs().clamp(max=1e3)

    truth, near, got = (loss.double() for loss in losses)
    allowed = digits * max(torch.finfo(losses[2].dtype).eps, 1e-13) * truth.abs()
    assert ((got - truth).abs() <= (near - truth).abs() + allowed + 1e-37).all()

    truth, near, got = (grad.double() for grad in grads)
    size = truth.abs().amax(1)
    error, near_error = ((g - truth).abs().amax(1) for g in (got, near))
    ulps = digits if dtype.itemsize >= 4 else 1 + INTERPRETED  # the interpreter cuts bf16 off
    assert (error <= near_error + ulps * max(torch.finfo(dtype).eps, 1e-13) * size + 1e-37).all()


@on_device
@pytest.mark.parametrize(
    ("phi", "hyper"),
    [
        ("focal", {"gamma": 0.1}),
        ("agce", {"a": 1e-6, "q": 1e-3}),
        ("aul", {"a": 1.0001, "p": 0.5}),
        ("aul", {"a": 1.001, "p": 15.0}),
        ("phuber", {"tau": 1.001}),
        ("js", {"pi": 1e-6}),
        ("js", {"pi": 0.9999}),
    ],
)
def test_digits_at_the_ends_of_the_domains(phi: str, hyper: dict[str, float]) -> None:
    gap = torch.tensor([0.0, 5.0, 20.0, 60.0, -0.5, -5.0, -10.0, -20.0], device=DEVICE)
    z = torch.stack([-gap, torch.zeros_like(gap)], 1).requires_grad_()
    y = torch.zeros(len(gap), dtype=torch.long, device=DEVICE)
    exact = z.detach().double().requires_grad_()
    got = fused(z, y, phi, reduction="none", **hyper)
    truth = phi_at(log_p_y(exact, y), make_loss(phi, **hyper))
    grads = [gradient(f, t, torch.ones_like(f))[:, 0] for f, t in ((got, z), (truth, exact))]
    allowed = 2.4e-7 * (10 + gap.abs())
    for found, expected in ((got, truth), grads):
        has_digits = expected.abs() > 1e-37  # in fp32; all do, but aul's (1 - p_y) 0.001 ** 15
        assert (has_digits | (phi == "aul")).all()
        assert ((found - expected).abs() <= allowed * expected.abs())[has_digits].all()


@on_device
@pytest.mark.parametrize("phi", ["lq", "cce"])
def test_gradient_digits_at_a_gap(phi: str, kind: str) -> None:
    gap = torch.tensor([0.0, 10.0, 20.0, 110.0, 1e4, -10.0, -20.0, -110.0, -1e4], device=DEVICE)
    z = torch.zeros(9, 300, device=DEVICE)
    z[:, 7] = -gap
    z.requires_grad_()
    y = torch.full((9,), 7, device=DEVICE)
    exact = z.detach().double().requires_grad_()
    ones = torch.ones(9, device=DEVICE)
    got = gradient(fused(z, y, phi, reduction="none"), z, ones).double()
    truth = gradient(plain(exact, y, phi, reduction="none"), exact, ones.double())
    allowed = 2.4e-7 * (6 + gap.abs().unsqueeze(1)) * truth.abs()
    assert ((got - truth).abs() <= allowed)[truth.abs() > 1e-37].all()
    assert got.isfinite().all()


WEIGHINGS = list(product(["mean", "sum", "none"], ["", "class", "sample", "class sample"]))
if INTERPRETED:  # each reduction and each kind of weights, not each pair
    WEIGHINGS = [("mean", ""), ("mean", "class sample"), ("sum", "class"), ("none", "sample")]


@on_device
@pytest.mark.parametrize(("reduction", "weights"), WEIGHINGS)
def test_weights_ignored_rows_and_reductions(reduction: str, weights: str, kind: str) -> None:
    n = 10 if INTERPRETED else 150
    g = torch.Generator().manual_seed(0)
    z = torch.randn(n, 300, generator=g, dtype=torch.float64).to(DEVICE).requires_grad_()
    y = torch.randint(300, (n,), generator=g).to(DEVICE)
    y[::7] = 5
    weight = torch.rand(300, generator=g, dtype=torch.float64).to(DEVICE)
    weight[y[3]] = 0
    sample_weight = torch.rand(n, generator=g, dtype=torch.float64).to(DEVICE)
    sample_weight[4] = 0
    weighing = {
        "weight": weight if "class" in weights else None,
        "sample_weight": sample_weight if "sample" in weights else None,
        "ignore_index": 5,
        "reduction": reduction,
    }
    truth, got = plain(z, y, **weighing), fused(z, y, **weighing)
    torch.testing.assert_close(got, truth, rtol=1e-12, atol=0)
    upstream = torch.linspace(-1, 1, n, dtype=torch.float64, device=DEVICE)
    upstream[:9] = 1
    upstream = upstream if reduction == "none" else torch.tensor(0.3, device=DEVICE).double()
    got, truth = gradient(got, z, upstream), gradient(truth, z, upstream)
    torch.testing.assert_close(got, truth, rtol=1e-11, atol=1e-15)
    assert not got[::7].any()


@on_device
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_q_0_is_cross_entropy(reduction: str) -> None:
    z = torch.randn(9, 33, device=DEVICE).requires_grad_()
    y = torch.arange(9, device=DEVICE)
    got = fused(z, y, q=0, reduction=reduction, ignore_index=2)
    torch.testing.assert_close(got, F.cross_entropy(z, y, reduction=reduction, ignore_index=2))


@on_device
def test_no_row_counts() -> None:
    z = torch.randn(9, 33, device=DEVICE).requires_grad_()
    y = torch.full((9,), -100, device=DEVICE)
    loss = fused(z, y)
    assert loss.isnan()  # as F.cross_entropy
    assert not gradient(loss, z).any()
    assert fused(z, y, reduction="sum") == 0


@on_device
@pytest.mark.parametrize(
    ("kind", "phi"), [(kind, phi) for kind in PLANS for phi in losses_for(kind)], indirect=["kind"]
)
def test_nan_is_never_quiet(phi: str, kind: str) -> None:
    z = torch.zeros(4, 300, device=DEVICE)
    z[0, 299] = float("nan")
    z[1, 3] = float("nan")
    z.requires_grad_()
    y = torch.tensor([3, 3, 300, -7], device=DEVICE)  # the last two do not exist
    loss = fused(z, y, phi, reduction="none")
    assert loss.isnan().all()
    assert gradient(loss, z, torch.ones_like(loss)).isnan().any(1).all()


@on_device
@pytest.mark.parametrize("shape", [(1, 2), (7, 2), (128, 10), (128, 100), (300, 10), (40, 1000), (2, 40000)])
@pytest.mark.parametrize("reduction", ["mean"] if INTERPRETED else ["mean", "none"])
def test_shapes(shape: tuple[int, int], reduction: str) -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=g).to(DEVICE).requires_grad_()
    y = torch.randint(shape[1], shape[:1], generator=g).to(DEVICE)
    truth, got = plain(z, y, reduction=reduction), fused(z, y, reduction=reduction)
    torch.testing.assert_close(got, truth, rtol=2e-6, atol=1e-7)
    upstream = torch.ones_like(truth)
    torch.testing.assert_close(gradient(got, z, upstream), gradient(truth, z, upstream), rtol=1e-5, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(fused(z, y, reduction=reduction), got)


@on_device
def test_strides(kind: str) -> None:
    wide = torch.randn(6, 320, device=DEVICE, dtype=torch.float64)
    y = torch.arange(6, device=DEVICE)
    expanded = torch.randn(1, 300, device=DEVICE, dtype=torch.float64).expand(6, 300)
    for z in (wide[:, :300], wide[:, 13:313], wide[::2], torch.randn_like(wide).t()[:6], expanded):
        z = z.detach().requires_grad_()
        labels = y[: len(z)]
        torch.testing.assert_close(
            gradient(fused(z, labels), z), gradient(plain(z, labels), z), rtol=1e-11, atol=1e-15
        )


@on_device
def test_gradient_in_place_of_the_logits(kind: str) -> None:
    z = torch.randn(5, 300, device=DEVICE)
    y = torch.arange(5, device=DEVICE)
    call = Call("lq", {"q": 0.7}, -100, "none")
    apart = torch.empty_like(z)
    loss = launch(call, z, y, grad=apart, plan=triton_launch.plan_for(300, 4))
    narrow = torch.empty_like(z, dtype=torch.bfloat16)  # as the last layer's, from logits in fp32
    launch(call, z, y, grad=narrow, plan=triton_launch.plan_for(300, 4))
    torch.testing.assert_close(narrow.float(), apart, rtol=2**-7, atol=0)  # (the interpreter cuts off)
    same = launch(call, z, y, grad=z, plan=triton_launch.plan_for(300, 4))
    assert torch.equal(loss, same)
    assert torch.equal(z, apart)


@on_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_what_parts_tell_each_other_is_never_0(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or on a GPU they would wait for it."""
    z, y = hard_rows(300, dtype)
    z[0, 200] = float("nan")
    zeros, made = torch.zeros, []
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: made.append(zeros(*a, **k)) or made[-1])
    call = Call("lq", {"q": 0.7}, int(y[1]), "none")
    launch(call, z, y, plan=PLANS["parts"])
    words = made[-1][:-1].view(12, -1, 2)
    assert words[:, :3].all()
    assert not words[:, 3:].any()


@on_device
@pytest.mark.parametrize("num_classes", [3, 300, 20000])
@pytest.mark.parametrize("alive", ["", "0", "5", "012", "345", "14", "0135", "012345"])
def test_live_rows_come_first(num_classes: int, alive: str) -> None:
    rows = torch.randn(6, num_classes, device=DEVICE)
    before = rows.clone()
    kept = [int(i) for i in alive]
    live = torch.tensor([i in kept for i in range(6)], device=DEVICE)
    origin = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    count = triton_launch.live_first_(rows, live, origin, 100)
    assert count == len(kept)
    found = origin[:count] - 100
    assert sorted(found.tolist()) == kept
    assert torch.equal(rows[:count], before[found])


@on_device
def test_live_rows_of_more_than_a_block_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    if INTERPRETED:
        monkeypatch.setattr(triton_launch, "LIVE_BLOCK", 64)
    n = 2 * triton_launch.LIVE_BLOCK + 100
    g = torch.Generator().manual_seed(0)
    live = (torch.rand(n, generator=g) < 0.4).to(DEVICE)
    rows = torch.arange(float(n), device=DEVICE).unsqueeze(1).repeat(1, 3)
    origin = torch.zeros(n, dtype=torch.int64, device=DEVICE)
    count = triton_launch.live_first_(rows, live, origin, 0)
    assert torch.equal(origin[:count].sort().values, live.nonzero().squeeze(1))
    assert torch.equal(rows[:count, 2].long(), origin[:count])


@on_device
@pytest.mark.parametrize("share", [0.0, 0.05, 0.6, 1.0])
def test_only_live_rows_in_the_linear_layers_gradients(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(can, "run_triton", lambda *_: True)  # also in the interpreter
    g = torch.Generator().manual_seed(0)
    n, c = 700, 40
    weight = torch.eye(c, dtype=torch.float64, device=DEVICE).requires_grad_()
    labels = torch.randint(c, (n,), generator=g).to(DEVICE)
    live = (torch.rand(n, generator=g) < share).to(DEVICE)
    hidden = 0.01 * torch.randn(n, c, generator=g, dtype=torch.float64).to(DEVICE)
    hidden[live, labels[live]] += 6.0
    hidden.requires_grad_()
    inputs = [hidden, weight]
    truth = torch.autograd.grad(plain(hidden @ weight.t(), labels, "truncated-lq"), inputs)
    loss = linear_lq_loss(hidden, weight, labels, chunk_rows=256, **HYPER["truncated-lq"])
    got = torch.autograd.grad(loss, inputs)
    for a, b in zip(got, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)
    assert torch.equal(got[0].any(1), live)


@on_device
def test_the_callers_logits_stay_and_backward_repeats() -> None:
    z = torch.randn(5, 30, device=DEVICE).requires_grad_()
    before = z.detach().clone()
    loss = fused(z, torch.arange(5, device=DEVICE))
    three = torch.tensor(3.0, device=DEVICE)
    (first,) = torch.autograd.grad(loss, z, three, retain_graph=True)
    first = first.clone()
    (second,) = torch.autograd.grad(loss, z, retain_graph=True)
    (third,) = torch.autograd.grad(loss, z)
    assert torch.equal(z, before)
    assert torch.equal(second, third)
    torch.testing.assert_close(first, 3 * second)
    assert second.data_ptr() != third.data_ptr()


@on_device
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_many_upstream_gradients_at_once(reduction: str) -> None:
    z = torch.randn(5, 30, device=DEVICE).requires_grad_()
    loss = fused(z, torch.arange(5, device=DEVICE), reduction=reduction)
    upstream = torch.randn(3, *loss.shape, device=DEVICE)
    (found,) = torch.autograd.grad(loss, z, upstream, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(loss, z, one, retain_graph=True)[0] for one in upstream]
    torch.testing.assert_close(found, torch.stack(each))


@on_device
@pytest.mark.parametrize("name", ["labels", "weight", "sample_weight"])
def test_tensors_of_another_device_are_refused(name: str) -> None:
    z = torch.randn(5, 30, device=DEVICE)
    given = {"labels": torch.arange(5, device=DEVICE), "weight": torch.ones(30, device=DEVICE)}
    given["sample_weight"] = torch.ones(5, device=DEVICE)
    given[name] = given[name].to("meta")
    with pytest.raises(ValueError, match=f"{name} must be on the logits' device, {DEVICE}.*; got meta"):
        fused(z, **given)


@on_device
def test_upstream_gradients_far_apart(kind: str) -> None:
    """Those of a column of a large matrix: row times stride is beyond 2^31."""
    stride = 2**30 + 8
    apart = torch.empty(2 * stride + 1, dtype=torch.float16, device=DEVICE)[::stride]
    apart.copy_(torch.tensor([1.0, 2.0, 3.0]))
    z = torch.randn(3, 300, device=DEVICE)
    y = torch.arange(3, device=DEVICE)
    call = Call("lq", {"q": 0.7}, -100, "none")
    want, got = torch.empty_like(z), torch.empty_like(z)
    launch(call, z, y, grad=want, upstream=apart.float())
    launch(call, z, y, grad=got, upstream=apart)
    assert torch.equal(want, got)
    assert torch.equal(triton_launch.scale_(z.clone(), apart), z * apart.float().unsqueeze(1))


@on_device
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("num_classes", [1, 2])
def test_one_row_and_one_class(n: int, num_classes: int, kind: str) -> None:
    z = torch.randn(n, num_classes, device=DEVICE).requires_grad_()
    y = torch.zeros(n, dtype=torch.long, device=DEVICE)
    for phi in losses_for(kind) if INTERPRETED else ("lq", "js"):  # a GPU compiles each of them anew
        got, truth = fused(z, y, phi), plain(z, y, phi)
        torch.testing.assert_close(got, truth, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient(got, z), gradient(truth, z), rtol=1e-5, atol=1e-6)


@on_device
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_weights_of_any_dtype(dtype: torch.dtype, kind: str) -> None:
    z = torch.randn(6, 30, device=DEVICE)
    y = torch.arange(6, device=DEVICE)
    weights = {"weight": torch.arange(30, device=DEVICE) % 3, "sample_weight": y % 2 + 1}
    asked = {name: w.to(dtype) for name, w in weights.items()}
    exact = {name: w.to(dtype).float() for name, w in weights.items()}
    torch.testing.assert_close(fused(z, y, **asked), plain(z, y, **exact))


@on_device
def test_fp16_waits_for_the_loss_scale(kind: str) -> None:
    z = torch.zeros(4, 300, device=DEVICE, dtype=torch.float16).requires_grad_()
    weight = torch.full((4,), 1e-7, device=DEVICE)
    loss = fused(z, torch.arange(4, device=DEVICE), "cce", sample_weight=weight, reduction="sum")
    grad = gradient(loss, z, torch.tensor(2.0**16, device=DEVICE))
    exact = z.detach().double().requires_grad_()
    truth = gradient(
        plain(exact, torch.arange(4, device=DEVICE), "cce", sample_weight=weight, reduction="sum"),
        exact, torch.tensor(2.0**16, device=DEVICE).double(),
    )  # fmt: skip
    torch.testing.assert_close(grad.double(), truth, rtol=2e-3, atol=1e-7)


@on_device
def test_gradcheck_and_gradgradcheck(kind: str) -> None:
    z = torch.randn(2, 3, device=DEVICE, dtype=torch.float64).requires_grad_()
    y = torch.tensor([0, 2], device=DEVICE)
    assert torch.autograd.gradcheck(lambda t: fused(t, y, reduction="sum" if kind == "tile" else "none"), z)
    assert torch.autograd.gradgradcheck(lambda t: fused(t, y, reduction="none"), z)


class Halved(LqLoss):
    """A child with a number and a `forward` of its own, and its parent's formula."""

    def __init__(self, *, twice_q: float = 1.0) -> None:
        super().__init__(q=twice_q / 2)

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return 3 * super().forward(logits, labels, sample_weight)


@on_device
@pytest.mark.parametrize("loss", [CCELoss(label_smoothing=0.2), Halved(), LqLoss(reduction="none")])
def test_modules_take_the_kernels_and_are_differentiated_twice(
    loss: PhiLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = torch.randn(3, 4, device=DEVICE, dtype=torch.float64).requires_grad_()
    y = torch.tensor([0, 2, 1], device=DEVICE)
    weight = torch.rand(3, device=DEVICE, dtype=torch.float64)
    monkeypatch.setattr(can, "run_triton", lambda *_: False)
    plain_value = loss(z, y, weight)
    plain_grad = gradient(plain_value.sum(), z)
    monkeypatch.setattr(can, "run_triton", lambda *_: True)  # also in the interpreter
    value = loss(z, y, weight)
    torch.testing.assert_close(value, plain_value)
    for again in (True, False):  # the second one by the kernels
        (grad,) = torch.autograd.grad(value.sum(), z, create_graph=again, retain_graph=True)
        torch.testing.assert_close(grad, plain_grad)
    assert torch.autograd.gradgradcheck(lambda t: loss(t, y, weight), z)


@on_device
def test_repeats_bit_by_bit(kind: str) -> None:
    z = torch.randn(5 if INTERPRETED else 2000, 300, device=DEVICE).requires_grad_()
    y = torch.randint(300, (len(z),), device=DEVICE)
    runs = [fused(z, y) for _ in range(2 if INTERPRETED else 20)]
    grads = [gradient(loss, z) for loss in runs]
    assert all(torch.equal(runs[0], run) for run in runs)
    assert all(torch.equal(grads[0], grad) for grad in grads)


def test_where_it_serves() -> None:
    assert not can.run_triton(torch.zeros(2, 2))
    if torch.cuda.is_available():
        z = torch.zeros(2, 2, device="cuda")
        assert can.run_triton(z)
        assert not can.run_triton(z[:0])
        assert not can.run_triton(z.int())
        assert not can.run_triton(torch.zeros(1, 262145, device="cuda"))
        wants = torch.ones(2, device="cuda", requires_grad=True)
        assert not can.run_triton(z, None, wants)
        assert not can.run_triton(z, wants, None)


@from_outside
def test_threads_on_streams_of_their_own_have_tickets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(dict):  # type: ignore[type-arg]
        def __len__(self) -> int:
            count = super().__len__()
            time.sleep(0.002)
            return count

    class Stream:
        @property
        def cuda_stream(self) -> int:
            return threading.get_ident()

    device = torch.device("cuda", 99)
    monkeypatch.setitem(triton_launch._tickets, device, (torch.zeros(8192, 4, dtype=torch.int32), Slow()))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream())
    together = threading.Barrier(8)

    def take(_: int) -> int:
        together.wait()
        return triton_launch._ticket(device).data_ptr()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(take, range(8)))) == 8


@from_outside
def test_a_triton_that_cannot_build_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images for use, not for building, hold Triton but no C compiler."""
    pytest.importorskip("triton")

    class Driver:
        @property
        def active(self) -> None:
            raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr("triton.runtime.driver", Driver())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    caches = (can.device_has_triton, can._triton_starts)
    try:
        for cache in caches:
            cache.cache_clear()
        with pytest.warns(RuntimeWarning, match="Failed to find C compiler.*plain path"):
            assert not can.device_has_triton(torch.device("cuda", 0))
        assert not can.device_has_triton(torch.device("cuda", 1))
    finally:
        for cache in caches:
            cache.cache_clear()


@gpu_only
@pytest.mark.parametrize("shape", [(128, 10), (128, 100)])
def test_two_kernels_and_no_synchronisation(shape: tuple[int, int]) -> None:
    z = torch.randn(shape, device="cuda").requires_grad_()
    y = torch.randint(shape[1], shape[:1], device="cuda")
    one = torch.ones((), device="cuda")
    gradient(fused(z, y), z, one)  # compiled
    try:
        torch.cuda.set_sync_debug_mode("error")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            gradient(fused(z, y), z, one)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert 0 < len(kernels) <= 2, [e.name for e in kernels]


@gpu_only
@pytest.mark.parametrize("shape", [(128, 10), (600, 1000), (64, 32000), (64, 128256)])
def test_in_a_cuda_graph(shape: tuple[int, int]) -> None:
    z = torch.randn(shape, device="cuda").requires_grad_()
    y = torch.randint(shape[1], shape[:1], device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # where the tensors above are made
    with torch.cuda.stream(stream):
        for _ in range(2):
            gradient(fused(z, y), z)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = fused(z, y)
        grad = gradient(loss, z)
    for _ in range(3):
        with torch.no_grad():
            z.normal_()
        graph.replay()
        fresh = fused(z, y)
        assert torch.equal(loss, fresh)
        assert torch.equal(grad, gradient(fresh, z))


@gpu_only
@pytest.mark.parametrize("shape", [(4096, 1000), (300, 128256)])
def test_two_graphs_at_once(shape: tuple[int, int]) -> None:
    """Each captured launch counts its programs apart from every other."""
    streams, graphs, losses, want, inputs = [torch.cuda.Stream() for _ in range(2)], [], [], [], []
    for seed in range(2):
        torch.manual_seed(seed)
        z = torch.randn(shape, device="cuda")
        y = torch.randint(shape[1], shape[:1], device="cuda")
        inputs.append((z, y))  # a graph does not keep what it reads
        want.append(fused(z, y))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses.append(fused(z, y))
        graphs.append(graph)
    for _ in range(20):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(losses, want, strict=True))


@gpu_only
def test_beyond_2_to_the_31_logits() -> None:
    n, c = 70_000, 32_000
    z = torch.zeros(n, c, device="cuda", dtype=torch.bfloat16)
    z[-1, 5] = 8.0
    z.requires_grad_()
    y = torch.full((n,), 5, device="cuda")
    loss = fused(z, y, reduction="none")
    grad = gradient(loss, z, torch.ones_like(loss))
    few = z.detach()[-2:].clone().requires_grad_()
    want = fused(few, y[-2:], reduction="none")
    assert torch.equal(loss[-2:], want)
    assert torch.equal(grad[-2:], gradient(want, few, torch.ones_like(want)))
    assert torch.equal(grad[0], grad[n // 2])
