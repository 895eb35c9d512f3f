"""L_q for those who already have log-probabilities: per token, as language models have them."""

from __future__ import annotations

import torch
from torch import Tensor

from tolerant.kernels import can
from tolerant.kernels.log_prob import compute_dtype
from tolerant.kernels.plain import phi_at, weigh
from tolerant.losses.input_checks import check_reduction, check_tensor, check_vector
from tolerant.losses.phi import lq_or_truncated
from tolerant.losses.reduction import reduced

# Rounded in bf16 a log-probability near 0 can come out above it, by a step of its logits: 0.25 at 32 to 64.
MOST_LOG_PROB = 0.5


def lq_from_log_prob(
    log_p: Tensor,
    *,
    q: float = 0.7,
    k: float | None = None,
    weight: Tensor | None = None,
    ignore: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""L_q, truncated at k if given, of log-probabilities of the given labels, in any shape.

    For language models whose trainer or kernel hands out one number per token: TRL's ``log_probs``, minus
    Liger's or cut-cross-entropy's per-token loss. q = 0 is cross entropy; q = 1 has the gradient of dynamic
    fine-tuning. The derivative, :math:`-p^q`, is exact down to p = 0, and there is one of any order.

    Args:
        log_p: log p of each given label, at most 0. Taken in fp32 at least; its gradient keeps its dtype.
        q: 0 (cross entropy) to 1 (half of MAE).
        k: rows with p <= k have no gradient.
        weight: a factor for each element.
        ignore: bool, True where an element does not count, as ``labels == -100``; it is not read.
        reduction: "mean" divides by the weights of those that count, and is NaN if none does; "sum", "none".

    >>> log_p = torch.tensor([0.5, 0.25, 0.0]).log()
    >>> lq_from_log_prob(log_p, q=1.0, ignore=torch.tensor([False, False, True]))
    tensor(0.6250)
    """
    check_reduction(reduction)
    check_tensor("log_p", log_p)
    if not log_p.is_floating_point():
        raise TypeError(f"log_p must be floating point; got {log_p.dtype}.")
    loss = lq_or_truncated(q, k)
    one_each = "one per log-probability"
    if weight is not None:
        check_vector("weight", weight, log_p.shape, one_each)
    counts = None
    if ignore is not None:
        check_vector("ignore", ignore, log_p.shape, one_each)
        if ignore.dtype != torch.bool:
            raise TypeError(f"ignore must be bool; got {ignore.dtype}. Pass labels == -100, or weight=.")
        counts = ~ignore
        log_p = torch.where(counts, log_p, 0.0)  # NaN in padding would come back in 0 * NaN
    if log_p.numel() and can.read(log_p) and float(log_p.detach().max()) > MOST_LOG_PROB:
        raise ValueError(
            f"log_p must be log-probabilities, at most 0; got {float(log_p.detach().max()):.4g}. "
            "Of a per-token loss pass minus it."
        )
    dtype = compute_dtype(log_p)
    each = torch.ones_like(log_p, dtype=dtype) if weight is None else weight.to(dtype)
    if counts is not None:
        each = torch.where(counts, each, 0.0)
    return reduced(weigh(phi_at(log_p.to(dtype), loss), each), each, reduction)
