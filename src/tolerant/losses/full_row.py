"""Losses that look at a whole row of probabilities, not at p_y alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from tolerant.losses.domain import Domain
from tolerant.losses.elementwise import expm1
from tolerant.losses.fused import RowWeight, finite_rows, weigh
from tolerant.losses.log_prob import is_class, log_softmax
from tolerant.losses.module import RobustLoss
from tolerant.losses.phi import PHI, Phi
from tolerant.losses.reduction import Weighing, rows_of, weighted_loss


def nce(logits: Tensor, labels: Tensor) -> Tensor:
    """Normalised cross entropy: cross entropy over its sum for all classes, those masked by -inf left out."""
    return _normalised(PHI["cce"], logits, labels)


def nfl(logits: Tensor, labels: Tensor, *, gamma: float = 0.5) -> Tensor:
    """Normalised focal loss."""
    return _normalised(PHI["focal"], logits, labels, gamma=gamma)


def ngce(logits: Tensor, labels: Tensor, *, q: float = 0.7) -> Tensor:
    """Normalised L_q (generalised cross entropy)."""
    return _normalised(PHI["lq"], logits, labels, q=q)


def bootstrap_soft(logits: Tensor, labels: Tensor, *, beta: float = 0.95) -> Tensor:
    """Cross entropy with the label mixed with the model's own probabilities.

    The gradient flows through those too: beta * CCE + (1 - beta) * entropy.
    """
    log_p = log_softmax(logits)
    # p * log p with p = 0 for a masked class: 0, not 0 * inf. It is 0 from log p = -746 on; a bound far
    # below would be inf in fp32 once multiplied by a loss scale.
    entropy = -(torch.exp(log_p) * log_p.clamp(min=-1e4)).sum(-1)
    return -beta * _pick(log_p, labels) + (1 - beta) * _for_label(entropy, labels)


def bootstrap_hard(logits: Tensor, labels: Tensor, *, beta: float = 0.8) -> Tensor:
    """Cross entropy with the label mixed with the model's own prediction."""
    log_p = log_softmax(logits)
    return -beta * _pick(log_p, labels) - (1 - beta) * _for_label(log_p.amax(-1), labels)


def gjs(views: Tensor | Sequence[Tensor], labels: Tensor, *, pi: float = 0.5) -> Tensor:
    """Generalised Jensen-Shannon divergence of the label and the predictions of several views.

    It splits into the one-hot JS loss of the views' mean prediction and 1 - pi times the views'
    divergence from that mean, so that with one view it is JS.
    """
    # A masked class is finite here: a sum over views that are all -inf has NaN for its derivative.
    each = [log_softmax(v).clamp(min=-1e30) for v in ([views] if isinstance(views, Tensor) else views)]
    mean = each[0] if len(each) == 1 else _LogMean.apply(torch.stack(each))
    agreement = _pick(PHI["js"](mean, pi=pi), labels)
    if len(each) == 1:
        return agreement
    apart = [(torch.exp(log_p) * (log_p - mean)).sum(-1) for log_p in each]
    return agreement + _for_label(torch.stack(apart).mean(0), labels) / -math.log1p(-pi)


class _LogMean(torch.autograd.Function):
    """log of the mean probability over the first dimension, with all digits near 1.

    Autograd's derivative of expm1 is expm1 + 1, which is 0 for the p of a view that is sure of another class.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(log_p: Tensor) -> Tensor:
        near_one = torch.log1p(expm1(log_p).mean(0).clamp(min=-0.5))
        in_log_space = torch.logsumexp(log_p, 0) - math.log(len(log_p))
        return torch.where(in_log_space > -0.5, near_one, in_log_space)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (log_p,) = ctx.saved_tensors
        return grad * torch.softmax(log_p, 0)


def _pick(per_class: Tensor, labels: Tensor) -> Tensor:
    """The given class's entry, or the mean over the labels' probabilities."""
    if labels.is_floating_point():
        return weigh(per_class, labels).sum(-1)
    return per_class.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _for_label(values: Tensor, labels: Tensor) -> Tensor:
    """What is the same for every label, for these: soft ones have the class weights in them."""
    return values * labels.sum(-1) if labels.is_floating_point() else values


def _normalised(phi: Phi, logits: Tensor, labels: Tensor, **hyper: float) -> Tensor:
    per_class = phi(log_softmax(logits), **hyper)
    own, masked = _pick(per_class, labels), logits == -math.inf
    if labels.is_floating_point():
        counted = torch.where(masked & (labels == 0), 0.0, per_class)
        return _Share.apply(own, counted.sum(-1) - own)
    others = torch.where(is_class(labels, logits) | masked, 0.0, per_class).sum(-1)
    return _Share.apply(own, others)


class _Share(torch.autograd.Function):
    """a / (a + b). Autograd's 1/s - a/s^2 loses all digits of b/s^2 once b is small.

    Flat at its ends: 1 for a masked label, whose a is infinite; 0 for the only class left, with a = b = 0.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        share: Tensor = a / (a + b)
        return torch.where(a == 0, 0.0, torch.where(a == math.inf, 1.0, share))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        flat = (a == math.inf) | (a + b == 0)
        a, b = torch.where(flat, 1.0, a), torch.where(flat, 0.0, b)
        scaled = torch.where(flat, 0.0, grad / (a + b) / (a + b))
        return scaled * b, -scaled * a


