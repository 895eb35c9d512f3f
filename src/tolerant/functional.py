"""A function for each loss, named after its registry row: `lq_loss`, `truncated_lq_loss`, ...

>>> import torch
>>> lq_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), q=0.0)
tensor(0.1269)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from tolerant.losses.binary import binary_lq_loss
from tolerant.losses.check import check_label_range, check_reduction, check_tensor
from tolerant.losses.linear import linear_lq_loss
from tolerant.losses.log_prob import log_p_y as _log_p_y_of_rows
from tolerant.losses.module import RobustLoss, check_impl
from tolerant.losses.reduction import Weighing, check_call, rows_of
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
    num_classes, shape = check_call(logits, labels, Weighing())
    row_labels = labels.reshape(-1).long()
    check_label_range(row_labels, num_classes, ignore_index=None)
    return _log_p_y_of_rows(rows_of(logits), row_labels).reshape(shape)


def _function_of(loss: type[RobustLoss]) -> Callable[..., Tensor]:
    def function(
        logits: Tensor,
        labels: Tensor,
        sample_weight: Tensor | None = None,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        impl: str = "auto",
        **hyper: Any,
    ) -> Tensor:
        check_reduction(reduction)
        check_impl(impl)
        weighing = Weighing(weight, ignore_index, reduction, sample_weight)
        return loss.compute(logits, labels, loss.resolve(**hyper), weighing, impl)

    positional = list(inspect.signature(function).parameters.values())[:3]
    own = inspect.signature(loss).parameters.values()
    function.__signature__ = inspect.Signature([*positional, *own])  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = f"{loss.name.replace('-', '_')}_loss"
    summary = (loss.__doc__ or "").splitlines()[0]
    function.__doc__ = f"{summary}\n\nThe functional form of `tolerant.{loss.__name__}`."
    return function


# Each is spelt out, so that editors and type checkers know the names; a test compares them with the registry.
cce_loss = _function_of(REGISTRY["cce"].module)
mae_loss = _function_of(REGISTRY["mae"].module)
lq_loss = _function_of(REGISTRY["lq"].module)
truncated_lq_loss = _function_of(REGISTRY["truncated-lq"].module)
focal_loss = _function_of(REGISTRY["focal"].module)
taylor_loss = _function_of(REGISTRY["taylor"].module)
rce_loss = _function_of(REGISTRY["rce"].module)
sce_loss = _function_of(REGISTRY["sce"].module)
agce_loss = _function_of(REGISTRY["agce"].module)
aul_loss = _function_of(REGISTRY["aul"].module)
ael_loss = _function_of(REGISTRY["ael"].module)
phuber_loss = _function_of(REGISTRY["phuber"].module)
js_loss = _function_of(REGISTRY["js"].module)
nce_loss = _function_of(REGISTRY["nce"].module)
nfl_loss = _function_of(REGISTRY["nfl"].module)
ngce_loss = _function_of(REGISTRY["ngce"].module)
gjs_loss = _function_of(REGISTRY["gjs"].module)
bootstrap_soft_loss = _function_of(REGISTRY["bootstrap-soft"].module)
bootstrap_hard_loss = _function_of(REGISTRY["bootstrap-hard"].module)

__all__ = [
    "binary_lq_loss",
    "linear_lq_loss",
    "log_p_y",
    *(f"{name.replace('-', '_')}_loss" for name in REGISTRY),
]
