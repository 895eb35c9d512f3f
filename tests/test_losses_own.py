"""A loss of one's own: two methods outside the package, at home everywhere the losses of the package are."""

from __future__ import annotations

import copy
import inspect
import io
import math
from typing import Annotated, Unpack

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tolerant
from tolerant.data import NoisyDataset
from tolerant.kernels import can
from tolerant.losses import Common, Domain, ForwardCorrected, LqLoss, PhiLoss
from tolerant.train import Recipe, train

N, C = 12, 5


class Poly1Loss(PhiLoss):
    """Poly-1, Leng et al. 2022: -log p_y + epsilon (1 - p_y)."""

    def __init__(self, *, epsilon: Annotated[float, Domain(-1)] = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return -log_p_y - self.epsilon * torch.expm1(log_p_y)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return 1 + self.epsilon * torch.exp(log_p_y)


class BarePoly1(PhiLoss):
    """As short as it can be: a plain number, and nothing passed on."""

    def __init__(self, *, epsilon: float = 1.0) -> None:
        super().__init__()

    phi, weight = Poly1Loss.phi, Poly1Loss.weight


def poly1(
    logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None, *, epsilon: float = 1.0,
    weight: Tensor | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """From its definition, through torch's cross entropy."""
    soft = labels if labels.is_floating_point() else F.one_hot(labels.clamp(min=0), C).to(logits.dtype)
    log_p = logits.log_softmax(1)
    soft = soft if weight is None else soft * weight
    losses = (soft * (-log_p + epsilon * (1 - log_p.exp()))).sum(1)
    counts = torch.ones(len(losses)) if labels.is_floating_point() else (labels >= 0).to(logits.dtype)
    counts = counts if sample_weight is None else counts * sample_weight
    if reduction == "none":
        return losses * counts
    divisor = counts if weight is None or labels.is_floating_point() else counts * weight[labels.clamp(min=0)]
    return (losses * counts).sum() / (divisor.sum() if reduction == "mean" else 1)


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(N, C, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(C, (N,), generator=generator)


def both(loss, logits: Tensor, *args: Tensor | None) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, *args)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


@pytest.mark.parametrize("impl", ["auto", "plain", "fused"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("labels", ["hard", "ignored", "soft"])
@pytest.mark.parametrize("weights", ["", "class", "sample", "class sample"])
def test_every_reduction_weight_and_kind_of_label(impl, reduction, labels, weights):
    logits, given = example()
    if labels == "soft":
        given = torch.rand(N, C, dtype=torch.float64).softmax(1)
    elif labels == "ignored":
        given[::3] = -100
    weight = torch.rand(C, dtype=torch.float64) if "class" in weights else None
    sample_weight = torch.rand(N, dtype=torch.float64) if "sample" in weights else None
    loss = Poly1Loss(epsilon=2.0, weight=weight, reduction=reduction, impl=impl)
    options = {"epsilon": 2.0, "weight": weight, "reduction": reduction}
    found = both(loss, logits, given, sample_weight)
    expected = both(lambda *args: poly1(*args, **options), logits, given, sample_weight)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize("gap", [20.0, 110.0, 1e4, -20.0])
def test_the_weight_that_is_written_out_is_the_gradient(impl, gap):
    """As exact as the weight: autograd through the formula would know nothing of p_y = 1e-9."""
    logits, labels = torch.tensor([[0.0, gap]]), torch.tensor([0])
    _, found = both(Poly1Loss(impl=impl), logits, labels)
    _, exact = both(Poly1Loss(impl="plain"), logits.double(), labels)
    torch.testing.assert_close(found.double(), exact, rtol=2.4e-7 * (6 + abs(gap)), atol=1e-37)


def test_transforms_and_second_derivatives():
    logits, labels = example()
    loss = Poly1Loss(reduction="sum")
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), logits)
    by_vmap = torch.func.vmap(torch.func.grad(loss))(logits.detach(), labels)
    torch.testing.assert_close(by_vmap, both(loss, logits, labels)[1])


@pytest.mark.parametrize("loss", [Poly1Loss, BarePoly1])
def test_compiles_without_a_graph_break(loss):
    logits, labels = example(torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(loss(epsilon=0.5), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(both(compiled, logits, labels), both(loss(epsilon=0.5), logits, labels))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype):
    logits, labels = example(dtype)
    value, gradient = both(Poly1Loss(), logits, labels)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(both(Poly1Loss(), logits, labels), (value, gradient), rtol=0, atol=0)
    exact, its_gradient = both(Poly1Loss(), logits.double(), labels)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, its_gradient.to(dtype))


def test_corrected_by_a_transition():
    logits, labels = example()
    transition = 0.3 / C + 0.7 * torch.eye(C, dtype=torch.float64)
    log_p = torch.log(logits.softmax(1) @ transition)[torch.arange(N), labels]
    found = ForwardCorrected(Poly1Loss(epsilon=2.0), transition)(logits, labels)
    torch.testing.assert_close(found, (-log_p + 2 * (1 - log_p.exp())).mean())


def test_trains_a_model():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    inputs = (rng.normal(size=(300, 4)) + 4 * np.eye(3, 4)[labels]).astype(np.float32)
    data = NoisyDataset(inputs, labels, labels, ("a", "b", "c"))
    recipe = Recipe(epochs=3, batch_size=32)
    loss = Poly1Loss(weight=torch.ones(3))
    result = train(data, model="mlp", loss=loss, recipe=recipe, test=data, device="cpu", progress="quiet")
    assert result.history[-1]["test_accuracy"] > 0.9


def test_pickles_copies_moves_and_prints():
    logits, labels = example(torch.float32)
    loss = Poly1Loss(epsilon=2.0, weight=torch.arange(1.0, C + 1), ignore_index=7)
    assert repr(loss) == "Poly1Loss(epsilon=2.0, weight=<5 classes>, ignore_index=7)"
    file = io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    for other in (torch.load(file, weights_only=False), copy.deepcopy(loss)):
        assert other(logits, labels) == loss(logits, labels)
    assert loss.double().class_weight.dtype == torch.float64


@pytest.mark.parametrize("loss", [Poly1Loss, BarePoly1])
def test_a_number_that_is_set_later_counts_and_is_checked(loss):
    logits, labels = example()
    own = loss()
    own.epsilon = np.float64(0.25)
    assert type(own.epsilon) is float
    assert own(logits, labels) == loss(epsilon=0.25)(logits, labels)
    for wrong in (math.nan, "0.5", None):
        with pytest.raises(ValueError, match=r"^epsilon must be .*; got"):
            own.epsilon = wrong
    assert own.epsilon == 0.25


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_backward_pass_has_the_numbers_of_its_forward_pass(impl, dtype):
    logits, labels = example(dtype)
    expected = both(LqLoss(q=0.7, impl=impl), logits, labels)[1]
    loss, leaf = LqLoss(q=0.7, impl=impl), logits.requires_grad_()
    value = loss(leaf, labels)
    loss.q = 0.1
    assert torch.equal(torch.autograd.grad(value, leaf)[0], expected)


def test_arguments_are_those_of_the_class():
    with pytest.raises(ValueError, match=r"epsilon must be a finite number of at least -1; got -2"):
        Poly1Loss(epsilon=-2)
    with pytest.raises(
        TypeError, match=r"Poly1Loss has no argument 'eps'. It takes: epsilon, weight, ignore"
    ):
        Poly1Loss(eps=1.0)
    with pytest.raises(TypeError, match=r"BarePoly1 has no argument 'weight'. It takes: epsilon\."):
        BarePoly1(weight=torch.ones(C))
    with pytest.raises(
        TypeError, match=r"Poly1Loss takes its arguments by name.*Write Poly1Loss\(epsilon=\.\.\."
    ):
        Poly1Loss(1.0)
    shown = inspect.signature(Poly1Loss).parameters
    assert list(shown) == ["epsilon", "weight", "ignore_index", "reduction", "impl"]
    assert [shown[name].default for name in ("epsilon", "ignore_index")] == [1.0, -100]
    assert list(inspect.signature(BarePoly1).parameters) == ["epsilon"]


def test_a_child_passes_on_what_it_likes():
    class Halved(LqLoss):
        def __init__(self, *, twice_q: float = 1.0, **rest) -> None:
            super().__init__(q=twice_q / 2, **rest)

    class NoDefault(Poly1Loss):
        def __init__(self, *, epsilon: float, table: list[int] | None = None) -> None:
            super().__init__(epsilon=epsilon)
            self.table = table

    logits, labels = example()
    assert Halved(twice_q=0.6, reduction="sum")(logits, labels) == LqLoss(q=0.3, reduction="sum")(
        logits, labels
    )
    assert (NoDefault(epsilon=3, table=[1]).table, NoDefault(epsilon=3).epsilon) == ([1], 3)
    assert copy.deepcopy(NoDefault(epsilon=3)).epsilon == 3
    with pytest.raises(TypeError, match="epsilon"):
        NoDefault()


def test_what_cannot_work_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match=r"OnlyPhi must define both phi.* got phi alone"):

        class OnlyPhi(LqLoss):
            def phi(self, log_p_y: Tensor) -> Tensor:
                return -log_p_y

    with pytest.raises(TypeError, match=r"Placed.__init__ must take its arguments by name only.*\*, epsilon"):

        class Placed(Poly1Loss):
            def __init__(self, epsilon: float = 1.0) -> None:
                super().__init__(epsilon=epsilon)

    with pytest.raises(TypeError, match=r"annotation 'Unknown' of epsilon in .*Lost.__init__ cannot be read"):

        class Lost(Poly1Loss):
            def __init__(self, *, epsilon: Unknown = 1.0) -> None:  # noqa: F821
                super().__init__(epsilon=epsilon)

    with pytest.raises(NotImplementedError, match=r"PhiLoss must define phi\(self, log_p_y\)"):
        PhiLoss()(*example())


def test_only_the_package_s_own_formulas_have_triton_forms(monkeypatch):
    """A formula of one's own takes the plain path on a GPU, also where a loss of ours has its name."""

    class Renamed(PhiLoss):
        name = "lq"
        phi, weight = Poly1Loss.phi, Poly1Loss.weight

    class Changed(LqLoss):
        phi, weight = tolerant.MAELoss.phi, tolerant.MAELoss.weight

    class Same(LqLoss):
        pass

    pytest.importorskip("triton")
    monkeypatch.setattr(can, "run_triton", lambda *_: True)
    ways = [
        can.way_of_loss(*example(), form=loss.form, impl="auto")
        for loss in (Renamed, Changed, Same, Poly1Loss)
    ]
    assert ways == ["fused", "fused", "triton", "fused"]
    with pytest.raises(ValueError, match="needs a loss with a Triton form; this one has none"):
        Poly1Loss(impl="triton")(*example())


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_on_the_gpu_it_is_plain(reduction):
    logits, labels = example(torch.float32)
    loss = Poly1Loss(weight=torch.rand(C), reduction=reduction)
    expected = both(loss, logits, labels)
    found = both(loss.cuda(), logits.cuda(), labels.cuda())
    torch.testing.assert_close([t.cpu() for t in found], list(expected))


@pytest.mark.parametrize("name", ["LqLoss", "NCELoss", "BinaryLqLoss", "GJSLoss"])
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_by_a_sentence(name: str) -> None:
    loss, logits, labels = getattr(tolerant, name)(), torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    for whole in (loss, torch.nn.Sequential(loss)):
        with pytest.raises(NotImplementedError, match=rf"jit.script cannot take {name}.*torch.export"):
            torch.jit.script(whole)
    with pytest.raises(NotImplementedError, match=rf"torch.jit.trace cannot take {name}.*torch.compile"):
        torch.jit.trace(loss, (logits, labels))
    if name != "BinaryLqLoss":
        exported = torch.export.export(loss, (logits, labels)).module()
        assert torch.allclose(exported(logits, labels), loss(logits, labels))
