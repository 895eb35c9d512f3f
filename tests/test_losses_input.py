"""Bad input is refused before anything is computed, with the rule, the value and the way out."""

from __future__ import annotations

import inspect
import math
import pickle

import numpy as np
import pytest
import torch

from tolerant import functional
from tolerant.losses import (
    REGISTRY,
    BackwardCorrected,
    BinaryLqLoss,
    CCELoss,
    ForwardCorrected,
    GJSLoss,
    LinearLqLoss,
    LqLoss,
    NCELoss,
    PhiLoss,
    SumLoss,
    TruncatedLqLoss,
    make_loss,
)

LOGITS, LABELS = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])


def just_outside(domain) -> list[float]:
    outside = [math.nan, math.inf, "0.5", None, True]
    if math.isfinite(domain.low):
        outside.append(domain.low if domain.open_low else domain.low - 1e-9)
    if math.isfinite(domain.high):
        outside.append(domain.high if domain.open_high else domain.high + 1e-9)
    if domain.integer:
        outside += [1.5, 2.0]
    return outside


@pytest.mark.parametrize(
    ("name", "parameter"),
    [(name, p) for name, loss in REGISTRY.items() if issubclass(loss, PhiLoss) for p in loss.domains],
)
def test_at_the_ends_of_a_domain_the_loss_still_falls_with_p_y(name, parameter):
    domain, log_p_y = REGISTRY[name].domains[parameter], -torch.logspace(-6, 1.5, 50, dtype=torch.float64)
    defaults = REGISTRY[name].defaults
    for end, inwards, is_open in (
        (domain.low, 1e-3, domain.open_low),
        (domain.high, -1e-3, domain.open_high),
    ):
        if math.isfinite(end):
            loss = make_loss(name, **{**defaults, parameter: end + inwards if is_open else end})
            for values in (loss.phi(log_p_y), loss.weight(log_p_y)):
                assert values.isfinite().all()
                assert (values >= 0).all()


@pytest.mark.parametrize(
    ("name", "parameter"), [(name, p) for name, loss in REGISTRY.items() for p in loss.domains]
)
def test_hyper_parameters_outside_their_domain(name, parameter):
    domain = REGISTRY[name].domains[parameter]
    for value in just_outside(domain):
        with pytest.raises(ValueError, match=f"^{parameter} must be .*; got"):
            make_loss(name, **{parameter: value})


@pytest.mark.parametrize("name", REGISTRY)
def test_registry_rows_are_whole(name):
    loss = REGISTRY[name]
    assert loss.domains.keys() == loss.defaults.keys()
    assert all(value in loss.domains[key] for key, value in loss.defaults.items())
    assert loss.paper
    assert loss.__doc__
    function = getattr(functional, f"{name.replace('-', '_')}_loss")
    shown = inspect.signature(function).parameters
    assert {key: shown[key].default for key in loss.defaults} == loss.defaults
    assert list(inspect.signature(loss).parameters)[: len(loss.defaults)] == list(loss.defaults)


@pytest.mark.parametrize("q", [np.float32(0.5), np.float64(0.5), np.float16(0.5)])
def test_numbers_from_numpy_are_numbers(q):
    assert type(LqLoss(q=q).q) is float
    assert LqLoss(q=q)(LOGITS, LABELS) == LqLoss(q=0.5)(LOGITS, LABELS)
    assert type(make_loss("taylor", order=np.int64(2)).order) is int
    yes = (LOGITS > 0).float()
    assert BinaryLqLoss(q=q, k=q)(LOGITS, yes) == BinaryLqLoss(q=0.5, k=0.5)(LOGITS, yes)


def test_q_says_the_way_out():
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\]; got 1.5. For cross entropy use q=0"):
        LqLoss(q=1.5)
    with pytest.raises(ValueError, match=r"k must be in \(0, 1\); got 0.*use lq"):
        TruncatedLqLoss(k=0)


def test_unknown_arguments_are_named():
    with pytest.raises(TypeError, match=r"LqLoss has no argument 'gamma'. It takes: q, weight"):
        LqLoss(gamma=2.0)
    for loss in (LqLoss, BinaryLqLoss, LinearLqLoss):
        with pytest.raises(ValueError, match="reduction must be one of none, mean, sum; got 'avg'"):
            loss(reduction="avg")
    with pytest.raises(ValueError, match="impl must be one of auto"):
        LqLoss(impl="cuda")
    with pytest.raises(ValueError, match="impl must be one of auto"):
        functional.lq_loss(LOGITS, LABELS, impl="cuda")
    with pytest.raises(ValueError, match=r"impl=.triton. needs .* CUDA GPU .* got logits on cpu"):
        LqLoss(impl="triton")(LOGITS, LABELS)


