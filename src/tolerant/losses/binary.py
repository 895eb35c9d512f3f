"""L_q for binary and multi-label logits, in the form of `torch.nn.BCEWithLogitsLoss`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tolerant.kernels import can
from tolerant.kernels.log_prob import compute_dtype
from tolerant.kernels.plain import phi_at
from tolerant.losses.input_checks import check_reduction, check_tensor
from tolerant.losses.module import NoTorchScript
from tolerant.losses.phi import lq_or_truncated
from tolerant.losses.reduction import reduced


def binary_lq_loss(
    logits: Tensor,
    labels: Tensor,
    sample_weight: Tensor | None = None,
    *,
    q: float = 0.7,
    k: float | None = None,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""L_q of each logit as a yes-or-no decision of its own, truncated at k if given.

    labels hold 0, 1, probabilities between, or ignore_index. `weight` and `pos_weight` are those of
    `torch.nn.BCEWithLogitsLoss`; `sample_weight` has the labels' shape. A mean divides by the number
    of labels that count, or by the sum of their sample weights. q = 0 is binary cross entropy.

    >>> binary_lq_loss(torch.tensor([0.0]), torch.tensor([1.0]), q=1.0)
    tensor(0.5000)
    """
    loss = lq_or_truncated(q, k)
    check_reduction(reduction)
    check_tensor("labels", labels)
    if logits.shape != labels.shape:
        raise ValueError(
            f"labels must have the logits' shape {tuple(logits.shape)}; got {tuple(labels.shape)}."
        )
    if sample_weight is not None and sample_weight.shape != labels.shape:
        raise ValueError(
            f"sample_weight must have the labels' shape {tuple(labels.shape)}; "
            f"got {tuple(sample_weight.shape)}."
        )
    dtype = compute_dtype(logits)
    given = labels.to(dtype)
    counts = given != ignore_index
    if can.read(given):
        wrong = given[counts & ~((given >= 0) & (given <= 1))]
        if wrong.numel():
            raise ValueError(
                f"labels must be in [0, 1], or ignore_index={ignore_index}; got {wrong[0].item():g}."
            )
    divided_by = counts.to(dtype) if sample_weight is None else counts * sample_weight.to(dtype)
    weights = divided_by if weight is None else divided_by * weight.to(dtype)
    given = torch.where(counts, given, 0.0)
    # A label of weight 0 must not count even where its logit is NaN or infinite, but 0 * NaN is NaN: such
    # logits become 0. Finite ones stay, because their loss is the gradient of the weight.
    z = torch.where((weights == 0) & ~logits.isfinite(), 0.0, logits.to(dtype))
    yes, no = phi_at(F.logsigmoid(z), loss), phi_at(F.logsigmoid(-z), loss)
    losses = given * (yes if pos_weight is None else yes * pos_weight.to(dtype)) + (1 - given) * no
    return reduced(losses * weights, divided_by, reduction)


class BinaryLqLoss(NoTorchScript):
    """`binary_lq_loss` as a module, with the same arguments.

    >>> loss = BinaryLqLoss(q=0.5)
    >>> loss
    BinaryLqLoss(q=0.5, k=None)
    >>> loss(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]))
    tensor(0.9476)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        *,
        q: float = 0.7,
        k: float | None = None,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        lq_or_truncated(q, k)  # refused here, not at the first call
        check_reduction(reduction)
        self.q, self.k, self.ignore_index, self.reduction = q, k, ignore_index, reduction
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        names = ("q", "k", "weight", "pos_weight", "ignore_index", "reduction")
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        return binary_lq_loss(logits, labels, sample_weight, **options)

    def extra_repr(self) -> str:
        return f"q={self.q}, k={self.k}"
