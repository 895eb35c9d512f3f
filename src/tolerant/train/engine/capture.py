"""One training step, and an epoch of them: replayed as a CUDA graph, or called one by one.

On a GPU the whole step (gather the batch by row number, augment, forward, loss, backward, update) is
one captured graph. What changes between steps lives on the device: the epoch's order of rows, a
position in it that the step itself moves on, flips and shifts by row, the learning rate. An epoch is
then one upload and a ``graph.replay()`` per batch, with nothing read back before it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tolerant.train.engine.device_rows import Rows
from tolerant.train.engine.mixup import blend, blend_labels
from tolerant.train.engine.recipe import Recipe
from tolerant.train.engine.weights import Weights
from tolerant.train.model_state import clone, copy_into, seeded
from tolerant.train.networks.network_committee import NetworkCommittee
from tolerant.train.networks.overlap import Overlap

_WARM_UP = 3  # steps before a capture: algorithms chosen, kernels compiled, workspaces allocated


class Stepper:
    """Trains on the rows of one epoch after another.

    The last, short batch of an epoch trains on exactly its rows (batch norm sees no others), without
    a graph: pruning changes its size every few epochs, and one plain step per epoch costs less than a
    capture for every size. A last batch of one row joins the batch before it, since batch norm needs
    two rows.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        rows: Rows,
        recipe: Recipe,
        *,
        num_classes: int,
        bf16: bool,
        weighted: bool,
        foreign: bool,
        graph: bool | None,
    ) -> None:
        self.device = rows.device
        self.model, self.loss, self.rows, self.recipe = model, loss, rows, recipe
        self.weights = Weights(model, recipe, bf16=bf16)
        self.bf16 = bf16
        self.batch_size = recipe.batch_size
        self.labels = rows.labels
        """int64 [N], or float32 (N, C) probabilities: what rows are trained under."""
        self.num_classes = num_classes
        self.networks = len(model) if isinstance(model, NetworkCommittee) else 1
        self.order = torch.arange(len(rows), device=rows.index_device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        # With weights the loss has one value per row, and rows of weight 0 count in the mean over a batch.
        self.sample_weight: Tensor | None = None
        if weighted:
            self.sample_weight = torch.ones(len(rows), dtype=torch.float32, device=self.device)
        self._offsets = torch.arange(self.batch_size, device=self.device)
        self._net: Callable[[Tensor], Any] = torch.compile(model, dynamic=False) if recipe.compile else model
        self._graph: torch.cuda.CUDAGraph | None = None
        self.ranks = rows.ranks
        norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
        self._ranks_of_last = self.ranks.size if norms else 1
        self._use_graph = self.ranks.size == 1 and (rows.resident if graph is None else graph)
        self._random = _Random(model, self.device, foreign)
        self._reader: Iterator[Tensor] = iter(())
        self._seed = self.num_full = self.num_last = self.steps_done = 0
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device, priority=-1) if on_gpu else None
        self._overlap: Callable[[], AbstractContextManager[None]] = nullcontext
        if on_gpu and self.ranks.size == 1:
            self._overlap = Overlap(self.device).step

    def begin(self, epoch_order: Tensor, draws: dict[str, Tensor], lr: float, seed: int) -> None:
        """Take in an epoch: its order of row numbers (pruned ones left out) and its random draws."""
        self.num_full, self.num_last = split_batches(len(epoch_order), self.batch_size, self._ranks_of_last)
        self.order[: len(epoch_order)].copy_(_pinned(epoch_order, self.device), non_blocking=True)
        for name, draw in draws.items():
            self.rows.draws[name].copy_(_pinned(draw, self.device), non_blocking=True)
        self.weights.lr.fill_(lr)
        self.position.zero_()
        self.loss_sum.zero_()
        self._seed, self.steps_done = seed, 0
        self._read_ahead()

    @property
    def num_steps(self) -> int:
        return self.num_full + (self.num_last > 0)

    def skip(self, steps: int, loss_sum: float) -> None:
        """Go on where a run stopped after ``steps`` steps of this epoch."""
        self.position.fill_(steps * self.batch_size)
        self.loss_sum.fill_(0.0 if self.ranks.rank else loss_sum)  # `end` adds up those of all ranks
        self.steps_done = steps
        self._read_ahead()

    def _read_ahead(self) -> None:
        if not self.rows.resident:
            full = self.order[self.steps_done * self.batch_size : self.num_full * self.batch_size]
            self._reader = self.rows.read_ahead(*self.ranks.share_batches(full, self.batch_size))

    def step(self) -> None:
        """Train on the epoch's next batch; does not wait for the device."""
        start = self.steps_done * self.batch_size
        with self._random.seeded(self._seed + self.steps_done):
            if self.steps_done == self.num_full:
                self._train_on(self.order[start : start + self.num_last], self.model)
            elif self._use_graph and self.device.type == "cuda":
                if self._graph is None:
                    self._capture()
                self._graph.replay()  # type: ignore[union-attr]
            else:
                read = None if self.rows.resident else next(self._reader)
                self._train_on(self.order[start : start + self.batch_size], self._net, read)
        self.steps_done += 1

    def _train_on(self, index: Tensor, net: Callable[[Tensor], Any], read: Tensor | None = None) -> None:
        self.weights.zero_grad()
        whole, index = len(index), self.ranks.share(index)
        inputs = self.rows.batch(index, read)
        share = self.rows.draws["share"][index].to(self.device) if self.recipe.mixup else None
        index = index.to(self.device)
        labels = self.labels.index_select(0, index)
        weight = None if self.sample_weight is None else self.sample_weight[index]
        if share is not None:
            inputs = blend(inputs, share)
            labels, weight = blend_labels(labels, weight, share, self.num_classes)
        if self.networks > 1:  # each one's logits of all rows, one after the other
            labels = labels.repeat(self.networks, *[1] * (labels.ndim - 1))
            weight = None if weight is None else weight.repeat(self.networks)
        with self._overlap():
            if self.bf16:
                with autocast(self.device, True):
                    logits = net(inputs)
            else:
                logits = net(inputs)
            # fp32: a loss from outside may not upcast, and bf16 holds no p_y between 0.996 and 1.
            loss = self.loss(as_logits(logits), labels)
            if weight is not None:
                loss = (loss * weight).mean()
            if self.ranks.size > 1:
                loss = loss * self.ranks.fraction(whole)
            loss.backward()
        if self.ranks.size > 1:
            self.ranks.sum_gradients(self.model)
        self.weights.step()
        self.loss_sum += loss.detach() * whole

    def end(self) -> None:
        """The epoch is over: combine what each rank has of its own."""
        self.ranks.total_([self.loss_sum])
        self.ranks.average_statistics(self.weights.statistics())

    def _advance(self) -> None:
        self._train_on(self.order.index_select(0, self.position + self._offsets), self._net)
        self.position += self.batch_size

    def _capture(self) -> None:
        """Record `_advance` once; the state after is the state before."""
        state = self.weights.state() | {"position": self.position, "loss_sum": self.loss_sum}
        before = clone(state)
        with _cudnn_benchmark():
            for _ in range(_WARM_UP):
                self.position.zero_()
                self._advance()
            graph = torch.cuda.CUDAGraph()
            try:
                # thread_local: another run's or a library's thread may allocate while this one records.
                with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                    self._advance()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise RuntimeError(
                    "the training step cannot be recorded as a CUDA graph; the usual reason is a model or "
                    "loss that waits for the device (.item(), .cpu(), an if on a tensor). Use graph=False."
                ) from error
        copy_into(state, before)
        self.weights.cast_down()
        self.weights.zero_grad()  # the graph's gradients live in its own pool
        self._graph = graph


