"""Losses made of losses: sums, and corrections by a transition matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tolerant.checks import check_transition
from tolerant.kernels import can
from tolerant.kernels.log_prob import log_p_given, log_softmax, rows_at
from tolerant.kernels.plain import RowWeight, finite_rows, phi_at, weigh
from tolerant.losses.module import NoTorchScript, PhiLoss, RobustLoss, reverse_mode_only
from tolerant.losses.phi import CCELoss
from tolerant.losses.reduction import to_rows, weigh_rows


class SumLoss(NoTorchScript):
    """A weighted sum of losses, such as an active one and a passive one.

    >>> from tolerant.losses import NCELoss, RCELoss
    >>> SumLoss(NCELoss(), RCELoss(), factors=(1.0, 0.1))
    SumLoss(
      factors=(1.0, 0.1)
      (losses): ModuleList(
        (0): NCELoss()
        (1): RCELoss(log_zero=-4.0)
      )
    )
    """

    def __init__(self, *losses: RobustLoss, factors: Sequence[float] | None = None) -> None:
        super().__init__()
        if not losses:
            raise ValueError("losses must hold at least one loss; got none.")
        reductions = {loss.reduction for loss in losses}
        if len(reductions) > 1:
            raise ValueError(f"losses must share one reduction; got {sorted(reductions)}.")
        self.factors = tuple(factors) if factors is not None else (1.0,) * len(losses)
        if len(self.factors) != len(losses):
            raise ValueError(f"factors must be one per loss, {len(losses)}; got {self.factors!r}.")
        self.losses = nn.ModuleList(losses)

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        parts = [
            factor * loss(logits, labels, sample_weight)
            for factor, loss in zip(self.factors, self.losses, strict=True)
        ]
        return torch.stack(parts).sum(0)

    def extra_repr(self) -> str:
        return f"factors={self.factors}"


class _Corrected(NoTorchScript):
    """A loss and the transition matrix it is corrected by."""

    transition: Tensor

    def __init__(self, loss: PhiLoss, transition: Tensor) -> None:
        super().__init__()
        transition = torch.as_tensor(transition)
        if not transition.is_floating_point():
            transition = transition.float()
        check_transition(transition.detach().double().cpu().numpy())
        self.loss = loss
        # Rows may miss 1 by rounding, and an entry above it would have log(1 - T) = NaN.
        self.register_buffer("transition", transition.detach().clamp(max=1.0))

    def row_losses(self, logits: Tensor, labels: Tensor, row_weight: RowWeight) -> Tensor:
        """The corrected loss of each row; row_weight says which ones count."""
        raise NotImplementedError

    @reverse_mode_only
    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = to_rows(self.loss, logits, labels, sample_weight)
        num_classes = rows.logits.shape[1]
        if num_classes != len(self.transition):
            raise ValueError(
                f"logits must have one column per class of the transition, {len(self.transition)}; "
                f"got {num_classes}."
            )
        z, y, row_weight, *_ = weighed = weigh_rows(self.loss, rows)
        return weighed.reduce(weigh(self.row_losses(finite_rows(z, row_weight), y, row_weight), row_weight))


class ForwardCorrected(_Corrected):
    r"""Any loss of p_y, on the probability of the given label after noise, :math:`(T^\top p)_y`.

    The model then learns the true labels' probabilities. transition[i, j] is
    P(given = j | true = i). Patrini et al. 2017; the paper's "forward T".

    >>> identity = torch.eye(3)
    >>> logits, labels = torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([1])
    >>> ForwardCorrected(CCELoss(), identity)(logits, labels).isclose(CCELoss()(logits, labels))
    tensor(True)
    """

    def __init__(self, loss: PhiLoss, transition: Tensor) -> None:
        if not isinstance(loss, PhiLoss):
            raise TypeError(
                "loss must be a loss of p_y alone (LqLoss, CCELoss, MAELoss, ...); "
                f"got {type(loss).__name__}."
            )
        if isinstance(loss, CCELoss) and loss.label_smoothing:
            raise ValueError("label_smoothing must be 0 under a correction: both move the labels.")
        super().__init__(loss, transition)

    def row_losses(self, logits: Tensor, labels: Tensor, row_weight: RowWeight) -> Tensor:
        loss = self.loss.frozen()
        if not labels.is_floating_point():
            self._check_possible(labels, row_weight)
            return phi_at(log_p_given(logits, labels, self.transition), loss)
        # Every class is a possible label: its log-probability after noise, class by class.
        classes = torch.arange(logits.shape[1], device=logits.device)
        per_class = [log_p_given(logits, label.expand(len(logits)), self.transition) for label in classes]
        # A label T cannot give counts only where it has weight: 0 * inf must not become NaN.
        return weigh(phi_at(torch.stack(per_class, 1), loss), labels).sum(-1)

    def _check_possible(self, labels: Tensor, row_weight: RowWeight) -> None:
        if not can.read(labels):
            return
        counted = labels[row_weight != 0] if isinstance(row_weight, Tensor) else labels
        impossible = counted[(self.transition == 0).all(0)[counted]]
        if len(impossible):
            label = int(impossible[0])
            raise ValueError(
                f"labels must be possible under the transition; label {label} occurs, but column "
                f"{label} of the transition is all 0. Estimate T again, or mix in a little noise."
            )


class BackwardCorrected(_Corrected):
    r"""Cross entropy made unbiased by the inverse of T. Patrini et al. 2017.

    The given label's row of :math:`T^{-1}` weighs the losses of all classes.

    >>> transition = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    >>> BackwardCorrected(CCELoss(), transition)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(-0.6731)
    """

    inverse: Tensor

    def __init__(self, loss: CCELoss, transition: Tensor) -> None:
        if not isinstance(loss, CCELoss) or loss.label_smoothing:
            raise TypeError(f"loss must be CCELoss() without label smoothing; got {loss!r}.")
        super().__init__(loss, transition)
        exact = self.transition.double()
        condition = torch.linalg.cond(exact).item()
        if not condition < 1e6:
            raise ValueError(
                f"transition must be invertible; its condition number is {condition:.3g}. "
                "ForwardCorrected needs no inverse."
            )
        self.register_buffer("inverse", torch.linalg.inv(exact).to(self.transition.dtype))

    def row_losses(self, logits: Tensor, labels: Tensor, row_weight: RowWeight) -> Tensor:
        log_p = log_softmax(logits)
        inverse = self.inverse.to(log_p.dtype)
        over_classes = labels @ inverse if labels.is_floating_point() else rows_at(inverse, labels)
        # A masked class counts only where the inverse does: 0 * inf must not become NaN.
        return -torch.where(over_classes == 0, 0.0, over_classes * log_p).sum(-1)
