"""One run over several processes, started by ``torchrun``; each is a *rank* with its share of every batch.

    # torchrun --nproc-per-node 8 script.py
    with join_ranks():
        result = train(rows, model="resnet34", loss="lq", checkpoint="run")

All ranks draw the same order and cut each batch of ``batch_size`` rows between them; gradients are summed,
so a step is that of one process with the same batch. Rows to be scored are shared out and every score is
counted once. Rank 0 alone writes checkpoints, shows progress and tells callbacks; all ranks read the
checkpoint, so the folder must be one that all see. ``torchrun --max-restarts`` goes on from it.

Steps are not replayed as CUDA graphs. Apart from the order of additions, a run differs from that of one
process only in what sees the rows of one rank alone:

- batch norm (running statistics are averaged after each epoch, and a last batch of less than two rows a rank
  joins the one before it);
- dropout, which draws by rank, and mixup, which blends rows of one rank;
- a loss with class weights, which divides by the weights of its rank's rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from tolerant.train.engine.device import pick_device

Index = TypeVar("Index", Tensor, np.ndarray)


@dataclass(frozen=True)
class Ranks:
    """Which of how many ranks this process is."""

    rank: int = 0
    size: int = 1

    def share(self, index: Index) -> Index:
        """This rank's rows of a batch: every ``size``-th one, and at least one.

        Where a batch has fewer rows than there are ranks, some ranks get a row that is another's; `fraction`
        is 0 for them.
        """
        return index if self.size == 1 else index[min(self.rank, len(index) - 1) :: self.size]

    def fraction(self, whole: int) -> float:
        """How much of a batch of ``whole`` rows is this rank's."""
        return len(range(self.rank, whole, self.size)) / whole

    def share_batches(self, order: Tensor, size: int) -> tuple[Tensor, int]:
        """This rank's part of every batch of ``size`` in ``order``, and how many rows that is."""
        if self.size == 1:
            return order, size
        mine = order.reshape(-1, size)[:, self.rank :: self.size]
        return mine.flatten(), mine.shape[1]

    @torch.no_grad()
    def total_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over ranks; one exchange for all of a dtype."""
        if self.size == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            group = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in group])
            dist.all_reduce(flat)
            for tensor, piece in zip(group, flat.split([t.numel() for t in group]), strict=True):
                tensor.copy_(piece.view(tensor.shape))

    def sum_gradients(self, model: nn.Module) -> None:
        self.total_([p.grad for p in model.parameters() if p.grad is not None])

    def average_statistics(self, statistics: Iterable[Tensor]) -> None:
        """Running means and variances of batch norm, which each rank took over its own rows."""
        buffers = [b for b in statistics if b.is_floating_point()]
        self.total_(buffers)
        if self.size > 1:
            for buffer in buffers:
                buffer /= self.size

    def of_rank_0(self, values: np.ndarray) -> np.ndarray:
        """Rank 0's ``values`` on every rank: what all must agree on to the last bit."""
        if self.size == 1:
            return values
        raw = torch.from_numpy(np.ascontiguousarray(values).copy()).view(torch.uint8)
        raw = raw.to("cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.broadcast(raw, 0)
        return raw.cpu().numpy().view(values.dtype)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            dist.barrier()


_ALONE = Ranks()
_joined = _ALONE


def current_ranks() -> Ranks:
    """The ranks that a run made now is shared by."""
    return _joined


@contextmanager
def join_ranks(device: str | torch.device = "auto") -> Iterator[Ranks]:
    """Inside, ``train`` is one run over all ranks of ``torchrun``; outside of torchrun nothing changes.

    >>> with join_ranks() as ranks:
    ...     ranks
    Ranks(rank=0, size=1)
    """
    global _joined
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield _ALONE
        return
    on_gpu = pick_device(device).type == "cuda"
    if on_gpu:
        local = int(os.environ["LOCAL_RANK"])
        if local >= torch.cuda.device_count():
            raise ValueError(
                f"torchrun must start at most one rank per GPU; this is that of GPU {local} and there are "
                f"{torch.cuda.device_count()}. Lower --nproc-per-node, or use device='cpu'."
            )
        torch.cuda.set_device(local)
    store, rank, size = next(rendezvous("env://"))
    # torchrun may keep its store when it restarts: addresses of dead ranks would be read from it.
    store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=size)
    _joined = Ranks(rank, size)
    try:
        yield _joined
    finally:
        _joined = _ALONE
        dist.destroy_process_group()
