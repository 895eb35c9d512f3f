"""Small batches on the CPU, in numpy on the tensors' own memory.

At 128 x 10 a torch operation takes two or three times as long as a numpy one, nearly all of it overhead; a
loss and its gradient take some twenty of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tolerant.losses.log_prob import compute_dtype
from tolerant.losses.phi import Phi

MOST_LOGITS = 1 << 15  # in larger batches torch takes a second thread, and is as fast
# The largest r (see `sweep`): up to here neither w / (1 + r) nor a p_j above 1e-37 leaves the range of fp32.
MOST_R = 1e12


def serves(logits: Tensor, labels: Tensor, row_weight: Tensor | float) -> bool:
    """Not for subclasses of Tensor: they may have no memory of their own, or want to see each operation."""
    plain = type(logits) is type(labels) is Tensor and type(row_weight) in (float, Tensor)
    return plain and 0 < logits.numel() <= MOST_LOGITS and logits.is_cpu


def sweep(
    logits: Tensor,
    labels: Tensor,
    row_weight: Tensor | float,
    phi: Phi,
    hyper: dict[str, Any],
    want_grad: bool,
) -> tuple[Tensor | None, Tensor, Tensor | None] | None:
    """What `fused` gives for larger batches; None where z_y is too far below the row's maximum, or NaN.

    With r the sum of exp(z_j - z_y) over the rivals j != y, log p_y = -log(1 + r), and the gradient's
    label entry is -w r / (1 + r): no digit is lost as long as r is not huge.
    """
    dtype = compute_dtype(logits)
    exact = logits.dtype == dtype
    # .float(), and .type() below, take two thirds of the time of .to().
    z = (logits if exact else logits.float()).detach().numpy()
    own = np.arange(0, z.size, z.shape[1]) + labels.numpy()
    with np.errstate(all="ignore"):
        # A row in one piece: numpy adds up a row spread over memory one by one, 2e-4 off at 15,000 classes.
        ratios = np.subtract(z, z.take(own)[:, None], order="C")
        np.exp(ratios, ratios)
        ratios.put(own, 0)
        r = ratios.sum(1)
        if not r.max() < MOST_R:
            return None
        log_p_y = -np.log1p(r)
        values = phi.value(log_p_y, **hyper)
        each = row_weight.detach().numpy() if isinstance(row_weight, Tensor) else row_weight
        if want_grad:
            ratios.put(own, -r)
            ratios *= (phi.weight(log_p_y, **hyper) * each / (r + 1))[:, None]
    losses = torch.from_numpy(values * each)
    gradient = torch.from_numpy(ratios) if want_grad else None
    if gradient is not None and not exact:
        gradient = gradient.type(logits.dtype)
    return torch.from_numpy(values) if isinstance(row_weight, Tensor) else None, losses, gradient
