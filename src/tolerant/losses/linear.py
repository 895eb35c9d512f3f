"""The last linear layer and L_q in one: the logits never exist all at once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tolerant.kernels import can
from tolerant.kernels.linear_chunks import LinearJob, linear_phi_rows, rows_of_a_chunk
from tolerant.kernels.log_prob import compute_dtype
from tolerant.losses.input_checks import check_reduction, check_tensor
from tolerant.losses.module import NoTorchScript
from tolerant.losses.phi import lq_or_truncated
from tolerant.losses.reduction import to_rows, weigh_rows


def linear_lq_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    q: float = 0.7,
    k: float | None = None,
    bias: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    chunk_rows: int | None = None,
    accumulate_fp32: bool | None = None,
) -> Tensor:
    r"""L_q, truncated at k if given, of ``F.linear(hidden, weight, bias)``, without its logits.

    hidden (..., H), weight (C, H), labels (...). q = 0 is cross entropy; q = 1 has the gradient of
    dynamic fine-tuning, :math:`p_y \nabla(-\log p_y)`, so q spans the way between the two.

    The gradients are formed in the forward pass (fp16 and ``reduction="none"`` wait for the backward
    pass, at the price of a fourth product). With k, rows with :math:`p_y \le k` take no part in the two
    gradient products; counting them stops the host at each chunk, so in a CUDA graph they take part.
    From 16-bit inputs the logits of a chunk are fp32, bias included, and never rounded: the gradients are as
    near the truth as bf16 can hold them. The layer's gradient is summed in bf16 over few chunks, and in fp32,
    which takes 4 bytes per weight, over many; ``accumulate_fp32`` says which.

    >>> hidden, weight = torch.ones(2, 3), torch.eye(4, 3)
    >>> linear_lq_loss(hidden, weight, torch.tensor([0, 3]), q=1.0)
    tensor(0.7969)
    """
    _check_input(hidden, weight, labels, sample_weight, chunk_rows)
    loss = lq_or_truncated(q, k, ignore_index=ignore_index, reduction=reduction)
    shape, labels = labels.shape, labels.reshape(-1)
    weights = None if sample_weight is None else sample_weight.reshape(-1)
    # Chunks with products into buffers are opaque to a compiler, and to the transforms of torch.func.
    if not can.is_eager():
        value = loss.forward(F.linear(hidden.reshape(-1, hidden.shape[-1]), weight, bias), labels, weights)
        return value.reshape(shape) if reduction == "none" else value
    device = hidden.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):  # "meta" has none
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    flat = hidden.reshape(-1, hidden.shape[-1])
    # Weights, ignore_index and the reduction want logits, but only for their shape.
    like_logits = weight.detach()[:1, :1].expand(len(flat), len(weight))
    _, labels, row_weight, *_ = rows = weigh_rows(loss, to_rows(loss, like_logits, labels, weights))
    if not isinstance(row_weight, Tensor):
        row_weight = flat.new_full((len(flat),), row_weight, dtype=compute_dtype(flat))
    limit = chunk_rows or rows_of_a_chunk(len(flat), weight)
    job = LinearJob(loss, limit, accumulate_fp32, per_row=reduction == "none", may_be_dead=k is not None)
    value = rows.reduce(linear_phi_rows(flat, weight, bias, labels, row_weight, job))
    return value.reshape(shape) if reduction == "none" else value


def _check_input(
    hidden: Tensor, weight: Tensor, labels: Tensor, sample_weight: Tensor | None, chunk_rows: int | None
) -> None:
    for name, value in (("hidden", hidden), ("weight", weight), ("labels", labels)):
        check_tensor(name, value)
    if hidden.shape[-1] != weight.shape[-1] or weight.ndim != 2:
        raise ValueError(
            f"weight must have shape (C, H) with hidden's H = {hidden.shape[-1]}; got {tuple(weight.shape)}."
        )
    if labels.shape != hidden.shape[:-1]:
        raise ValueError(
            f"labels must have hidden's shape without its last dimension, {tuple(hidden.shape[:-1])}; "
            f"got {tuple(labels.shape)}."
        )
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, or None to have it chosen; got {chunk_rows!r}.")
    if sample_weight is not None and sample_weight.requires_grad:
        raise ValueError("sample_weight must not require a gradient. Call sample_weight.detach().")


class LinearLqLoss(NoTorchScript):
    """`linear_lq_loss` as a module: ``loss(hidden, head.weight, labels, bias=head.bias)``.

    Its arguments are those of `linear_lq_loss`. The layer's weight stays where it is: tied to an embedding,
    or sharded and gathered by the caller.

    >>> from tolerant.losses import LqLoss
    >>> head = torch.nn.Linear(8, 100)
    >>> hidden, labels = torch.randn(4, 8), torch.arange(4)
    >>> value = LinearLqLoss(q=0.7)(hidden, head.weight, labels, bias=head.bias)
    >>> bool(torch.isclose(value, LqLoss(q=0.7)(head(hidden), labels)))
    True
    """

    def __init__(
        self,
        *,
        q: float = 0.7,
        k: float | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        chunk_rows: int | None = None,
        accumulate_fp32: bool | None = None,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        lq_or_truncated(q, k)  # refused here, not at the first call
        self.q, self.k = q, k
        self.ignore_index, self.reduction = ignore_index, reduction
        self.chunk_rows, self.accumulate_fp32 = chunk_rows, accumulate_fp32

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        bias: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        return linear_lq_loss(
            hidden, weight, labels, bias=bias, sample_weight=sample_weight, **self._options()
        )

    def _options(self) -> dict[str, Any]:
        names = ("q", "k", "ignore_index", "reduction", "chunk_rows", "accumulate_fp32")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._options().items())
