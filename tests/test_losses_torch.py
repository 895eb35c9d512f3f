"""The losses as PyTorch citizens: same meaning as CrossEntropyLoss, and at home in its transforms."""

from __future__ import annotations

import copy
import io
import math
import shutil
from typing import ClassVar

import pytest
import torch
import torch._inductor.config
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import tolerant
from tolerant import functional
from tolerant.kernels import can
from tolerant.kernels.cpu import BLOCK_BYTES
from tolerant.losses import (
    REGISTRY,
    BackwardCorrected,
    BinaryLqLoss,
    CCELoss,
    ForwardCorrected,
    GJSLoss,
    JSLoss,
    LqLoss,
    MAELoss,
    NCELoss,
    PhiLoss,
    RCELoss,
    SumLoss,
    make_loss,
)

N, C = 12, 5
PHI_LOSSES = [name for name, loss in REGISTRY.items() if issubclass(loss, PhiLoss)]


def example(seed: int = 0, shape: tuple[int, ...] = (N, C), dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(shape, generator=generator)).to(dtype)
    labels = torch.randint(shape[1], shape[:1] + shape[2:], generator=generator)
    return logits, labels, generator


def value_and_gradient(loss, logits, *args):
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, *args)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


SHAPES = [(N, C), (4, C, 3), (2, C, 3, 2)]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("ignored", ["none", "some", "all"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", [CCELoss, LqLoss])
@pytest.mark.parametrize("impl", ["auto", "plain"])
def test_q_0_is_cross_entropy(loss, impl, shape, weighted, ignored, reduction):
    logits, labels, generator = example(1, shape)
    if ignored == "some":
        labels[torch.rand(labels.shape, generator=generator) < 0.4] = -7
    elif ignored == "all":
        labels[:] = -7
    weight = torch.rand(C, generator=generator) if weighted else None
    options = {"weight": weight, "ignore_index": -7, "reduction": reduction}
    own = loss(**options, impl=impl, **({"q": 0} if loss is LqLoss else {}))
    found = value_and_gradient(own, logits, labels)
    expected = value_and_gradient(lambda z, y: F.cross_entropy(z, y, **options), logits, labels)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("ignore_index", [0, C - 1, C])
def test_a_class_can_be_the_ignored_one(ignore_index):
    logits, labels, _ = example(1)
    found = value_and_gradient(LqLoss(q=0, ignore_index=ignore_index), logits, labels)
    expected = value_and_gradient(
        lambda z, y: F.cross_entropy(z, y, ignore_index=ignore_index), logits, labels
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_soft_labels_and_smoothing_are_cross_entropy_s(shape, soft, smoothing, weighted, reduction):
    logits, labels, generator = example(2, shape)
    if soft:
        labels = torch.rand(shape, generator=generator).softmax(1)
    else:
        labels.view(-1)[0] = -100
    weight = torch.rand(C, generator=generator) if weighted else None
    options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    found = value_and_gradient(CCELoss(**options), logits, labels)
    expected = value_and_gradient(lambda z, y: F.cross_entropy(z, y, **options), logits, labels)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_unbatched_logits_are_one_row():
    logits, labels, _ = example()
    assert LqLoss()(logits[0], labels[0]) == LqLoss()(logits[:1], labels[:1])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("soft", [False, True])
def test_empty_batch_is_torch_s(reduction, soft):
    logits, labels = torch.zeros(0, C), torch.zeros(0, C) if soft else torch.zeros(0, dtype=torch.long)
    found = LqLoss(reduction=reduction)(logits, labels)
    torch.testing.assert_close(found, F.cross_entropy(logits, labels, reduction=reduction), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool])
@pytest.mark.parametrize("name", REGISTRY)
def test_the_logits_alone_decide_the_dtype(name, dtype):
    """Weights and soft labels come as the data has them: float64 from numpy, a mask, half precision."""
    logits, labels, _ = example(26)
    weights = torch.tensor([0, 1, 1]).repeat(N // 3)
    loss = make_loss(name)
    expected = value_and_gradient(loss, logits, labels, weights.float())
    calls = [(labels, weights.to(dtype))]
    if dtype.is_floating_point:
        calls.append((F.one_hot(labels, C).to(dtype), weights.to(dtype)))
    for call in calls:
        for found, right in zip(value_and_gradient(loss, logits, *call), expected, strict=True):
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, right)


@pytest.mark.parametrize("name", REGISTRY)
def test_soft_one_hot_labels_equal_hard_labels(name):
    logits, labels, _ = example(3)
    one_hot = F.one_hot(labels, C).float()
    hard = value_and_gradient(make_loss(name), logits, labels)
    soft = value_and_gradient(make_loss(name), logits, one_hot)
    for a, b in zip(hard, soft, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", [*REGISTRY, "two views"])
def test_soft_one_hot_labels_have_the_class_weights_of_hard_ones(name):
    """Also in what is the same for every label: a class of weight 0 must not count."""
    logits, labels, generator = example(3)
    weight = torch.rand(C, generator=generator)
    weight[0] = 0.0
    loss = make_loss("gjs" if name == "two views" else name, weight=weight, reduction="none")
    views = [logits, logits.flip(0)] if name == "two views" else logits
    torch.testing.assert_close(loss(views, F.one_hot(labels, C).float()), loss(views, labels))


@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_mean_over_no_row_is_nan_without_a_gradient(weighted, smoothing):
    """As in torch: one batch of ignored rows must not make a whole model NaN."""
    logits, labels, generator = example(3)
    weight = torch.rand(C, generator=generator) if weighted else None
    loss = CCELoss(weight=weight, label_smoothing=smoothing)
    value, gradient = value_and_gradient(loss, logits, torch.full_like(labels, -100))
    assert value.isnan()
    assert (gradient == 0).all()


@pytest.mark.parametrize("name", REGISTRY)
def test_sample_weight_counts_rows(name):
    """A row of weight 2 is the row twice, one of weight 0 is no row."""
    logits, labels, _ = example(4)
    weights = torch.tensor([0.0, 1.0, 2.0]).repeat(N // 3)
    repeated = torch.arange(N).repeat_interleave(weights.long())
    loss = make_loss(name)
    torch.testing.assert_close(
        loss(logits, labels, sample_weight=weights), loss(logits[repeated], labels[repeated])
    )


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_rows_are_no_rows(name, reduction):
    logits, labels, _ = example(5)
    holes = labels.clone()
    holes[::3] = -100
    keep = holes != -100
    # An ignored row's masked-out classes must not matter.
    logits[0] = torch.tensor([-math.inf] * (C - 1) + [0.0])
    loss = make_loss(name, reduction=reduction)
    found, gradient = value_and_gradient(loss, logits, holes)
    expected = loss(logits[keep], labels[keep])
    torch.testing.assert_close(found[keep] if reduction == "none" else found, expected)
    assert (gradient[~keep] == 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", [*REGISTRY, "smoothed", "forward", "backward"])
def test_a_row_that_does_not_count_may_hold_anything(name, soft, bad):
    """Also on the way back: 0 * NaN would make the weights of a whole model NaN."""
    logits, labels, _ = example(5)
    noise = 0.8 * torch.eye(C) + 0.2 / C
    own = {
        "smoothed": lambda **options: CCELoss(label_smoothing=0.1, **options),
        "forward": lambda **options: ForwardCorrected(LqLoss(**options), noise),
        "backward": lambda **options: BackwardCorrected(CCELoss(**options), noise),
    }
    given = F.one_hot(labels, C).float() if soft else labels
    keep, weights = torch.arange(N) != 3, torch.ones(N)
    logits[3], weights[3] = bad, 0.0
    for impl in ("auto", "plain"):
        loss = own[name](impl=impl) if name in own else make_loss(name, impl=impl)
        found, expected = [], []
        for part, results in ((slice(None), found), (keep, expected)):
            leaf, weight = logits[part].requires_grad_(), weights[part].requires_grad_()
            value = loss(leaf, given[part], weight)
            results += [value, *torch.autograd.grad(value, (leaf, weight))]
        torch.testing.assert_close(found[0], expected[0])
        for all_rows, counted in zip(found[1:], expected[1:], strict=True):
            torch.testing.assert_close(all_rows[keep], counted)
        assert (found[1][3] == 0).all()
        assert found[2][3].isfinite()


@pytest.mark.parametrize("name", [*REGISTRY, "forward"])
def test_one_hot_labels_equal_hard_ones_beside_a_masked_class(name):
    logits, labels, _ = example(3)
    logits[torch.arange(N), (labels + 1) % C] = -math.inf
    loss = ForwardCorrected(CCELoss(), torch.eye(C)) if name == "forward" else make_loss(name)
    one_hot = F.one_hot(labels, C).float()
    hard, soft = value_and_gradient(loss, logits, labels), value_and_gradient(loss, logits, one_hot)
    for a, b in zip(hard, soft, strict=True):
        torch.testing.assert_close(a, b)


def test_a_label_s_probability_of_zero_has_a_gradient_under_a_correction():
    """Learnt labels start from the given ones, whose other classes are at 0."""
    logits, labels, _ = example(3)
    soft = F.one_hot(labels, C).float().requires_grad_()
    loss = ForwardCorrected(LqLoss(reduction="sum"), 0.8 * torch.eye(C) + 0.2 / C)
    (found,) = torch.autograd.grad(loss(logits, soft), soft)
    each = ForwardCorrected(LqLoss(reduction="none"), loss.transition)
    expected = torch.stack([each(logits, torch.full((N,), label)) for label in range(C)], 1)
    torch.testing.assert_close(found, expected)


def test_smoothed_soft_labels_keep_their_digits_in_half_precision():
    logits, labels, _ = example(3)
    one_hot = F.one_hot(labels, C)
    loss = CCELoss(label_smoothing=0.1)
    for dtype in (torch.bfloat16, torch.float16):
        torch.testing.assert_close(loss(logits, one_hot.to(dtype)), loss(logits, labels))


def test_a_loss_scale_and_a_masked_class_give_no_nan():
    logits, labels = torch.tensor([[0.3, -math.inf, 1.0, 2.0]]), torch.tensor([0])
    loss = make_loss("bootstrap-soft", beta=0.5)
    _, expected = value_and_gradient(loss, logits, labels)
    _, scaled = value_and_gradient(lambda z, y: 2.0**30 * loss(z, y), logits, labels)
    torch.testing.assert_close(scaled / 2**30, expected)


@pytest.mark.parametrize("name", PHI_LOSSES)
def test_fused_path_equals_plain_path(name):
    """Over several blocks of rows, with weights, ignored rows and an upstream gradient."""
    rows = 3 * BLOCK_BYTES // (8 * 1000) + 5
    logits, labels, generator = example(6, (rows, 1000))
    labels[::7] = -100
    weight, upstream = torch.rand(1000, generator=generator), torch.rand(rows, generator=generator)
    results = []
    for impl in ("fused", "plain"):
        leaf = logits.clone().requires_grad_()
        losses = make_loss(name, impl=impl, weight=weight, reduction="none")(leaf, labels)
        losses.backward(upstream)
        results.append((losses.detach(), leaf.grad))
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=4e-6, atol=1e-12)


def test_subclasses_of_tensor_see_the_operations():
    class Traced(Tensor):
        calls: ClassVar[set[str]] = set()

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.calls.add(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    logits, labels, _ = example()
    found = LqLoss(reduction="none")(logits.as_subclass(Traced), labels)
    assert "exp" in Traced.calls
    torch.testing.assert_close(found.as_subclass(Tensor), LqLoss(reduction="none")(logits, labels))


@pytest.mark.parametrize("shape", [(5, 7), (700, 100)])
def test_fake_tensors_take_the_plain_path(shape):
    """Estimates of memory run a step on tensors without numbers, which no path may look into."""
    with FakeTensorMode():
        logits = torch.zeros(shape, requires_grad=True)
        LqLoss()(logits, torch.zeros(shape[0], dtype=torch.long)).backward()
        assert not can.run_triton(torch.zeros(shape, device="cuda"))
    assert logits.grad.shape == shape


@pytest.mark.parametrize("name", ["lq", "nce", "forward", "linear-lq"])
def test_a_recorded_graph_holds_for_other_inputs(name):
    """make_fx on real tensors: what was read from them on the way, labels or numpy's results, would stay."""
    weight = torch.randn(C, C, generator=torch.Generator().manual_seed(1))
    loss = {
        "forward": ForwardCorrected(LqLoss(), 0.8 * torch.eye(C) + 0.04),
        "linear-lq": lambda logits, labels: functional.linear_lq_loss(logits, weight, labels, k=0.3),
    }.get(name) or make_loss(name)

    def value_then_gradient(logits, labels):
        return value_and_gradient(loss, logits, labels)

    recorded = make_fx(value_then_gradient)(*example(0)[:2])
    logits, labels, _ = example(1)
    labels[0] = -100
    torch.testing.assert_close(recorded(logits, labels), value_then_gradient(logits, labels))


@pytest.mark.parametrize("shape", [(5, 7), (700, 100)])
def test_torchs_default_device_does_not_matter(shape):
    logits, labels, _ = example(shape=shape, dtype=torch.bfloat16)
    expected = value_and_gradient(LqLoss(), logits, labels)
    with torch.device("meta"):
        found = value_and_gradient(LqLoss(), logits, labels)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_many_upstream_gradients_at_once(dtype, reduction):
    """As ``torch.autograd.functional.jacobian(vectorize=True)`` asks for them."""
    logits, labels, _ = example()
    leaf = logits.to(dtype).requires_grad_()
    value = LqLoss(reduction=reduction)(leaf, labels)
    upstream = torch.randn(3, *value.shape)
    (found,) = torch.autograd.grad(value, leaf, upstream, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(value, leaf, one, retain_graph=True)[0] for one in upstream]
    torch.testing.assert_close(found, torch.stack(each))
    assert not found.requires_grad


def test_backward_twice_and_scaled_upstream():
    logits, labels, _ = example()
    leaf = logits.requires_grad_()
    value = LqLoss()(leaf, labels)
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    (scaled,) = torch.autograd.grad(3 * value, leaf, retain_graph=True)
    (again,) = torch.autograd.grad(value, leaf)
    torch.testing.assert_close(scaled, 3 * first)
    assert torch.equal(first, again)


def test_a_loss_scale_reaches_fp16_gradients():
    """The gradient 8.3e-7 is a denormal of fp16: scaled by 65536 it must come out with all its bits."""
    logits = torch.tensor([[0.0, 20.0]], dtype=torch.float16, requires_grad=True)
    labels = torch.tensor([0])
    (65536 * LqLoss(q=0.7)(logits, labels)).backward()
    exact = torch.tensor([[0.0, 20.0]], dtype=torch.float64, requires_grad=True)
    (65536 * LqLoss(q=0.7)(exact, labels)).backward()
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=2**-11, atol=0)


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("soft", [False, True])
def test_gradcheck_and_gradgradcheck(name, soft):
    logits, labels, generator = example(7, (4, C), torch.float64)
    if soft:
        labels = torch.rand(4, C, generator=generator, dtype=torch.float64).softmax(1)
    # rows of p_y = k and ties of the most probable class are kinks: random rows have neither
    loss = make_loss(name, weight=torch.rand(C, generator=generator, dtype=torch.float64))
    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), leaf)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), leaf)