@pytest.mark.parametrize("loss", [LqLoss(), NCELoss(), ForwardCorrected(CCELoss(), torch.eye(3))])
def test_labels_and_shapes(loss):
    with pytest.raises(ValueError, match=r"labels must be in 0..2, or ignore_index=-100; got 3"):
        loss(LOGITS, torch.tensor([0, 1, 3, 0]))
    with pytest.raises(ValueError, match="got -1"):
        loss(LOGITS, torch.tensor([0, -1, 2, 0]))
    with pytest.raises(ValueError, match=r"labels of dtype torch.float32 .* For class indices call"):
        loss(LOGITS, LABELS.float())
    with pytest.raises(ValueError, match=r"labels must have shape \(4,\) .* got \(3,\)"):
        loss(LOGITS, LABELS[:3])
    with pytest.raises(ValueError, match=r"got \(2, 3\). Pass logits.flatten\(0, -2\)"):
        loss(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match=r"labels must be class indices .* got torch.bool"):
        loss(LOGITS, LABELS > 0)
    with pytest.raises(TypeError, match=r"logits must be floating point; got torch.int64"):
        loss(LOGITS.long(), LABELS)
    with pytest.raises(ValueError, match="logits must have a class dimension"):
        loss(torch.tensor(1.0), LABELS)
    with pytest.raises(
        TypeError, match=r"labels must be a tensor; got ndarray. Call torch.as_tensor\(labels\)"
    ):
        loss(LOGITS, LABELS.numpy())
    with pytest.raises(TypeError, match=r"sample_weight must be a tensor; got list"):
        loss(LOGITS, LABELS, sample_weight=[1.0] * 4)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(4,\), one per label; got \(2,\)"):
        loss(LOGITS, LABELS, sample_weight=torch.ones(2))


def test_class_weights_of_the_wrong_length():
    with pytest.raises(ValueError, match=r"weight must have shape \(3,\), one per class; got \(4,\)"):
        LqLoss(weight=torch.ones(4))(LOGITS, LABELS)


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (torch.ones(2, 3) / 3, r"square matrix.*got shape \(2, 3\)"),
        (torch.tensor([[0.5, 0.4], [0.0, 1.0]]), "row 0 sums to 0.9"),
        (torch.tensor([[1.5, -0.5], [0.0, 1.0]]), r"at least 0; got -0.5 at \[0, 1\]"),
        (torch.tensor([[math.nan, 1.0], [0.0, 1.0]]), r"finite; got nan at \[0, 0\]"),
        (torch.tensor([[0.9, 0.0], [0.1, 1.0]]), "pass the transpose"),
    ],
)
def test_transition_matrices(transition, message):
    with pytest.raises(ValueError, match=message):
        ForwardCorrected(CCELoss(), transition)


def test_a_matrix_of_whole_numbers_is_a_transition():
    swapped = ForwardCorrected(CCELoss(), torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 1]]))
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(swapped(logits, LABELS), CCELoss()(logits[:, [1, 0, 2]], LABELS))


def test_corrections_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match=r"one column per class of the transition, 2; got 3"):
        ForwardCorrected(CCELoss(), torch.eye(2))(LOGITS, LABELS)
    with pytest.raises(ValueError, match="label_smoothing must be 0 under a correction"):
        ForwardCorrected(CCELoss(label_smoothing=0.1), torch.eye(3))
    with pytest.raises(TypeError, match=r"loss of p_y alone .* got NCELoss"):
        ForwardCorrected(NCELoss(), torch.eye(3))
    with pytest.raises(ValueError, match=r"condition number is .* ForwardCorrected needs no inverse"):
        BackwardCorrected(CCELoss(), torch.full((3, 3), 1 / 3))
    with pytest.raises(TypeError, match="loss must be CCELoss"):
        BackwardCorrected(LqLoss(), torch.eye(3))
    never = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    with pytest.raises(ValueError, match=r"label 2 occurs, but column 2 of the transition is all 0"):
        ForwardCorrected(CCELoss(), never)(LOGITS, LABELS)
    assert ForwardCorrected(CCELoss(), never)(LOGITS, LABELS, 1.0 - (LABELS == 2).float()).isfinite()
    always = torch.tensor([[0.0, 1.0, 0.0]] * 3)
    with pytest.raises(ValueError, match="label 2 occurs, but column 2"):
        ForwardCorrected(CCELoss(), always)(LOGITS, torch.tensor([1, 2, 1, 1]))


