"""Losses that look at a whole row of probabilities, not at p_y alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from tolerant.kernels.log_prob import FromInputs, expm1, is_class, log_softmax
from tolerant.kernels.plain import finite_rows, phi_at, weigh
from tolerant.losses.declaration import Common, Inside, NotNegative, Q, Share
from tolerant.losses.module import PhiLoss, RobustLoss, function_of, reverse_mode_only
from tolerant.losses.phi import CCELoss, FocalLoss, JSLoss, LqLoss
from tolerant.losses.reduction import rows_of, to_rows, weigh_rows


class NCELoss(RobustLoss):
    r"""Normalised cross entropy, :math:`\log p_y / \sum_j \log p_j`.

    Robust alone; it learns well with a passive partner (`SumLoss`). Classes masked by -inf are left out of
    the sum.

    >>> NCELoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([1]))
    tensor(0.9437)
    """

    name = "nce"
    paper = "Ma et al. 2020, Normalized Loss Functions for Deep Learning with Noisy Labels"

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _normalised(CCELoss.bare(), logits, labels)


class NFLLoss(RobustLoss):
    r"""Normalised focal loss: `FocalLoss`, divided by its sum over all labels, gamma >= 0.

    >>> NFLLoss(gamma=0.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([1]))  # NCELoss
    tensor(0.9437)
    """

    name = "nfl"
    paper = "Ma et al. 2020, Normalized Loss Functions for Deep Learning with Noisy Labels"

    def __init__(self, *, gamma: NotNegative = 0.5, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _normalised(FocalLoss.bare(gamma=self.gamma), logits, labels)


class NGCELoss(RobustLoss):
    """Normalised L_q: `LqLoss`, divided by its sum over all labels, q in [0, 1].

    >>> NGCELoss(q=0.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([1]))  # NCELoss
    tensor(0.9437)
    """

    name = "ngce"
    paper = "Ma et al. 2020, Normalized Loss Functions for Deep Learning with Noisy Labels"

    def __init__(self, *, q: Q = 0.7, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _normalised(LqLoss.bare(q=self.q), logits, labels)


class GJSLoss(RobustLoss):
    """Generalised Jensen-Shannon divergence; give it a sequence of logits, one per view.

    It splits into the one-hot JS loss of the views' mean prediction and 1 - pi times the views'
    divergence from that mean, so that with one view it is JS.

    >>> views = torch.zeros(4, 3), torch.zeros(4, 3)
    >>> GJSLoss(pi=0.5)(views, torch.tensor([0, 1, 2, 0]))
    tensor(0.9183)
    """

    name = "gjs"
    paper = "Englesson & Azizpour 2021, Generalized Jensen-Shannon Divergence Loss"

    def __init__(self, *, pi: Inside = 0.5, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def row_losses(self, logits: Tensor, labels: Tensor, *more_views: Tensor) -> Tensor:
        # A masked class is finite here: a sum over views that are all -inf has NaN for its derivative.
        each = [log_softmax(view).clamp(min=-1e30) for view in (logits, *more_views)]
        mean = _LogMean.apply(torch.stack(each)) if more_views else each[0]
        agreement = _pick(phi_at(mean, JSLoss.bare(pi=self.pi)), labels)
        if not more_views:
            return agreement
        apart = [(torch.exp(log_p) * (log_p - mean)).sum(-1) for log_p in each]
        return agreement + _for_label(torch.stack(apart).mean(0), labels) / -math.log1p(-self.pi)

    @reverse_mode_only
    def forward(
        self, logits: Tensor | Sequence[Tensor], labels: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        if isinstance(logits, Tensor):
            return super().forward(logits, labels, sample_weight)
        if not logits:
            raise ValueError("views must hold at least one tensor of logits; got none.")
        first, *others = logits
        for view in others:
            if view.shape != first.shape:
                raise ValueError(
                    f"views must have one shape; got {tuple(first.shape)} and {tuple(view.shape)}."
                )
        rows = weigh_rows(self, to_rows(self, first, labels, sample_weight))
        view, *more = (finite_rows(z, rows.weight) for z in (rows.logits, *map(rows_of, others)))
        return rows.reduce(weigh(self.row_losses(view, rows.labels, *more), rows.weight))


class BootstrapLoss(RobustLoss):
    """Soft bootstrapping: cross entropy with the label mixed with the model's own probabilities.

    The label has the share beta in [0, 1]. The gradient flows through the probabilities, too: the loss is
    beta * CCE + (1 - beta) * entropy.

    >>> BootstrapLoss(beta=0.0)(torch.zeros(1, 2), torch.tensor([1]))  # the entropy, log 2
    tensor(0.6931)
    """

    name = "bootstrap-soft"
    paper = "Reed et al. 2014, Training Deep Neural Networks on Noisy Labels with Bootstrapping"

    def __init__(self, *, beta: Share = 0.95, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = log_softmax(logits)
        # p * log p with p = 0 for a masked class: 0, not 0 * inf. It is 0 from log p = -746 on; a bound far
        # below would be inf in fp32 once multiplied by a loss scale.
        entropy = -(torch.exp(log_p) * log_p.clamp(min=-1e4)).sum(-1)
        return -self.beta * _pick(log_p, labels) + (1 - self.beta) * _for_label(entropy, labels)


class HardBootstrapLoss(BootstrapLoss):
    """Hard bootstrapping: cross entropy with the label mixed with the model's likeliest class.

    The label has the share beta in [0, 1].

    >>> HardBootstrapLoss(beta=0.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([1]))  # of class 0
    tensor(0.1269)
    """

    name = "bootstrap-hard"

    def __init__(self, *, beta: Share = 0.8, **common: Unpack[Common]) -> None:
        super().__init__(beta=beta, **common)

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = log_softmax(logits)
        return -self.beta * _pick(log_p, labels) - (1 - self.beta) * _for_label(log_p.amax(-1), labels)


# The functions of `tolerant.functional`; here, so that type checkers know the arguments.
nce_loss = function_of(NCELoss)
nfl_loss = function_of(NFLLoss)
ngce_loss = function_of(NGCELoss)
gjs_loss = function_of(GJSLoss)
bootstrap_soft_loss = function_of(BootstrapLoss)
bootstrap_hard_loss = function_of(HardBootstrapLoss)


def _pick(per_class: Tensor, labels: Tensor) -> Tensor:
    """The given class's entry, or the mean over the labels' probabilities."""
    if labels.is_floating_point():
        return weigh(per_class, labels).sum(-1)
    return per_class.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _for_label(values: Tensor, labels: Tensor) -> Tensor:
    """What is the same for every label, for these: soft ones have the class weights in them."""
    return values * labels.sum(-1) if labels.is_floating_point() else values


def _normalised(loss: PhiLoss, logits: Tensor, labels: Tensor) -> Tensor:
    per_class = phi_at(log_softmax(logits), loss)
    own, masked = _pick(per_class, labels), logits == -math.inf
    if labels.is_floating_point():
        counted = torch.where(masked & (labels == 0), 0.0, per_class)
        return _Share.apply(own, counted.sum(-1) - own)
    others = torch.where(is_class(labels, logits) | masked, 0.0, per_class).sum(-1)
    return _Share.apply(own, others)


class _LogMean(FromInputs):
    """log of the mean probability over the first dimension, with all digits near 1.

    Autograd's derivative of expm1 is expm1 + 1, which is 0 for the p of a view that is sure of another class.
    """

    @staticmethod
    def forward(log_p: Tensor) -> Tensor:
        near_one = torch.log1p(expm1(log_p).mean(0).clamp(min=-0.5))
        in_log_space = torch.logsumexp(log_p, 0) - math.log(len(log_p))
        return torch.where(in_log_space > -0.5, near_one, in_log_space)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (log_p,) = ctx.saved_tensors
        return grad * torch.softmax(log_p, 0)


class _Share(FromInputs):
    """a / (a + b). Autograd's 1/s - a/s^2 loses all digits of b/s^2 once b is small.

    Flat at its ends: 1 for a masked label, whose a is infinite; 0 for the only class left, with a = b = 0.
    """

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        share: Tensor = a / (a + b)
        return torch.where(a == 0, 0.0, torch.where(a == math.inf, 1.0, share))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        flat = (a == math.inf) | (a + b == 0)
        a, b = torch.where(flat, 1.0, a), torch.where(flat, 0.0, b)
        scaled = torch.where(flat, 0.0, grad / (a + b) / (a + b))
        return scaled * b, -scaled * a