@pytest.mark.parametrize("corrected", [ForwardCorrected, BackwardCorrected])
def test_corrections_pass_gradcheck(corrected):
    logits, labels, _ = example(8, (4, C), torch.float64)
    transition = 0.2 / C + 0.8 * torch.eye(C, dtype=torch.float64)
    loss = corrected(CCELoss(), transition)
    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), leaf)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), leaf)


def test_sample_weight_has_a_gradient():
    """Learning to reweight: d loss / d weight."""
    logits, labels, _ = example(9, (4, C), torch.float64)
    weights = torch.rand(4, dtype=torch.float64, requires_grad=True)
    leaf = logits.requires_grad_()
    for impl in ("fused", "plain"):
        loss = LqLoss(impl=impl)
        assert torch.autograd.gradcheck(lambda w, loss=loss: loss(logits.detach(), labels, w), weights)
        assert torch.autograd.gradgradcheck(lambda z, w, loss=loss: loss(z, labels, w), (leaf, weights))


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", [*REGISTRY, "forward", "backward"])
def test_a_weight_of_zero_has_its_rows_loss_as_gradient(name, create_graph, impl):
    # Learning to reweight (Ren et al. 2018) takes this gradient at weights that are all 0.
    logits, labels, _ = example()
    if name != "backward":  # whose inverse gives every class a weight
        logits[torch.arange(N), (labels + 1) % C] = -math.inf
    corrections = {"forward": ForwardCorrected, "backward": BackwardCorrected}

    def make(reduction):
        if name not in corrections:
            return make_loss(name, reduction=reduction, impl=impl)
        noise = 0.8 * torch.eye(C) + 0.2 / C
        return corrections[name](CCELoss(reduction=reduction, impl=impl), noise)

    weight = torch.zeros(N, requires_grad=True)
    value = make("sum")(logits.requires_grad_(), labels, weight)
    (found,) = torch.autograd.grad(value, weight, create_graph=create_graph)
    torch.testing.assert_close(found, make("none")(logits, labels))


