"""Every loss of the registry against mpmath: values and gradients, to the last digit that fp32 has."""

from __future__ import annotations

import functools

import mpmath
import pytest
import torch
from mpmath import mp, mpf

from tolerant.losses import REGISTRY, CCELoss, ForwardCorrected, LqLoss, PhiLoss, make_loss

GAPS = [0.0, 10.0, 20.0, 110.0, 1e4, -10.0, -20.0, -110.0, -1e4]
TINY = mpf("1e-37")  # below this fp32 has no normal numbers, and no digits to check


def lq(p, q):
    return -mpmath.log(p) if q == 0 else (1 - p ** mpf(q)) / q


def focal(p, gamma):
    return -((1 - p) ** mpf(gamma)) * mpmath.log(p)


def js(p, pi):
    m, other = pi + (1 - pi) * p, 1 - mpf(pi)
    kl_label = -mpmath.log(m)
    kl_model = p * mpmath.log(p / m) - (1 - p) * mpmath.log(other)
    return (pi * kl_label + other * kl_model) / (-other * mpmath.log(other))


def entropy(probs):
    return -sum(p * mpmath.log(p) for p in probs)


# From the papers' definitions, on all probabilities (the label is class 0): nothing of our algebra.
DEFINITIONS = {
    "cce": lambda p, label_smoothing: -mpmath.log(p[0]),
    "mae": lambda p: sum(abs((j == 0) - p_j) for j, p_j in enumerate(p)),
    "lq": lambda p, q: lq(p[0], q),
    "truncated-lq": lambda p, q, k: lq(max(p[0], mpf(k)), q),
    "focal": lambda p, gamma: focal(p[0], gamma),
    "taylor": lambda p, order: sum((1 - p[0]) ** i / mpf(i) for i in range(1, order + 1)),
    "rce": lambda p, log_zero: -log_zero * sum(p[1:]),
    "sce": lambda p, alpha, beta, log_zero: -alpha * mpmath.log(p[0]) - beta * log_zero * sum(p[1:]),
    "agce": lambda p, a, q: ((mpf(a) + 1) ** mpf(q) - (mpf(a) + p[0]) ** mpf(q)) / q,
    "aul": lambda params, a, p: ((a - params[0]) ** mpf(p) - (mpf(a) - 1) ** mpf(p)) / p,
    "ael": lambda p, a: mpmath.exp(-p[0] / a),
    "phuber": lambda p, tau: -mpmath.log(p[0]) if p[0] >= 1 / mpf(tau) else -tau * p[0] + mpmath.log(tau) + 1,
    "js": lambda p, pi: js(p[0], mpf(pi)),
    "nce": lambda p: mpmath.log(p[0]) / sum(mpmath.log(p_j) for p_j in p),
    "nfl": lambda p, gamma: focal(p[0], gamma) / sum(focal(p_j, gamma) for p_j in p),
    "ngce": lambda p, q: lq(p[0], q) / sum(lq(p_j, q) for p_j in p),
    "gjs": lambda p, pi: js(p[0], mpf(pi)),
    "bootstrap-soft": lambda p, beta: -mpf(beta) * mpmath.log(p[0]) + (1 - mpf(beta)) * entropy(p),
    "bootstrap-hard": lambda p, beta: -mpf(beta) * mpmath.log(p[0]) - (1 - mpf(beta)) * mpmath.log(max(p)),
}


def make_logits(gap: float, num_classes: int) -> torch.Tensor:
    """The label, class 0, loses to class 1 by `gap`; all numbers fit bf16 and fp16 exactly."""
    generator = torch.Generator().manual_seed(num_classes)
    logits = (torch.randn(num_classes, generator=generator) - 3).bfloat16().float()
    logits[0], logits[1] = (0.0, gap) if gap >= 0 else (-gap, 0.0)
    return logits.bfloat16().float()


@functools.cache
def exps_of(logits: tuple[float, ...], digits: int):
    """The same for every loss, and of a thousand classes most of the work."""
    return [mpmath.exp(mpf(x)) for x in logits]