def test_sums_and_views_and_binary():
    with pytest.raises(ValueError, match="at least one loss"):
        SumLoss()
    with pytest.raises(ValueError, match=r"one reduction; got \['mean', 'sum'\]"):
        SumLoss(LqLoss(), NCELoss(reduction="sum"))
    with pytest.raises(ValueError, match=r"factors must be one per loss, 1; got \(1, 2\)"):
        SumLoss(LqLoss(), factors=(1, 2))
    with pytest.raises(ValueError, match="at least one tensor of logits"):
        GJSLoss()([], LABELS)
    with pytest.raises(ValueError, match=r"views must have one shape; got \(4, 3\) and \(4, 2\)"):
        GJSLoss()([LOGITS, LOGITS[:, :2]], LABELS)
    with pytest.raises(ValueError, match=r"labels must have the logits' shape \(4, 3\); got \(4,\)"):
        BinaryLqLoss()(LOGITS, LABELS)
    with pytest.raises(ValueError, match=r"labels must be in \[0, 1\], or ignore_index=-100; got 2"):
        BinaryLqLoss()(LOGITS, torch.full((4, 3), 2.0))
    with pytest.raises(TypeError, match="labels must be a tensor; got ndarray"):
        BinaryLqLoss()(LOGITS, np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"sample_weight must have the labels' shape"):
        BinaryLqLoss()(LOGITS, torch.zeros(4, 3), torch.ones(4))


def test_a_pickled_loss_keeps_its_numbers():
    loss = pickle.loads(pickle.dumps(TruncatedLqLoss(q=0.3, k=0.2, ignore_index=7)))
    assert (loss.q, loss.k, loss.ignore_index) == (0.3, 0.2, 7)
    with pytest.raises(AttributeError, match="gamma"):
        _ = loss.gamma


@pytest.mark.parametrize("name", [name for name, loss in REGISTRY.items() if loss.defaults])
def test_a_hyper_parameter_that_is_set_later_counts(name):
    """Annealing writes `loss.q = ...` between epochs."""
    torch.manual_seed(0)
    logits = torch.randn(4, 3)
    parameter, default = next(iter(REGISTRY[name].defaults.items()))
    other = 3 if REGISTRY[name].domains[parameter].integer else default * 0.9 + 0.05
    loss = make_loss(name)
    setattr(loss, parameter, other)
    assert getattr(loss, parameter) == other
    assert f"{parameter}={other}" in repr(loss)
    assert torch.equal(loss(logits, LABELS), make_loss(name, **{parameter: other})(logits, LABELS))
    with pytest.raises(ValueError, match=f"^{parameter} must be .*; got"):
        setattr(loss, parameter, math.nan)
    assert getattr(loss, parameter) == other


@pytest.mark.parametrize(("loss", "first"), [(LqLoss, "q"), (TruncatedLqLoss, "q"), (NCELoss, "weight")])
def test_an_argument_without_a_name_is_refused_with_the_name(loss, first):
    with pytest.raises(TypeError, match=rf"^{loss.__name__} takes .*Write {loss.__name__}\({first}=\.\.\.\)"):
        loss(0.7)


def test_class_weights_without_a_name_are_told_theirs():
    with pytest.raises(TypeError, match=r"Write LqLoss\(weight=\.\.\.\)"):
        LqLoss(torch.ones(3))  # as CrossEntropyLoss takes them


def test_what_differs_from_the_defaults_is_shown():
    assert repr(LqLoss(q=0.5)) == "LqLoss(q=0.5)"
    loss = LqLoss(q=0.5, weight=torch.ones(3), ignore_index=7, reduction="sum")
    assert repr(loss) == "LqLoss(q=0.5, weight=<3 classes>, ignore_index=7, reduction=sum)"


def test_a_reduction_set_later_is_checked():
    loss = LqLoss()
    loss.reduction = "sum"
    with pytest.raises(ValueError, match="reduction must be one of none, mean, sum; got 'avg'"):
        loss.reduction = "avg"
    assert loss.reduction == "sum"


@pytest.mark.parametrize("q", [1e-29, 1e-40, 1e-300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_q_of_nearly_nothing_is_cross_entropy(q, dtype):
    torch.manual_seed(0)
    logits = torch.randn(4, 3).to(dtype)
    for near, at in ((LqLoss(q=q), LqLoss(q=0)), (TruncatedLqLoss(q=q, k=0.3), TruncatedLqLoss(q=0, k=0.3))):
        assert torch.allclose(near(logits, LABELS), at(logits, LABELS), rtol=1e-6)
    yes = (logits > 0).to(dtype)
    assert torch.allclose(BinaryLqLoss(q=q)(logits, yes), BinaryLqLoss(q=0)(logits, yes), rtol=1e-6)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_tensors_of_several_ranks_are_refused_with_the_way_out():
    from torch import distributed
    from torch.distributed.tensor import Replicate, distribute_tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        logits = distribute_tensor(torch.randn(4, 3), mesh, [Replicate()])
        labels = torch.tensor([0, 1, 2, 0])
        for loss in (LqLoss(), NCELoss(), ForwardCorrected(LqLoss(), torch.eye(3))):
            with pytest.raises(TypeError, match=r"got a DTensor\. Pass logits\.full_tensor\(\)"):
                loss(logits, labels)
            loss(logits.full_tensor(), labels)
        with pytest.raises(TypeError, match=r"weight must be whole .* Pass weight\.full_tensor\(\)"):
            functional.linear_lq_loss(torch.randn(4, 3), logits, labels)
    finally:
        distributed.destroy_process_group()