@pytest.mark.parametrize("name", REGISTRY)
def test_per_sample_gradients_by_vmap(name):
    logits, labels, _ = example(10)
    loss = make_loss(name)
    by_vmap = torch.func.vmap(torch.func.grad(loss))(logits, labels)
    one_by_one = torch.stack([torch.func.grad(loss)(z, y) for z, y in zip(logits, labels, strict=True)])
    torch.testing.assert_close(by_vmap, one_by_one)
    _, summed = value_and_gradient(make_loss(name, reduction="sum"), logits, labels)
    torch.testing.assert_close(by_vmap, summed)


COMPOSED = {
    "forward": lambda **options: ForwardCorrected(LqLoss(**options), torch.eye(C) * 0.5 + 0.5 / C),
    "backward": lambda **options: BackwardCorrected(CCELoss(**options), torch.eye(C) * 0.5 + 0.5 / C),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_per_sample_gradients_of_corrections(name):
    logits, labels, _ = example(14)
    loss = COMPOSED[name](reduction="sum")
    _, expected = value_and_gradient(loss, logits, labels)
    found = torch.func.vmap(torch.func.grad(lambda z, y: loss(z, y)))(logits, labels)
    torch.testing.assert_close(found, expected)


def test_per_sample_gradients_of_binary():
    logits, _, _ = example(14)
    labels, loss = (logits > 1).float(), BinaryLqLoss(reduction="sum")
    _, expected = value_and_gradient(loss, logits, labels)
    found = torch.func.vmap(torch.func.grad(lambda z, y: loss(z, y)))(logits, labels)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which forward_ad still loads
@pytest.mark.parametrize("name", ["lq", "nce", *COMPOSED])
def test_a_hessian_takes_reverse_mode_and_forward_mode_says_so(name):
    logits, labels, _ = example(16, (3, C), torch.float64)
    module = COMPOSED[name]() if name in COMPOSED else make_loss(name)

    def loss(z):
        return module(z, labels)

    def by_dual_numbers(z):
        with forward_ad.dual_level():
            return loss(forward_ad.make_dual(z, z))

    for forward_mode in (torch.func.jacfwd(loss), torch.func.hessian(loss), by_dual_numbers):
        with pytest.raises(NotImplementedError, match=r"jacrev\(jacrev\(loss\)\)"):
            forward_mode(logits)
    found = torch.func.jacrev(torch.func.jacrev(loss))(logits)
    torch.testing.assert_close(found, torch.autograd.functional.hessian(loss, logits))


@pytest.mark.parametrize("wrong", [-1, C])
@pytest.mark.parametrize("name", [*REGISTRY, *COMPOSED])
def test_wrong_labels_are_refused_where_no_check_can_look(name, wrong):
    """Without an error the loss of no class at all would train, and nobody would know."""
    logits, labels, _ = example(15)
    labels[3] = wrong
    loss = COMPOSED[name]() if name in COMPOSED else make_loss(name)
    for transformed in (torch.func.grad(loss), torch.func.vmap(torch.func.grad(loss))):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            transformed(logits, labels)


@pytest.mark.parametrize("name", ["lq", "nce", *COMPOSED])
def test_wrong_labels_are_refused_by_a_compiled_loss(name):
    logits, labels, _ = example(15)
    loss = COMPOSED[name]() if name in COMPOSED else make_loss(name)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for labels[3] in (-1, C):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            compiled(logits, labels)


@pytest.mark.parametrize("name", ["lq", "truncated-lq", "nce", "cce"])
def test_compiles_without_a_graph_break(name):
    logits, labels, generator = example(11)
    labels[0] = -100
    loss = make_loss(name, weight=torch.rand(C, generator=generator))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for found, expected in zip(
        value_and_gradient(compiled, logits, labels), value_and_gradient(loss, logits, labels), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["lq", "binary-lq", "linear-lq"])
def test_q_may_change_from_call_to_call_of_a_compiled_loss(name):
    """From the second value on torch.compile takes q for a variable, and must still follow its check."""
    logits, labels, generator = example(13)
    weight = torch.randn(C, C, generator=generator)

    def loss(q):
        if name == "binary-lq":
            return functional.binary_lq_loss(logits, F.one_hot(labels, C), q=q)
        if name == "linear-lq":
            return functional.linear_lq_loss(logits, weight, labels, q=q)
        return functional.lq_loss(logits, labels, q=q)

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for q in (0.7, 0.6, 0.5):
        torch.testing.assert_close(compiled(q), loss(q))


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs g++ on a CPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which Inductor still loads
def test_inductor_keeps_the_digits_near_p_y_1():
    """Its own expm1 has none there: a loss of 0, and for focal the gradient 0 / 0."""
    logits = torch.zeros(64, 10)
    logits[:, 0] = torch.arange(64)
    labels = torch.zeros(64, dtype=torch.long)
    losses = [make_loss(name, reduction="none") for name in ("lq", "focal")]

    def both(logits):  # compiled at once: to start g++ takes longer than all else
        return torch.stack([loss(one, labels) for loss, one in zip(losses, logits, strict=True)])

    logits = torch.stack([logits, logits])
    torch._dynamo.reset()
    # Else a program is compiled for each vector unit, only to see that it runs.
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        compiled = value_and_gradient(torch.compile(both, dynamic=False), logits)
    for found, expected in zip(compiled, value_and_gradient(both, logits), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("name", REGISTRY)
def test_autocast_and_bf16_keep_fp32_inside(name):
    logits, labels, _ = example(12, dtype=torch.bfloat16)
    loss = make_loss(name)
    value, gradient = value_and_gradient(loss, logits, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast, its_gradient = value_and_gradient(loss, logits, labels)
    assert value.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16
    assert torch.equal(value, under_autocast)
    assert torch.equal(gradient, its_gradient)
    torch.testing.assert_close(value, loss(logits.float(), labels))


def test_a_checkpoint_with_cross_entropy_s_class_weights_is_loaded():
    """As of a module whose one line was changed since."""
    weight = torch.tensor([1.0, 2.0, 0.5])
    before = torch.nn.ModuleDict({"loss": torch.nn.CrossEntropyLoss(weight=weight)}).state_dict()
    after = torch.nn.ModuleDict({"loss": LqLoss(q=0.7, weight=torch.ones(3))})
    after.load_state_dict(before)
    assert torch.equal(after["loss"].class_weight, weight)
    assert list(before) == ["loss.weight"]
    after.load_state_dict(after.state_dict())
    without = torch.nn.ModuleDict({"loss": LqLoss(q=0.7)})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "loss\.weight"'):
        without.load_state_dict(before)


def test_activation_checkpointing():
    linear = torch.nn.Linear(8, C)
    inputs, labels = torch.randn(N, 8), example()[1]
    loss = LqLoss()
    plain = torch.autograd.grad(loss(linear(inputs), labels), linear.weight)[0]
    again = torch.utils.checkpoint.checkpoint(lambda x: loss(linear(x), labels), inputs, use_reentrant=False)
    assert torch.equal(plain, torch.autograd.grad(again, linear.weight)[0])


@pytest.mark.parametrize("name", REGISTRY)
def test_nan_logits_give_nan(name):
    logits, labels, _ = example(13)
    logits[2, 1] = math.nan
    for reduction in ("mean", "none"):
        value, gradient = value_and_gradient(make_loss(name, reduction=reduction), logits, labels)
        assert value.isnan()[2 if reduction == "none" else ...].all()
        assert gradient[2].isnan().all()


@pytest.mark.parametrize("name", REGISTRY)
def test_masked_classes(name):
    """A logit of -inf takes a class out: finite gradients, also for the masked label of a bounded loss."""
    logits = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf, 2.0, -math.inf], [-math.inf, 0.0, 1.0]])
    value, gradient = value_and_gradient(make_loss(name, reduction="none"), logits, torch.tensor([0, 1, 0]))
    assert torch.isfinite(value[:2]).all()
    assert not value.isnan().any()
    assert torch.isfinite(gradient).all()
    assert gradient[0, 1] == 0