def truth(value, logits: torch.Tensor, entries: list[int]):
    """Value and gradient of a function of the probabilities, at 60 digits (more where 1 - p is tiny)."""
    with mp.workdps(60 + int(min(220, abs(float(logits[0] - logits[1])))) // 2):
        exps = exps_of(tuple(logits.tolist()), mp.dps)

        def moved(entry: int, by):
            here = [*exps[:entry], exps[entry] * mpmath.exp(by), *exps[entry + 1 :]]
            total = mpmath.fsum(here)
            return value([e / total for e in here])

        step = mpf(10) ** -(mp.dps // 3)
        gradient = [(moved(i, step) - moved(i, -step)) / (2 * step) for i in entries]
        return moved(0, mpf(0)), gradient


def truth_of(name: str, options: dict[str, float], logits: torch.Tensor, entries: list[int]):
    """By the definition above; a loss that has none there is compared with its own formulas in fp64."""
    loss = make_loss(name, impl="plain", **options)
    if name in DEFINITIONS:
        return truth(lambda p: DEFINITIONS[name](p, **loss.hyper), logits, entries)
    value, gradient = computed(loss, logits, torch.float64)
    return mpf(value.item()), [mpf(gradient[entry].item()) for entry in entries]


def computed(loss, logits: torch.Tensor, dtype: torch.dtype):
    leaf = logits.to(dtype)[None].requires_grad_()
    value = loss(leaf, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value, leaf)
    assert gradient.dtype == dtype
    assert torch.isfinite(gradient).all()
    return value.detach(), gradient[0]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("num_classes", [2, 10, 1000])
@pytest.mark.parametrize("name", REGISTRY)
def test_value_and_gradient_match_mpmath(name, num_classes, gap):
    if name == "bootstrap-hard" and gap == 0:
        gap = 0.5  # the most probable class is not a tie: the loss has a kink there
    options = {"k": 0.3} if name == "truncated-lq" else {}  # not p_y itself: another kink
    logits = make_logits(gap, num_classes)
    entries = [0, 1] if num_classes == 2 else [0, 1, num_classes - 1]
    true_value, true_gradient = truth_of(name, options, logits, entries)
    for impl in ("auto", "plain"):
        value, gradient = computed(make_loss(name, impl=impl, **options), logits, torch.float32)
        allowed = 2.4e-7 * (6 + abs(gap))
        if abs(true_value) > TINY:
            assert abs(mpf(value.item()) - true_value) <= allowed * abs(true_value)
        for entry, expected in zip(entries, true_gradient, strict=True):
            if abs(expected) > TINY:
                error = abs(mpf(gradient[entry].item()) - expected)
                assert error <= allowed * abs(expected), (impl, entry, float(error / expected))


# Near the ends of their domains, where a loss turns into another one.
ENDS = [
    *[("lq", {"q": q}) for q in (1e-9, 1e-3, 0.999999)],
    *[("truncated-lq", {"q": q, "k": k}) for q in (0.0, 1e-6, 1.0) for k in (1e-6, 0.999)],
    *[("focal", {"gamma": gamma}) for gamma in (0.0, 1e-6, 0.1, 20.0)],
    *[("taylor", {"order": order}) for order in (1, 50)],
    *[("agce", {"a": a, "q": q}) for a in (1e-9, 1e3) for q in (1e-3, 0.6, 4.0)],
    *[("aul", {"a": a, "p": p}) for a in (1 + 1e-9, 1.0001, 100.0) for p in (1e-3, 0.5, 4.0)],
    ("aul", {"a": 1.001, "p": 15.0}),
    *[("ael", {"a": a}) for a in (0.1, 1e3)],
    *[("phuber", {"tau": tau}) for tau in (1 + 1e-6, 1.001, 1e9)],
    *[("js", {"pi": pi}) for pi in (1e-9, 1e-4, 0.1, 0.5, 0.9999)],
]


@pytest.mark.parametrize(("name", "hyper"), ENDS)
def test_formulas_match_mpmath_at_the_ends_of_their_domains(name, hyper):
    log_ps = [-1e-12, -1e-7, -1e-4, -0.01, -0.3, -0.7, -2.0, -10.0, -17.0, -20.5, -30.0, -80.0]
    for dtype in (torch.float32, torch.float64):
        log_p_y = torch.tensor(log_ps, dtype=dtype)
        loss = make_loss(name, **hyper)
        values, weights = loss.phi(log_p_y), loss.weight(log_p_y)
        for row, exact in enumerate(log_p_y.tolist()):
            with mp.workdps(100):

                def definition(log_p):
                    p = mpmath.exp(log_p)
                    return DEFINITIONS[name]([p, 1 - p], **hyper)

                step, here = mpf("1e-30"), mpf(exact)
                slope = (definition(here + step) - definition(here - step)) / (2 * step)
                for found, expected in ((values, definition(here)), (weights, -slope)):
                    error = abs(mpf(float(found[row])) - expected)
                    assert error <= 60 * torch.finfo(dtype).eps * abs(expected) + TINY, (dtype, exact)


def ulp(x: float, dtype: torch.dtype) -> float:
    """The distance to the next number of the dtype."""
    info = torch.finfo(dtype)
    size = max(abs(x), info.smallest_normal)
    return info.eps * 2.0 ** int(mpmath.floor(mpmath.log(size, 2)))


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", REGISTRY)
def test_half_precision_is_the_rounded_truth(name, dtype, gap):
    logits = make_logits(gap, 10)
    _, exact = computed(make_loss(name), logits, torch.float64)
    _, found = computed(make_loss(name), logits, dtype)
    for expected, got in zip(exact.tolist(), found.tolist(), strict=True):
        rounding = abs(torch.tensor(expected).to(dtype).item() - expected)
        assert abs(got - expected) <= rounding + ulp(expected, dtype)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("loss", [CCELoss(), LqLoss(q=0.7)], ids=["cce", "lq"])
@pytest.mark.parametrize("matrix", ["uniform", "sparse"])
def test_forward_correction_matches_mpmath(loss, matrix, gap):
    num_classes = 10
    if matrix == "uniform":
        transition = torch.full((num_classes, num_classes), 0.04) + 0.6 * torch.eye(num_classes)
    else:  # class 1 is given as 0 in 3 of 8 rows, all else is right: many zeros
        transition = torch.eye(num_classes)
        transition[1, 0], transition[1, 1] = 0.375, 0.625
    logits = make_logits(gap, num_classes)
    column = [mpf(float(t)) for t in transition[:, 0]]
    q = loss.hyper.get("q", 0)

    def definition(p):
        return lq(mpmath.fsum(t * p_i for t, p_i in zip(column, p, strict=True)), q)

    entries = [0, 1, 9]
    true_value, true_gradient = truth(definition, logits, entries)
    value, gradient = computed(ForwardCorrected(loss, transition), logits, torch.float32)
    allowed = 2.4e-7 * (6 + abs(gap))
    assert abs(mpf(value.item()) - true_value) <= allowed * abs(true_value) + TINY
    for entry, expected in zip(entries, true_gradient, strict=True):
        if abs(expected) > TINY:
            assert abs(mpf(gradient[entry].item()) - expected) <= allowed * abs(expected)


@pytest.mark.parametrize("gap", [17.0, 20.5, 25.0, 41.0])
@pytest.mark.parametrize("name", ["js", "gjs", "forward"])
def test_fp64_has_all_its_digits_where_p_y_is_small(name, gap):
    """A softplus may leave exp(-x) out only where fp64 does not see it."""
    logits = make_logits(gap, 5).double()
    identity = torch.eye(5, dtype=torch.float64)
    loss = ForwardCorrected(CCELoss(), identity) if name == "forward" else make_loss(name)
    definition = "cce" if name == "forward" else name
    hyper = {"label_smoothing": 0.0} if name == "forward" else {"pi": 0.5}
    true_value, true_gradient = truth(lambda p: DEFINITIONS[definition](p, **hyper), logits, [0, 1])
    value, gradient = computed(loss, logits, torch.float64)
    for found, expected in zip((value, *gradient), (true_value, *true_gradient), strict=False):
        assert abs(mpf(found.item()) - expected) <= 1e-14 * abs(expected)


@pytest.mark.parametrize("level", [-1000.0, 300.0, 1000.0])
def test_forward_correction_does_not_see_the_level_of_the_logits(level):
    """Logits of 1000 have steps of 6e-5 in fp32; the differences between them do not."""
    logits = torch.tensor([[0.5, -0.25, 1.0, 0.0]]) + level
    loss = ForwardCorrected(LqLoss(q=0.7), 0.1 + 0.6 * torch.eye(4))
    value, gradient = computed(loss, logits[0], torch.float32)
    exact_value, exact_gradient = computed(loss, logits[0], torch.float64)
    torch.testing.assert_close(value.double(), exact_value, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=2e-6, atol=0)


def test_correction_by_a_sparse_matrix_has_no_dead_gradient():
    """Where T has a zero and p underflows, the posterior is still well defined."""
    logits = torch.tensor([[-200.0, 0.0, -100.0]], requires_grad=True)
    transition = torch.eye(3)
    value = ForwardCorrected(CCELoss(), transition)(logits, torch.tensor([0]))
    value.backward()
    assert value.item() == pytest.approx(200.0)
    assert logits.grad[0].tolist() == pytest.approx([-1.0, 1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("name", [name for name, loss in REGISTRY.items() if issubclass(loss, PhiLoss)])
def test_monotone_in_p_y(name):
    """A more probable label never costs more."""
    gaps = torch.linspace(-30, 30, 2001, dtype=torch.float64)
    logits = torch.stack([gaps, torch.zeros_like(gaps)], 1)
    losses = make_loss(name, reduction="none")(logits, torch.zeros(len(gaps), dtype=torch.long))
    assert (losses.diff() <= 1e-15).all()
    assert losses[0] > losses[-1]


@pytest.mark.parametrize("level", [0.0, -150.0, -30.0, 30.0, 150.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_and_the_level_of_the_logits_do_not_show(monkeypatch, dtype, level):
    """Exponentials without a shift where they fit, with one where not; 16 bits in blocks of rows."""
    monkeypatch.setattr("tolerant.kernels.cpu.BLOCK_BYTES", 4 * 50 * 7)  # 7 rows of 50 classes
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 50, generator=generator)
    logits[10:20] += level
    logits[13, 4], logits[30, 5] = 90.0, -90.0
    labels = torch.randint(50, (40,), generator=generator)
    labels[30] = 5
    logits = logits.to(dtype)
    weights = torch.rand(40, generator=generator)
    found, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    losses = LqLoss(q=0.7, reduction="none")(found, labels, weights)
    truth64 = LqLoss(q=0.7, reduction="none", impl="plain")(exact, labels, weights.double())
    losses.sum().backward()
    truth64.sum().backward()
    torch.testing.assert_close(losses.double(), truth64, rtol=1e-6, atol=0)
    if dtype == torch.float32:
        torch.testing.assert_close(found.grad.double(), exact.grad, rtol=2.4e-7 * 300, atol=1e-37)
    else:
        rounding = (exact.grad.to(dtype).double() - exact.grad).abs()
        ulps = torch.finfo(dtype).eps * 2.0 ** exact.grad.abs().clamp(min=1e-37).log2().floor()
        assert ((found.grad.double() - exact.grad).abs() <= rounding + ulps).all()


def test_transposed_logits_keep_their_digits():
    """A picture's logits (1, C, d) come as rows spread over memory."""
    logits = torch.full((1, 15000, 2), 0.1234)
    logits[:, 0] = 0.0
    labels = torch.zeros(1, 2, dtype=torch.long)
    leaf, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    value, truth64 = CCELoss()(leaf, labels), CCELoss()(exact, labels)
    value.backward()
    truth64.backward()
    torch.testing.assert_close(value.double(), truth64, rtol=2.4e-7, atol=0)
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-6, atol=0)
