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
from tolerant.losses.check import check_reduction
from tolerant.losses.linear import linear_lq_loss
from tolerant.losses.log_prob import log_p_given, log_p_y, log_softmax
from tolerant.losses.module import RobustLoss
from tolerant.losses.reduction import Weighing
from tolerant.losses.registry import REGISTRY


def _function(loss: type[RobustLoss]) -> Callable[..., Tensor]:
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
        weighing = Weighing(weight, ignore_index, reduction, sample_weight)
        return loss.compute(logits, labels, loss.resolve(**hyper), weighing, impl)

    positional = list(inspect.signature(function).parameters.values())[:3]
    own = inspect.signature(loss).parameters.values()
    function.__signature__ = inspect.Signature([*positional, *own])  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = f"{loss.name.replace('-', '_')}_loss"
    summary = (loss.__doc__ or "").splitlines()[0]
    function.__doc__ = f"{summary}\n\nThe function of `tolerant.{loss.__name__}`."
    return function


cce_loss = _function(REGISTRY["cce"].module)
mae_loss = _function(REGISTRY["mae"].module)
lq_loss = _function(REGISTRY["lq"].module)
truncated_lq_loss = _function(REGISTRY["truncated-lq"].module)
focal_loss = _function(REGISTRY["focal"].module)
taylor_loss = _function(REGISTRY["taylor"].module)
rce_loss = _function(REGISTRY["rce"].module)
sce_loss = _function(REGISTRY["sce"].module)
agce_loss = _function(REGISTRY["agce"].module)
aul_loss = _function(REGISTRY["aul"].module)
ael_loss = _function(REGISTRY["ael"].module)
phuber_loss = _function(REGISTRY["phuber"].module)
js_loss = _function(REGISTRY["js"].module)
nce_loss = _function(REGISTRY["nce"].module)
nfl_loss = _function(REGISTRY["nfl"].module)
gjs_loss = _function(REGISTRY["gjs"].module)
bootstrap_soft_loss = _function(REGISTRY["bootstrap-soft"].module)
bootstrap_hard_loss = _function(REGISTRY["bootstrap-hard"].module)

__all__ = [
    "binary_lq_loss",
    "linear_lq_loss",
    "log_p_given",
    "log_p_y",
    "log_softmax",
    *(f"{name.replace('-', '_')}_loss" for name in REGISTRY),
]