@pytest.mark.parametrize("impl", ["auto", "plain"])
def test_q_0_is_cross_entropy_for_a_masked_label_too(impl):
    logits, labels = torch.tensor([[-math.inf, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.tensor([0, 1])
    value, gradient = value_and_gradient(LqLoss(q=0.0, impl=impl), logits, labels)
    expected, expected_gradient = value_and_gradient(F.cross_entropy, logits, labels)
    assert value == expected == math.inf
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize(
    ("name", "hyper"),
    [("nce", {}), ("nfl", {}), ("nfl", {"gamma": 2.0}), ("ngce", {}), ("ngce", {"q": 0.0})],
)
def test_a_masked_class_is_as_good_as_none(name, hyper):
    """Normalised over the classes that are left; the only one costs 0, a masked label 1 where cce is inf."""
    loss = make_loss(name, **hyper, reduction="none")
    logits, labels, _ = example(15, dtype=torch.float64)
    wide = torch.cat([logits, torch.full((len(logits), 2), -math.inf, dtype=torch.float64)], dim=1)
    value, gradient = value_and_gradient(loss, logits, labels)
    wide_value, wide_gradient = value_and_gradient(loss, wide, labels)
    torch.testing.assert_close(wide_value, value)
    torch.testing.assert_close(wide_gradient[:, :-2], gradient)
    assert not wide_gradient[:, -2:].any()
    ends = torch.tensor([[-math.inf, 1.0, 2.0], [1.0, -math.inf, -math.inf]])
    values, gradient = value_and_gradient(loss, ends, torch.tensor([0, 0]))
    assert values[1] == 0
    assert values[0] == 1 or loss.hyper.get("q")  # whose a is finite
    assert not gradient.isnan().any()


@pytest.mark.parametrize("row", [[200.0, 0.0, 0.0], [-200.0, 0.0, -200.0], [0.0, -math.inf, -math.inf]])
@pytest.mark.parametrize(("name", "hyper"), [*((name, {}) for name in PHI_LOSSES), ("focal", {"gamma": 0.5})])
def test_second_derivatives_where_p_y_is_1_or_0(name, hyper, row):
    leaf = torch.tensor([row], requires_grad=True)
    value = make_loss(name, **hyper)(leaf, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    (second,) = torch.autograd.grad(gradient[0] @ torch.tensor([1.0, 2.0, 3.0]), leaf)
    torch.testing.assert_close(second, torch.zeros(1, 3))


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize("q", [0.0, 0.7, 1.0])
def test_a_row_of_exactly_k_is_truncated(q, impl):
    """Eq. 9 has the constant at f_j <= k; a row just above has its gradient."""
    loss = make_loss("truncated-lq", q=q, k=0.5, impl=impl, reduction="none")
    logits = torch.tensor([[0.0, 0.0], [1e-6, 0.0], [-1e-6, 0.0]])
    value, gradient = value_and_gradient(loss, logits, torch.zeros(3, dtype=torch.long))
    assert gradient.any(dim=1).tolist() == [False, True, False]
    assert value[0] == value[2] >= value[1]


def test_limits_of_the_paper():
    """Lemma 1, q = 1, k -> 0, and the families' other ends."""
    logits, labels, _ = example(14, dtype=torch.float64)

    def close(a, b, tolerance=1e-6):
        torch.testing.assert_close(a(logits, labels), b(logits, labels), rtol=tolerance, atol=tolerance)

    close(LqLoss(q=1e-9), CCELoss())
    close(LqLoss(q=1), lambda z, y: MAELoss()(z, y) / 2)
    close(make_loss("truncated-lq", q=0.7, k=1e-12), LqLoss(q=0.7))
    close(make_loss("taylor", order=1), lambda z, y: MAELoss()(z, y) / 2)
    close(RCELoss(log_zero=-2.0), MAELoss())
    close(make_loss("focal", gamma=0.0), CCELoss())
    close(make_loss("agce", a=1e-9, q=0.7), LqLoss(q=0.7))
    close(make_loss("aul", a=3.0, p=1.0), lambda z, y: MAELoss()(z, y) / 2)
    close(make_loss("phuber", tau=1e9), CCELoss())
    close(JSLoss(pi=1e-8), CCELoss(), 1e-3)
    close(JSLoss(pi=1 - 1e-12), lambda z, y: MAELoss()(z, y) / 2, 0.05)
    close(GJSLoss(pi=0.3), JSLoss(pi=0.3))
    close(make_loss("nfl", gamma=0.0), NCELoss())
    close(make_loss("ngce", q=1e-9), NCELoss())
    close(make_loss("ngce", q=1), lambda z, y: MAELoss()(z, y) / (2 * C - 2))
    close(make_loss("bootstrap-soft", beta=1.0), CCELoss())
    logits = logits / 9  # the series converges slowly where p_y is small
    close(make_loss("taylor", order=1000), CCELoss())


def divergence(views, labels, pi):
    """GJS straight from the definition: H(mixture) - mixture of H."""

    def entropy(x):
        return -torch.xlogy(x, x).sum(1)

    p = [view.softmax(1) for view in views]
    share = (1 - pi) / len(p)
    mixture = pi * F.one_hot(labels, p[0].shape[1]) + share * sum(p)
    return (entropy(mixture) - share * sum(map(entropy, p))) / (-(1 - pi) * math.log(1 - pi))


def test_gjs_of_two_views_is_the_divergence():
    one, labels, generator = example(15, dtype=torch.float64)
    two = torch.randn(N, C, generator=generator, dtype=torch.float64)
    found = GJSLoss(pi=0.3, reduction="none")((one, two), labels)
    torch.testing.assert_close(found, divergence((one, two), labels, 0.3))
    leaf = one.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: GJSLoss(pi=0.3)((z, two), labels), leaf)


def test_gjs_of_a_sure_view_and_others_that_differ():
    """The gradient of p = 1e-9 must not be lost beside that of the others' p = 1."""
    views = torch.tensor([[[-20.5, 0.0]], [[20.0, 0.0]], [[8.0, 0.0]]])
    labels = torch.tensor([0])
    leaves = [view.requires_grad_() for view in views.clone()]
    found = torch.autograd.grad(GJSLoss()(leaves, labels), leaves)
    leaves = [view.requires_grad_() for view in views.double()]
    expected = torch.autograd.grad(divergence(leaves, labels, 0.5).sum(), leaves)
    for one, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), exact, rtol=1e-5, atol=0)
    near = tuple(view.double().requires_grad_() for view in views / 10)
    assert torch.autograd.gradgradcheck(lambda *each: GJSLoss()(each, labels), near)


def test_gjs_of_two_views_leaves_ignored_rows_out():
    one, labels, generator = example(16)
    two = torch.randn(N, C, generator=generator)
    holes = torch.where(torch.arange(N) % 3 == 0, -100, labels)
    one[0], two[3, 1] = math.nan, math.inf
    keep = holes != -100
    value, gradient = value_and_gradient(lambda z, y: GJSLoss()((z, two), y), one, holes)
    torch.testing.assert_close(value, GJSLoss()((one[keep], two[keep]), labels[keep]))
    assert (gradient[~keep] == 0).all()
    assert gradient[keep].isfinite().all()
    torch.testing.assert_close(
        GJSLoss()((one[1], two[1]), labels[1]), GJSLoss()((one[1:2], two[1:2]), labels[1:2])
    )


@pytest.mark.parametrize("masked", ["in both views", "in one"])
def test_gjs_of_two_views_with_a_masked_class(masked):
    one, labels, generator = example(16)
    two = torch.randn(N, C, generator=generator)
    one[:, -1] = -math.inf
    if masked == "in both views":
        two[:, -1] = -math.inf
    labels = labels.clamp(max=C - 2)
    value, gradient = value_and_gradient(lambda z, y: GJSLoss()((z, two), y), one, labels)
    low = one.clamp(min=-1e4)  # as good as masked
    expected = value_and_gradient(lambda z, y: GJSLoss()((z, two.clamp(min=-1e4)), y), low, labels)
    torch.testing.assert_close((value, gradient), expected)


def test_sum_loss_adds():
    logits, labels, _ = example(16)
    both = SumLoss(NCELoss(), RCELoss(), factors=(2.0, 0.5))
    expected = 2 * NCELoss()(logits, labels) + 0.5 * RCELoss()(logits, labels)
    torch.testing.assert_close(both(logits, labels), expected)


def test_forward_correction_of_soft_labels():
    logits, labels, _ = example(17)
    transition = 0.3 / C + 0.7 * torch.eye(C)
    loss = ForwardCorrected(LqLoss(), transition)
    torch.testing.assert_close(loss(logits, F.one_hot(labels, C).float()), loss(logits, labels))


@pytest.mark.parametrize(
    ("corrected", "name"),
    [
        (ForwardCorrected, "cce"),
        (ForwardCorrected, "lq"),
        (ForwardCorrected, "mae"),
        (BackwardCorrected, "cce"),
    ],
)
def test_correction_by_the_identity_leaves_masked_classes_as_they_are(corrected, name):
    logits = torch.tensor([[-math.inf, 0.0, 1.0], [-math.inf, 2.0, -math.inf], [0.0, -math.inf, 1.0]])
    labels, loss = torch.zeros(3, dtype=torch.long), make_loss(name, reduction="none")
    for found, expected in zip(
        value_and_gradient(corrected(loss, torch.eye(3)), logits, labels),
        value_and_gradient(loss, logits, labels),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_forward_correction_is_cross_entropy_of_the_noisy_prediction():
    logits, labels, _ = example(18)
    transition = torch.rand(C, C).softmax(1)
    expected = F.nll_loss(torch.log(logits.softmax(1) @ transition), labels)
    torch.testing.assert_close(ForwardCorrected(CCELoss(), transition)(logits, labels), expected)


@pytest.mark.parametrize(("dtype", "over"), [(torch.float32, 1e-6), (torch.float64, 3e-16)])
def test_forward_correction_with_rows_rounded_up(dtype, over):
    logits, labels, _ = example(17, dtype=dtype)
    rounded = torch.eye(C, dtype=dtype)
    rounded[0, 0] += over
    assert rounded[0, 0] > 1
    torch.testing.assert_close(
        ForwardCorrected(CCELoss(), rounded)(logits, labels), CCELoss()(logits, labels)
    )


def test_backward_correction_is_unbiased():
    """Its mean over the given labels that a true label can get is the clean loss."""
    logits, _, _ = example(19)
    transition = 0.4 / C + 0.6 * torch.eye(C)
    loss = BackwardCorrected(CCELoss(reduction="none"), transition)
    for true_label in range(C):
        given = [loss(logits, torch.full((N,), label)) for label in range(C)]
        mean = sum(t * g for t, g in zip(transition[true_label], given, strict=True))
        clean = F.cross_entropy(logits, torch.full((N,), true_label), reduction="none")
        torch.testing.assert_close(mean, clean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_q_0_is_bce_with_logits(reduction):
    logits, _, generator = example(20)
    labels = torch.rand(N, C, generator=generator)
    options = {"weight": torch.rand(C), "pos_weight": 3 * torch.rand(C), "reduction": reduction}
    found = value_and_gradient(BinaryLqLoss(q=0, **options), logits, labels)
    expected = value_and_gradient(
        lambda z, y: F.binary_cross_entropy_with_logits(z, y, **options), logits, labels
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("by", ["sample_weight", "weight", "ignore_index"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("q", [0, 0.7])
def test_binary_leaves_labels_without_weight_out(by, bad, q):
    logits, labels = torch.tensor([[0.3, bad], [-1.0, bad]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    options, sample_weight = {}, None
    if by == "sample_weight":
        sample_weight = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    elif by == "weight":
        options = {"weight": torch.tensor([1.0, 0.0]), "reduction": "sum"}
    else:
        labels[:, 1] = -100
    logits.requires_grad_()
    loss = BinaryLqLoss(q=q, **options)(logits, labels, sample_weight)
    loss.backward()
    own = logits.detach()[:, :1].requires_grad_()
    wanted = BinaryLqLoss(q=q, reduction=options.get("reduction", "mean"))(own, labels[:, :1])
    wanted.backward()
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(logits.grad, torch.cat([own.grad, torch.zeros(2, 1)], dim=1))


@pytest.mark.parametrize("name", ["weight", "pos_weight", "sample_weight"])
def test_the_logits_alone_decide_the_dtype_of_a_binary_loss(name):
    logits, _, generator = example(15)
    labels, weights = (logits > 1).float(), torch.rand(N, C, generator=generator)
    expected = functional.binary_lq_loss(logits, labels, **{name: weights})
    found = functional.binary_lq_loss(logits, labels, **{name: weights.double()})
    assert found.dtype == torch.float32
    assert found == expected


def test_the_gradient_of_a_binary_label_s_weight_is_its_loss():
    """At weight 0, too: where reweighting starts from."""
    logits, labels, weight = torch.tensor([2.0, -1.0]), torch.tensor([0.0, 1.0]), torch.zeros(2)
    weight.requires_grad_()
    BinaryLqLoss(reduction="sum")(logits, labels, weight).backward()
    torch.testing.assert_close(weight.grad, BinaryLqLoss(reduction="none")(logits, labels))


@pytest.mark.parametrize("k", [None, 0.5])
def test_a_binary_mean_over_no_label_is_nan_without_a_gradient(k):
    logits, _, _ = example(3)
    value, gradient = value_and_gradient(BinaryLqLoss(k=k), logits, torch.full_like(logits, -100))
    assert value.isnan()
    assert (gradient == 0).all()


def test_binary_is_the_two_class_loss():
    logits, _, generator = example(21, (N, 1), torch.float64)
    labels = torch.randint(2, (N,), generator=generator)
    two_columns = torch.cat([torch.zeros_like(logits), logits], 1)
    for options in ({"q": 0.7}, {"q": 0.7, "k": 0.3}):
        name = "truncated-lq" if "k" in options else "lq"
        expected = make_loss(name, **options)(two_columns, labels)
        torch.testing.assert_close(BinaryLqLoss(**options)(logits[:, 0], labels), expected)
    holes = labels.clone()
    holes[0] = -100
    torch.testing.assert_close(BinaryLqLoss()(logits[:, 0], holes), BinaryLqLoss()(logits[1:, 0], labels[1:]))


@pytest.mark.parametrize("name", REGISTRY)
def test_modules_pickle_copy_move_and_equal_their_function(name):
    logits, labels, _ = example(22)
    loss = make_loss(name, weight=torch.arange(1.0, C + 1))
    file = io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    expected = loss(logits, labels)
    assert torch.equal(loaded(logits, labels), expected)
    assert torch.equal(copy.deepcopy(loss)(logits, labels), expected)
    assert loss.to(torch.float64).class_weight.dtype == torch.float64
    assert repr(loss).startswith(type(loss).__name__ + "(")
    function = getattr(functional, f"{name.replace('-', '_')}_loss")
    torch.testing.assert_close(
        function(logits, labels, weight=torch.arange(1.0, C + 1), **loss.hyper), expected
    )
    assert getattr(tolerant, type(loss).__name__) is type(loss)


@pytest.mark.gpu
@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_cuda_equals_cpu(name, dtype):
    logits, labels, _ = example(23, dtype=dtype)
    labels[0] = -100
    found = value_and_gradient(make_loss(name), logits.cuda(), labels.cuda())
    expected = value_and_gradient(make_loss(name), logits, labels)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("name", REGISTRY)
def test_cuda_graph_capture_without_host_sync(name):
    logits, labels, _ = example(24)
    leaf, labels = logits.cuda().requires_grad_(), labels.cuda()
    loss = make_loss(name)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # where the tensors above are made
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(loss(leaf, labels), leaf)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (gradient,) = torch.autograd.grad(loss(leaf, labels), leaf)
    leaf.data.copy_(torch.randn(N, C))
    graph.replay()
    torch.testing.assert_close(gradient, torch.autograd.grad(loss(leaf, labels), leaf)[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_log_p_y_of_any_shape(shape):
    logits, labels, _ = example(25, shape, torch.float64)
    expected = -F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(functional.log_p_y(logits, labels), expected)
    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: functional.log_p_y(z, labels), leaf)
    with pytest.raises(ValueError, match=r"labels must be in 0..4; got -1"):
        functional.log_p_y(logits, torch.full_like(labels, -1))
    with pytest.raises(TypeError, match="labels must be class indices"):
        functional.log_p_y(logits, labels.double())
