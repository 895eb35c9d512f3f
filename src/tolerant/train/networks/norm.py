"""Batch norm in one pass with what follows it, where possible: the shortcut and ReLU, or the pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tolerant.kernels import batch_norm as kernels
from tolerant.kernels import can


class BatchNorm(nn.BatchNorm2d):
    """``relu(batch_norm(x) + residual)``; the weights and statistics are torch's, by the same names.

    On a GPU, on channels-last tensors, training and scoring without gradients run in Triton kernels with
    sums in fp32; all else in torch's own operations.

    >>> norm = BatchNorm(3)
    >>> bool((norm(torch.randn(2, 3, 4, 4)) >= 0).all())
    True
    """

    _tickets: Tensor | None = None

    def __init__(self, width: int, *, relu: bool = True) -> None:
        super().__init__(width)
        self.relu = relu

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.training and self.momentum is not None and can.run_norm(x, residual):
            return kernels.norm_relu(x, residual, self, self.relu, self.tickets())
        if not torch.is_grad_enabled() and can.run_norm(x, residual):
            assert self.running_mean is not None
            assert self.running_var is not None
            stats = torch.stack([self.running_mean, (self.running_var + self.eps).rsqrt()])
            return kernels.apply_stats(x, residual, stats, self, self.relu)
        out: Tensor = super().forward(x)
        if residual is not None:
            out = out + residual
        return F.relu_(out) if self.relu else out

    def tickets(self) -> Tensor:
        """Counters of the kernels' finished programs: 0 before and after every launch."""
        device = self.weight.device
        if self._tickets is not None and self._tickets.device == device:
            return self._tickets
        zeros = torch.zeros(self.num_features, dtype=torch.int32, device=device)
        # While a CUDA graph is captured nothing runs: what is made then is filled by each replay, and by
        # nothing else. So those zeros are not kept for other launches.
        if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            self._tickets = zeros
        return zeros


class NormPool(nn.BatchNorm2d):
    """``relu(max_pool2d(batch_norm(x), 2))``; the weights and statistics are torch's, by the same names.

    >>> NormPool(3)(torch.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 2, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.momentum is not None and can.run_norm_pool(x):
            return kernels.norm_pool(x, self, self.momentum)
        return F.relu_(F.max_pool2d(super().forward(x), 2))
