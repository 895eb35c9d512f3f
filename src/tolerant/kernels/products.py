"""Matrix products of 16-bit numbers with a sum, or a result, in fp32."""

from __future__ import annotations

import torch
from torch import Tensor

# Where a device gives no fp32 from 16-bit inputs, they are widened a block of columns at a time, or the whole
# layer would be there a second time, twice as large.
BLOCK_BYTES = 32 << 20


def multiply(a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> None:
    """out = a b, or out += a b; out may be wider than a and b, and is then rounded as it is wide."""
    if out.dtype == a.dtype:
        torch.addmm(out, a, b, beta=int(add), out=out)
    elif a.is_cuda and torch.version.hip is None and hasattr(torch.ops.aten.addmm, "dtype_out"):
        # (torch 2.8 and 2.9 have it on ROCm, where it only refuses)
        torch.ops.aten.addmm.dtype_out(out, a, b, out.dtype, beta=int(add), out=out)
    else:
        wide = a.to(out.dtype)
        step = max(1, BLOCK_BYTES // (len(b) * out.element_size()))
        for start in range(0, b.shape[1], step):
            columns = slice(start, start + step)
            torch.addmm(
                out[:, columns],
                wide,
                b[:, columns].to(out.dtype),
                beta=int(add),
                out=out[:, columns],
            )


class LayerGrad:
    """The sum over chunks of gradient^T hidden."""

    def __init__(self, weight: Tensor, accumulate_fp32: bool) -> None:
        self.dtype = weight.dtype
        wide = accumulate_fp32 and weight.dtype in (torch.bfloat16, torch.float16)
        self.total = weight.new_empty(weight.shape, dtype=torch.float32 if wide else weight.dtype)
        self.started = False

    def add(self, grad: Tensor, hidden: Tensor) -> None:
        """total += grad^T hidden; the first product is written, not added to a sum of zeros."""
        multiply(grad.t(), hidden, self.total, add=self.started)
        self.started = True

    def result(self) -> Tensor:
        return self.total.to(self.dtype) if self.started else self.total.zero_().to(self.dtype)
