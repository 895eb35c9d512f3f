r"""The losses of p_y alone: phi of log p_y, and its weight w.

A loss that looks only at the probability of the given label is a scalar function of one number,
:math:`\phi(\log p_y)`, and its gradient in the logits is :math:`w (\mathrm{softmax} -
\mathrm{onehot})` with :math:`w = -\phi'(\log p_y)`. So each loss is two formulas: the value, and
right after it the weight. The weight is written out because autograd differentiates ``expm1`` as
``expm1 + 1``, which is 0 from log p_y = -17 on in fp32: a dead gradient.
"""

# No softmax, clamp, one-hot or reduction belongs into a formula. A class, and its function in the list below,
# are all there is to a loss: the registry, the public names, the API page and the tests find them here.

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from tolerant.kernels.log_prob import LEAST_Q, compute_dtype, expm1, log_softmax, softplus
from tolerant.kernels.plain import finite_rows, weigh
from tolerant.losses.declaration import (
    AboveOne,
    Common,
    Inside,
    K,
    LogZero,
    NotNegative,
    Order,
    Positive,
    Q,
    Share,
)
from tolerant.losses.module import PhiLoss, function_of
from tolerant.losses.reduction import to_rows, weigh_rows


class CCELoss(PhiLoss):
    r"""Categorical cross entropy, :math:`-\log p_y`: the baseline every robust loss is measured against.

    ``label_smoothing`` in [0, 1] is that share of the label, spread over all classes, as in torch.

    >>> CCELoss().phi(torch.tensor([0.5]).log())
    tensor([0.6931])
    """

    name = "cce"
    paper = "the standard loss; equals torch.nn.CrossEntropyLoss"

    def __init__(self, *, label_smoothing: Share = 0.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return -log_p_y

    def weight(self, log_p_y: Tensor) -> Tensor:
        return torch.ones_like(log_p_y)

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        smoothing = self.label_smoothing
        soft = isinstance(labels, Tensor) and labels.is_floating_point()
        if smoothing and soft:
            # In the dtype of the arithmetic: bf16 has 0.9 only as 0.8984.
            labels = labels.to(compute_dtype(logits)) * (1 - smoothing)
            labels = labels + smoothing / logits.shape[min(1, logits.ndim - 1)]
        own = super().forward(logits, labels, sample_weight)
        if not smoothing or soft:
            return own
        return (1 - smoothing) * own + smoothing * self._mean_over_classes(logits, labels, sample_weight)

    def _mean_over_classes(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Label smoothing's other part: each class weighted as itself, the mean divided as the label's."""
        summed = "none" if self.reduction == "none" else "sum"
        by_class = self.frozen(class_weight=None, reduction=summed)
        rows = weigh_rows(by_class, to_rows(by_class, logits, labels, sample_weight))
        log_p = log_softmax(finite_rows(rows.logits, rows.weight))
        if self.class_weight is not None:
            log_p = log_p * self.class_weight.to(log_p.dtype)
        total = rows.reduce(weigh(-log_p.mean(-1), rows.weight))
        if self.reduction != "mean":
            return total
        by_label = self.frozen(reduction="sum")
        weight = weigh_rows(by_label, to_rows(by_label, logits, labels, sample_weight)).weight
        divisor = weight.sum() if isinstance(weight, Tensor) else total.new_full((), len(rows.logits))
        # Where no row counts, the label's part is NaN, and 0 / 0 would make the gradients NaN, too.
        return total / torch.where(divisor == 0, 1.0, divisor)


class MAELoss(PhiLoss):
    r"""Mean absolute error, :math:`\lVert e_y - p \rVert_1 = 2 (1 - p_y)`.

    Symmetric, so tolerant of uniform noise, but slow to train.

    >>> MAELoss().phi(torch.tensor([0.25]).log())
    tensor([1.5000])
    """

    name = "mae"
    paper = "Ghosh et al. 2017, Robust Loss Functions under Label Noise for Deep Neural Networks"

    def phi(self, log_p_y: Tensor) -> Tensor:
        return -2 * expm1(log_p_y)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return 2 * torch.exp(log_p_y)


class LqLoss(PhiLoss):
    r"""Generalised cross entropy, :math:`(1 - p_y^q) / q`: between cross entropy (q = 0) and MAE (q = 1).

    q in [0, 1]; q = 1 is half of MAE. Zhang & Sabuncu 2018, eq. 6.

    >>> loss = LqLoss(q=0.7)
    >>> loss
    LqLoss(q=0.7)
    >>> loss(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor(0.6138)
    >>> LqLoss(q=0.5).phi(torch.tensor([0.5]).log())
    tensor([0.5858])
    """

    name = "lq"
    paper = "Zhang & Sabuncu 2018, Generalized Cross Entropy Loss"

    def __init__(self, *, q: Q = 0.7, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return -log_p_y if self.q < LEAST_Q else expm1(self.q * log_p_y) / -self.q

    def weight(self, log_p_y: Tensor) -> Tensor:
        # A masked label has log p_y = -inf, and 0 * inf is NaN where cross entropy's weight is 1.
        return torch.ones_like(log_p_y) if self.q < LEAST_Q else torch.exp(self.q * log_p_y)


class TruncatedLqLoss(LqLoss):
    r"""Truncated :math:`L_q`, :math:`\min(L_q(p_y), L_q(k))`: rows with :math:`p_y \le k` have no gradient.

    Train with `LqLoss` first, then with this loss, or with `LqLoss` and a `Pruner` (the paper's
    algorithm): from scratch most rows start below k and nothing is learnt. k in (0, 1).
    Zhang & Sabuncu 2018, eq. 9.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
    >>> TruncatedLqLoss(q=0.7, k=0.5)(logits, torch.tensor([0, 0])).backward()
    >>> logits.grad.any(1)  # p_y is 0.88 and 0.12
    tensor([ True, False])
    >>> TruncatedLqLoss(q=1.0, k=0.5).phi(torch.tensor([0.2, 0.9]).log())
    tensor([0.5000, 0.1000])
    """

    name = "truncated-lq"
    paper = "Zhang & Sabuncu 2018, Generalized Cross Entropy Loss"

    def __init__(self, *, q: Q = 0.7, k: K = 0.5, **common: Unpack[Common]) -> None:
        super().__init__(q=q, **common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        log_k = math.log(self.k)
        most = -log_k if self.q < LEAST_Q else math.expm1(self.q * log_k) / -self.q
        return super().phi(log_p_y).clip(max=most)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return torch.where(log_p_y <= math.log(self.k), 0.0, super().weight(log_p_y))


class FocalLoss(PhiLoss):
    r"""Focal loss, :math:`-(1 - p_y)^\gamma \log p_y`: stresses hard rows, the opposite of robust.

    gamma >= 0; gamma = 0 is cross entropy.

    >>> FocalLoss(gamma=1.0).phi(torch.tensor([0.5]).log())
    tensor([0.3466])
    """

    name = "focal"
    paper = "Lin et al. 2017, Focal Loss for Dense Object Detection"

    def __init__(self, *, gamma: NotNegative = 2.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return -(_rest(log_p_y) ** self.gamma) * log_p_y

    def weight(self, log_p_y: Tensor) -> Tensor:
        # The text-book derivative has (1 - p)^(gamma - 1) log p, which is inf * 0 at p = 1 for gamma < 1;
        # with log p / (1 - p) as one bounded factor nothing blows up. At p = 1 that is 0 / 0, so it is taken
        # just before: a choice between both would still have NaN for its derivative, and so would 0 ** gamma.
        finite = log_p_y.clip(min=-1e30, max=-1e-30)
        rest = _rest(finite)
        return rest**self.gamma * (1 - self.gamma * torch.exp(log_p_y) * finite / rest)


class TaylorLoss(PhiLoss):
    r"""Taylor cross entropy, :math:`\sum_{i=1}^{t} (1 - p_y)^i / i`: the series in 1 - p_y, cut at order t.

    >>> TaylorLoss(order=2).phi(torch.tensor([0.5]).log())
    tensor([0.6250])
    """

    name = "taylor"
    paper = "Feng et al. 2020, Can Cross Entropy Loss Be Robust to Label Noise?"

    def __init__(self, *, order: Order = 2, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        rest = _rest(log_p_y)
        total = rest / self.order
        for i in range(self.order - 1, 0, -1):  # Horner: all terms positive, nothing cancels
            total = (total + 1 / i) * rest
        return total

    def weight(self, log_p_y: Tensor) -> Tensor:
        rest = _rest(log_p_y)
        total = torch.ones_like(rest)
        for _ in range(self.order - 1):
            total = 1 + rest * total
        return torch.exp(log_p_y) * total


class RCELoss(PhiLoss):
    r"""Reverse cross entropy, :math:`-A (1 - p_y)`, a multiple of MAE.

    A = ``log_zero`` < 0 is what log 0 is read as.

    >>> RCELoss().phi(torch.tensor([0.7]).log())
    tensor([1.2000])
    """

    name = "rce"
    paper = "Wang et al. 2019, Symmetric Cross Entropy for Robust Learning with Noisy Labels"

    def __init__(self, *, log_zero: LogZero = -4.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return self.log_zero * expm1(log_p_y)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return -self.log_zero * torch.exp(log_p_y)


class SCELoss(RCELoss):
    r"""Symmetric cross entropy, :math:`\alpha \cdot CCE + \beta \cdot RCE`.

    alpha, beta >= 0; ``log_zero`` as in `RCELoss`.

    >>> SCELoss().phi(torch.tensor([0.5]).log())
    tensor([2.0693])
    """

    name = "sce"
    paper = "Wang et al. 2019, Symmetric Cross Entropy for Robust Learning with Noisy Labels"

    def __init__(
        self,
        *,
        alpha: NotNegative = 0.1,
        beta: NotNegative = 1.0,
        log_zero: LogZero = -4.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(log_zero=log_zero, **common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return -self.alpha * log_p_y + self.beta * super().phi(log_p_y)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return self.alpha + self.beta * super().weight(log_p_y)


class AGCELoss(PhiLoss):
    r"""Asymmetric generalised cross entropy, :math:`((a + 1)^q - (a + p_y)^q) / q`, a, q > 0.

    >>> AGCELoss(a=1.0, q=1.0).phi(torch.tensor([0.5]).log())
    tensor([0.5000])
    """

    name = "agce"
    paper = "Zhou et al. 2021, Asymmetric Loss Functions for Learning with Noisy Labels"

    def __init__(self, *, a: Positive = 0.6, q: Positive = 0.6, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        a, q = self.a, self.q
        log_ratio = _log((a + torch.exp(log_p_y)) / (a + 1), expm1(log_p_y) / (a + 1))
        return (a + 1) ** q / -q * expm1(q * log_ratio)

    def weight(self, log_p_y: Tensor) -> Tensor:
        p_y = torch.exp(log_p_y)
        return p_y * (self.a + p_y) ** (self.q - 1)


class AULLoss(PhiLoss):
    r"""Asymmetric unhinged loss, :math:`((a - p_y)^p - (a - 1)^p) / p`, a > 1, p > 0.

    >>> AULLoss(a=2.0, p=1.0).phi(torch.tensor([0.5]).log())
    tensor([0.5000])
    """

    name = "aul"
    paper = "Zhou et al. 2021, Asymmetric Loss Functions for Learning with Noisy Labels"

    def __init__(self, *, a: AboveOne = 6.3, p: Positive = 1.5, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        a, p = self.a, self.p
        rest = _rest(log_p_y)
        log_ratio = torch.log1p(rest / (a - 1))  # log((a - p_y) / (a - 1)), exact at p_y = 1
        # From the larger power down: the smaller one, 0.001 ** 15 for a = 1.001, may be 0 in fp32.
        return ((a - 1) + rest) ** p / -p * expm1(-p * log_ratio)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return torch.exp(log_p_y) * ((self.a - 1) + _rest(log_p_y)) ** (self.p - 1)


class AELLoss(PhiLoss):
    r"""Asymmetric exponential loss, :math:`\exp(-p_y / a)`, a > 0.

    >>> AELLoss(a=1.0).phi(torch.tensor([1.0]).log())
    tensor([0.3679])
    """

    name = "ael"
    paper = "Zhou et al. 2021, Asymmetric Loss Functions for Learning with Noisy Labels"

    def __init__(self, *, a: Positive = 2.5, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return torch.exp(torch.exp(log_p_y) / -self.a)

    def weight(self, log_p_y: Tensor) -> Tensor:
        p_y = torch.exp(log_p_y)
        return p_y / self.a * torch.exp(p_y / -self.a)


class PHuberLoss(PhiLoss):
    r"""Partially Huberised cross entropy: :math:`-\log p_y` above 1/tau, its tangent below, tau > 1.

    >>> PHuberLoss(tau=10.0).phi(torch.tensor([0.5, 0.0]).log())
    tensor([0.6931, 3.3026])
    """

    name = "phuber"
    paper = "Menon et al. 2020, Can Gradient Clipping Mitigate Label Noise?"

    def __init__(self, *, tau: AboveOne = 10.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        log_tau = math.log(self.tau)
        # 1 + log tau - tau p_y, as two positive terms below 1 / tau
        tangent = log_tau - expm1(log_p_y + log_tau)
        return torch.where(log_p_y >= -log_tau, -log_p_y, tangent)

    def weight(self, log_p_y: Tensor) -> Tensor:
        return torch.exp((log_p_y + math.log(self.tau)).clip(max=0))


class JSLoss(PhiLoss):
    r"""Jensen-Shannon divergence of the one-hot label and the prediction, weights pi and 1 - pi.

    Scaled as in Englesson & Azizpour 2021, so that pi -> 0 is cross entropy and pi -> 1 half of MAE.

    >>> JSLoss(pi=0.5).phi(torch.tensor([1.0, 0.0]).log())
    tensor([0., 2.])
    """

    name = "js"
    paper = "Englesson & Azizpour 2021, Generalized Jensen-Shannon Divergence Loss"

    def __init__(self, *, pi: Inside = 0.5, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        pi = self.pi
        other, scale = 1 - pi, -math.log1p(-pi)
        p_y, rest = torch.exp(log_p_y), _rest(log_p_y)
        log_m = _log(pi + other * p_y, -other * rest)  # m = pi + (1 - pi) p_y
        # log(m / p_y), not the difference of two logarithms: for a small pi they are nearly the same.
        apart = torch.log1p(pi * rest / torch.exp(log_p_y.clip(min=-80)))
        return rest - p_y * apart / scale - pi / (other * scale) * log_m

    def weight(self, log_p_y: Tensor) -> Tensor:
        finite = log_p_y.clip(min=-1e30)  # a masked label has log p_y = -inf, and 0 * inf is NaN
        slope = softplus(math.log(self.pi / (1 - self.pi)) - finite)
        return torch.exp(finite) * slope / -math.log1p(-self.pi)


# The functions of `tolerant.functional`; here, so that type checkers know the arguments.
cce_loss = function_of(CCELoss)
mae_loss = function_of(MAELoss)
lq_loss = function_of(LqLoss)
truncated_lq_loss = function_of(TruncatedLqLoss)
focal_loss = function_of(FocalLoss)
taylor_loss = function_of(TaylorLoss)
rce_loss = function_of(RCELoss)
sce_loss = function_of(SCELoss)
agce_loss = function_of(AGCELoss)
aul_loss = function_of(AULLoss)
ael_loss = function_of(AELLoss)
phuber_loss = function_of(PHuberLoss)
js_loss = function_of(JSLoss)


def lq_or_truncated(q: float, k: float | None, **common: Unpack[Common]) -> PhiLoss:
    """L_q, or truncated at k if given, for one call."""
    return LqLoss.bare(q=q, **common) if k is None else TruncatedLqLoss.bare(q=q, k=k, **common)


def _rest(log_p_y: Tensor) -> Tensor:
    """1 - p_y, with all digits near p_y = 1."""
    return -expm1(log_p_y)


def _log(x: Tensor, less_one: Tensor) -> Tensor:
    """log x from x and x - 1, with all digits near 1, where x has none to spare, and near 0."""
    return torch.where(less_one > -0.5, torch.log1p(less_one), torch.log(x))
