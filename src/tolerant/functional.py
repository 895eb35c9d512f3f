"""A function for each loss, named after its registry row: `lq_loss`, `truncated_lq_loss`, ...

Each stands beside its class, and takes the same arguments.

>>> import torch
>>> lq_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), q=0.0)
tensor(0.1269)
"""

from __future__ import annotations

from torch import Tensor

from tolerant.kernels.log_prob import log_p_y as _log_p_y_of_rows
from tolerant.losses.binary import binary_lq_loss as binary_lq_loss
from tolerant.losses.from_log_prob import lq_from_log_prob as lq_from_log_prob
from tolerant.losses.full_row import *  # noqa: F403
from tolerant.losses.input_checks import check_label_range, check_logits_and_labels, check_tensor
from tolerant.losses.linear import linear_lq_loss as linear_lq_loss
from tolerant.losses.phi import *  # noqa: F403
from tolerant.losses.reduction import rows_of
from tolerant.losses.registry import REGISTRY


def log_p_y(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each given label: what every loss of p_y is a function of.

    logits (N, C) or (N, C, d1, ...), labels (N, d1, ...). The result is fp32 at least, its gradient in the
    logits' dtype. All digits are right, even near p_y = 1, where ``log_softmax`` has none left, and for gaps
    of 10,000.

    >>> import torch
    >>> log_p_y(torch.tensor([[50.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    tensor([-1.9287e-22, -6.9315e-01])
    """
    check_tensor("labels", labels)
    if labels.is_floating_point():
        raise TypeError(f"labels must be class indices; got {labels.dtype}. Call labels.long().")
    shape = check_logits_and_labels(logits, labels)
    rows, row_labels = rows_of(logits), labels.reshape(-1).long()
    check_label_range(row_labels, rows.shape[1], ignore_index=None)
    return _log_p_y_of_rows(rows, row_labels).reshape(shape)


# No assignment, as in `tolerant.losses`: type checkers would take all names for private.
globals()["__all__"] = [
    *["binary_lq_loss", "linear_lq_loss", "log_p_y", "lq_from_log_prob"],
    *(f"{name.replace('-', '_')}_loss" for name in REGISTRY),
]