class NCELoss(RobustLoss):
    """Normalised cross entropy: robust alone, learns well with a passive partner (`SumLoss`)."""

    name = "nce"
    paper = "Ma et al. 2020, Normalized Loss Functions for Deep Learning with Noisy Labels"
    formula = staticmethod(nce)


class NFLLoss(RobustLoss):
    """Normalised focal loss."""

    name = "nfl"
    limits = "gamma = 0: nce"
    paper = "Ma et al. 2020, Normalized Loss Functions for Deep Learning with Noisy Labels"
    domains = PHI["focal"].domains
    formula = staticmethod(nfl)


class NGCELoss(RobustLoss):
    """Normalised L_q."""

    name = "ngce"
    limits = "q -> 0: nce; q = 1: mae / (2 C - 2)"
    paper = "Ma et al. 2020, Normalized Loss Functions for Deep Learning with Noisy Labels"
    domains = PHI["lq"].domains
    formula = staticmethod(ngce)


class BootstrapLoss(RobustLoss):
    """Soft bootstrapping: the label mixed with the model's own probabilities."""

    name = "bootstrap-soft"
    limits = "beta = 1: cce"
    paper = "Reed et al. 2014, Training Deep Neural Networks on Noisy Labels with Bootstrapping"
    domains: ClassVar[dict[str, Domain]] = {"beta": Domain(0, 1)}
    formula = staticmethod(bootstrap_soft)


class HardBootstrapLoss(BootstrapLoss):
    """Hard bootstrapping: the label mixed with the model's own prediction."""

    name = "bootstrap-hard"
    formula = staticmethod(bootstrap_hard)


class GJSLoss(RobustLoss):
    """Generalised Jensen-Shannon divergence; give it a sequence of logits, one per view.

    >>> views = torch.zeros(4, 3), torch.zeros(4, 3)
    >>> GJSLoss(pi=0.5)(views, torch.tensor([0, 1, 2, 0]))
    tensor(0.9183)
    """

    name = "gjs"
    limits = "one view: js"
    paper = "Englesson & Azizpour 2021, Generalized Jensen-Shannon Divergence Loss"
    domains = PHI["js"].domains
    formula = staticmethod(gjs)

    @classmethod
    def compute(
        cls,
        logits: Tensor | Sequence[Tensor],
        labels: Tensor,
        hyper: dict[str, Any],
        weighing: Weighing,
        impl: str = "auto",
    ) -> Tensor:
        if isinstance(logits, Tensor):
            return super().compute(logits, labels, hyper, weighing, impl)
        if not logits:
            raise ValueError("views must hold at least one tensor of logits; got none.")
        for view in logits[1:]:
            if view.shape != logits[0].shape:
                raise ValueError(
                    f"views must have one shape; got {tuple(logits[0].shape)} and {tuple(view.shape)}."
                )
        others = [rows_of(view) for view in logits[1:]]

        def rows(z: Tensor, y: Tensor, row_weight: RowWeight) -> Tensor:
            return weigh(gjs([finite_rows(v, row_weight) for v in (z, *others)], y, **hyper), row_weight)

        return weighted_loss(logits[0], labels, weighing, rows)