def split_batches(num_rows: int, size: int, ranks: int = 1) -> tuple[int, int]:
    """How many full batches, and the size of the last one (0: none).

    A last batch of fewer than two rows for each of ``ranks`` joins the one before it: batch norm, which
    every rank takes over its own rows, needs two.

    >>> split_batches(300, 128), split_batches(256, 128), split_batches(257, 128)
    ((2, 44), (2, 0), (1, 129))
    """
    full, last = divmod(num_rows, size)
    return (full - 1, size + last) if 0 < last < 2 * ranks and full else (full, last)


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """bf16 for what is not bf16 already; without a cache, which would outlive a captured step."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def as_logits(output: Any) -> Tensor:
    """What a model returned, in fp32."""
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the model must return a tensor of logits (rows, classes); got {type(output).__name__}. Wrap it "
            "in a module that returns the logits alone."
        )
    return output.float()


def _pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """In pinned memory, from which a GPU copies while the host goes on."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


class _Random:
    """Dropout's random numbers, from one seed for each step: the same after a stop, or beside other runs."""

    def __init__(self, model: nn.Module, device: torch.device, foreign: bool) -> None:
        """``foreign``: model or loss are the caller's own modules, which may draw numbers unseen."""
        drops = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        used = any(module.p > 0 for module in drops)
        self.own = torch.Generator(device) if used and device.type == "cuda" else None
        self.on_cpu = device.type == "cpu" and (used or foreign)
        self.device = device

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        if self.own is None:
            with seeded(seed) if self.on_cpu else nullcontext():
                yield
            return
        # A graph registers the default generator's state, so that state is this run's own.
        default = torch.cuda.default_generators[self.device.index or 0]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.own)
        self.own.manual_seed(seed)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN time its algorithms for the one batch size that is captured."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
