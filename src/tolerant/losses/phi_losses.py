"""The losses of p_y alone, as modules: a name, limits and a paper each; the formulas are in `phi`."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor

from tolerant.losses import fused
from tolerant.losses.domain import Domain
from tolerant.losses.log_prob import compute_dtype, log_softmax
from tolerant.losses.module import PhiLoss
from tolerant.losses.reduction import Weighing, weighted_loss


class CCELoss(PhiLoss):
    """Categorical cross entropy, -log p_y: the baseline every robust loss is measured against."""

    name = "cce"
    paper = "the standard loss; equals torch.nn.CrossEntropyLoss"
    domains: ClassVar[dict[str, Domain]] = {"label_smoothing": Domain(0, 1)}

    @classmethod
    def own_parameters(cls) -> list[inspect.Parameter]:
        return [inspect.Parameter("label_smoothing", inspect.Parameter.KEYWORD_ONLY, default=0.0)]

    @classmethod
    def compute(
        cls,
        logits: Tensor,
        labels: Tensor,
        hyper: dict[str, Any],
        weighing: Weighing,
        impl: str = "auto",
    ) -> Tensor:
        smoothing = hyper["label_smoothing"]
        if smoothing and labels.is_floating_point():
            # In the dtype of the arithmetic: bf16 has 0.9 only as 0.8984.
            labels = labels.to(compute_dtype(logits)) * (1 - smoothing)
            labels = labels + smoothing / logits.shape[min(1, logits.ndim - 1)]
        own = super().compute(logits, labels, {}, weighing, impl)
        if not smoothing or labels.is_floating_point():
            return own
        return (1 - smoothing) * own + smoothing * _mean_over_classes(logits, labels, weighing)


def _mean_over_classes(logits: Tensor, labels: Tensor, weighing: Weighing) -> Tensor:
    """Label smoothing's other part: each class weighted as itself, the mean divided as the label's."""
    weight = weighing.weight

    def rows(z: Tensor, y: Tensor, row_weight: fused.RowWeight) -> Tensor:
        log_p = log_softmax(fused.finite_rows(z, row_weight))
        values = -(log_p if weight is None else log_p * weight.to(log_p.dtype)).mean(-1)
        return fused.weigh(values, row_weight)

    summed = "none" if weighing.reduction == "none" else "sum"
    total = weighted_loss(logits, labels, weighing._replace(weight=None, reduction=summed), rows)
    if weighing.reduction != "mean":
        return total
    divisor = weighted_loss(logits, labels, weighing._replace(reduction="sum"), _only_weights)
    # Where no row counts, the label's part is NaN, and 0 / 0 would make the gradients NaN, too.
    return total / torch.where(divisor == 0, 1.0, divisor)


def _only_weights(z: Tensor, y: Tensor, row_weight: fused.RowWeight) -> Tensor:
    return row_weight if isinstance(row_weight, Tensor) else z.new_full((len(z),), row_weight)


class MAELoss(PhiLoss):
    """Mean absolute error, 2 (1 - p_y): symmetric, so tolerant of uniform noise; slow to train."""

    name = "mae"
    paper = "Ghosh et al. 2017, Robust Loss Functions under Label Noise for Deep Neural Networks"


class LqLoss(PhiLoss):
    """Generalised cross entropy, (1 - p_y^q) / q: between cross entropy (q = 0) and MAE (q = 1).

    >>> import torch
    >>> loss = LqLoss(q=0.7)
    >>> loss
    LqLoss(q=0.7)
    >>> loss(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor(0.6138)
    """

    name = "lq"
    limits = "q -> 0: cce; q = 1: mae / 2"
    paper = "Zhang & Sabuncu 2018, Generalized Cross Entropy Loss"


class TruncatedLqLoss(PhiLoss):
    """Truncated L_q, min(L_q(p_y), L_q(k)): rows with p_y <= k have no gradient at all.

    Train with `LqLoss` first, then with this loss, or with `LqLoss` and a `Pruner` (the paper's
    algorithm): from scratch most rows start below k and nothing is learnt.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
    >>> TruncatedLqLoss(q=0.7, k=0.5)(logits, torch.tensor([0, 0])).backward()
    >>> logits.grad.any(1)  # p_y is 0.88 and 0.12
    tensor([ True, False])
    """

    name = "truncated-lq"
    limits = "k -> 0: lq"
    paper = "Zhang & Sabuncu 2018, Generalized Cross Entropy Loss"


def lq_or_truncated(q: float, k: float | None) -> tuple[type[PhiLoss], dict[str, Any]]:
    """L_q, or truncated at k if given, and its hyper-parameters, checked."""
    if k is None:
        return LqLoss, LqLoss.resolve(q=q)
    return TruncatedLqLoss, TruncatedLqLoss.resolve(q=q, k=k)


class FocalLoss(PhiLoss):
    """Focal loss, -(1 - p_y)^gamma log p_y: stresses hard rows, the opposite of robust."""

    name = "focal"
    limits = "gamma = 0: cce"
    paper = "Lin et al. 2017, Focal Loss for Dense Object Detection"


class TaylorLoss(PhiLoss):
    """Taylor cross entropy: cross entropy's series in 1 - p_y, cut at an order."""

    name = "taylor"
    limits = "order = 1: mae / 2; order -> infinity: cce"
    paper = "Feng et al. 2020, Can Cross Entropy Loss Be Robust to Label Noise?"


class RCELoss(PhiLoss):
    """Reverse cross entropy with log 0 read as log_zero: a multiple of MAE."""

    name = "rce"
    limits = "log_zero = -2: mae"
    paper = "Wang et al. 2019, Symmetric Cross Entropy for Robust Learning with Noisy Labels"


class SCELoss(PhiLoss):
    """Symmetric cross entropy: alpha * CCE + beta * RCE."""

    name = "sce"
    limits = "beta = 0: alpha * cce; alpha = 0: beta * rce"
    paper = "Wang et al. 2019, Symmetric Cross Entropy for Robust Learning with Noisy Labels"


class AGCELoss(PhiLoss):
    """Asymmetric generalised cross entropy, ((a + 1)^q - (a + p_y)^q) / q."""

    name = "agce"
    limits = "a -> 0: lq; q = 1: mae / 2"
    paper = "Zhou et al. 2021, Asymmetric Loss Functions for Learning with Noisy Labels"


class AULLoss(PhiLoss):
    """Asymmetric unhinged loss, ((a - p_y)^p - (a - 1)^p) / p."""

    name = "aul"
    limits = "p = 1: mae / 2"
    paper = "Zhou et al. 2021, Asymmetric Loss Functions for Learning with Noisy Labels"


class AELLoss(PhiLoss):
    """Asymmetric exponential loss, exp(-p_y / a)."""

    name = "ael"
    paper = "Zhou et al. 2021, Asymmetric Loss Functions for Learning with Noisy Labels"


class PHuberLoss(PhiLoss):
    """Partially Huberised cross entropy: cross entropy above p_y = 1 / tau, its tangent below."""

    name = "phuber"
    limits = "tau -> infinity: cce; tau -> 1: mae / 2"
    paper = "Menon et al. 2020, Can Gradient Clipping Mitigate Label Noise?"


class JSLoss(PhiLoss):
    """Jensen-Shannon divergence of the one-hot label and the prediction, scaled as its paper does."""

    name = "js"
    limits = "pi -> 0: cce; pi -> 1: mae / 2"
    paper = "Englesson & Azizpour 2021, Generalized Jensen-Shannon Divergence Loss"
