"""The loop: one run from start to end, and in `Run._epoch` one epoch from its first line to its last.

A run is a generator that hands control back after every step. Nothing here waits for the device: where a
number is needed on the host, the run yields until it has arrived, and another run on the same device can be
served meanwhile (`tolerant.train.engine.fleet`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from tolerant.train.engine.check_job import check_job
from tolerant.train.engine.checkpoint import Checkpoints
from tolerant.train.engine.device import Arriving, Clock, keep_freed_memory, use_bf16
from tolerant.train.engine.evaluate import probabilities, score
from tolerant.train.engine.job import Job, Record
from tolerant.train.engine.measure import measure
from tolerant.train.engine.prepare import Splits, load_splits, make_alternation, make_stepper, make_teacher
from tolerant.train.engine.ranks import current_ranks
from tolerant.train.engine.result import TrainResult, make_result
from tolerant.train.engine.resume import resume, save
from tolerant.train.rounds.relabel import Teacher


class Run:
    """A job on a device. ``for busy in run.go(): ...`` trains it; ``run.result`` is its result."""

    def __init__(
        self, job: Job, device: torch.device, *, graph: bool | None = None, splits: Splits | None = None
    ) -> None:
        """``splits``: the rows of the same data, if a run before this one has them."""
        self.job, self.recipe, self.device = job, job.recipe, device
        self.train_index, self.validation_index = job.split()
        check_job(job, self.train_index)
        loss = job.build_loss()
        self.checkpoints = None
        if job.checkpoint is not None:
            self.checkpoints = Checkpoints(job.checkpoint, job.identity(loss), lock=not current_ranks().rank)
        try:
            if device.type == "cpu":
                keep_freed_memory()
            bf16 = use_bf16(self.recipe.precision, device)
            self.loss = loss.to(device)
            if splits is None:
                splits = load_splits(job, self.train_index, self.validation_index, device, bf16=bf16)
            self.splits = splits
            self.rows = self.splits.train
            self.rows.make_draws(job.recipe)
            self.stepper = make_stepper(job, self.rows, self.loss, bf16=bf16, graph=graph)
            self.weights = self.stepper.weights
            self.alternation = make_alternation(job, self.splits)
            self.teacher = make_teacher(job, self.splits, self.train_index)
            if self.teacher is not None:
                self.stepper.labels = self.teacher.targets
            if job.before is not None and job.before.weights is not None and not job.fresh:
                self.weights.load(job.before.weights)
            self.pruned_at = np.full(len(self.rows), -1)
            self.epoch = self.step = 0
            self.loss_sum = self.time_s = 0.0
            self.history: list[Record] = []
            resume(self)
        except BaseException:
            self.close()
            raise
        self.callbacks = () if self.rows.ranks.rank else job.callbacks
        self.stop_requested = False
        self.result: TrainResult | None = None
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # made on the default stream, used on the run's own

    def close(self) -> None:
        """Leave the checkpoint folder to others."""
        if self.checkpoints is not None:
            self.checkpoints.close()

    def go(self) -> Iterator[bool]:
        """Train to the end; yields True after giving the device work, False while waiting for it."""
        try:
            for callback in self.callbacks:
                callback.on_start(self.job, self.history[-1] if self.history else None)
            while self.epoch < self.recipe.epochs:
                yield from self._epoch()
        finally:
            self.close()
        self.result = make_result(self)
        for callback in self.callbacks:
            callback.on_end(self.job, self.result)

    def _epoch(self) -> Iterator[bool]:
        """One epoch: score, prune and relabel, order, step, measure, choose, save."""
        if self.stop_requested:  # before deciding: what is saved without a step decides when it is resumed
            self._stop()
        clock, stepper = Clock(self.device), self.stepper
        if self.step == 0:  # resumed in its middle, it has been decided
            if self.alternation.due(self.epoch):
                yield from self._prune()
            if self.teacher is not None and self.teacher.due(self.epoch):
                yield from self._relabel(self.teacher)

        order, draws, seed = self.draw_epoch()
        self._weigh_rows()
        stepper.begin(order, draws, self.lr_at(0), seed)
        if self.step:
            stepper.skip(self.step, self.loss_sum)

        clock.mark()
        while stepper.steps_done < stepper.num_steps:
            if self.recipe.lr_moves:
                self.weights.lr.fill_(self.lr_at(stepper.steps_done))
            stepper.step()
            yield True
            if self.stop_requested and stepper.steps_done < stepper.num_steps:
                self.step, self.loss_sum = stepper.steps_done, float(stepper.loss_sum)
                self._stop()
        stepper.end()
        clock.mark()

        record = yield from measure(self, clock, num_trained=len(order))
        if self.splits.validation is not None:
            accuracy, loss = record["validation_accuracy"], record["validation_loss"]
            self.alternation.observe(self.epoch, accuracy, self.weights.judging(), loss=loss)

        self.history.append(record)
        self.epoch, self.step = self.epoch + 1, 0
        if self.epoch % self.job.checkpoint_every == 0 or self.epoch == self.recipe.epochs:
            save(self)
        for callback in self.callbacks:
            callback.on_epoch_end(self.job, record)

    def _prune(self) -> Iterator[bool]:
        """The best model so far (without validation rows: the current one) decides which rows train."""
        with self.weights.replaced_by(self.alternation.best_weights):
            p_y = score(self.stepper.model, self.rows, bf16=self.stepper.bf16).log_p_y.exp()
        arrived = yield from Arriving(p_y).wait()
        index = self.rows.ranks.share(np.arange(len(self.rows)))
        self.alternation.decide(index, arrived[index])
        self._note_pruned()

    def _relabel(self, teacher: Teacher) -> Iterator[bool]:
        """The model so far, in the first epochs that of the round before, says what each row trains under."""
        if self.job.before is not None and self.epoch < max(1, teacher.relabel.start_epoch):
            teacher.decide(self.job.before.probs.to(self.device))
        else:
            with self.weights.judged():
                teacher.decide(self.probabilities())
        yield True
        yield from teacher.arrive()
        self._note_pruned()

    def _note_pruned(self) -> None:
        """Since which epoch each row is left out."""
        kept = self.kept.numpy()
        self.pruned_at[kept] = -1
        self.pruned_at[~kept & (self.pruned_at < 0)] = self.epoch

    def probabilities(self) -> Tensor:
        """float32 (N, C): what the model, as it is now, says of the training rows."""
        return probabilities(self.stepper.model, self.rows, bf16=self.stepper.bf16)

    @property
    def kept(self) -> Tensor:
        """bool [N], on the host: the rows that train."""
        if self.teacher is not None:
            return self.teacher.kept
        if self.alternation.pruner is not None:
            return self.alternation.kept
        return torch.ones(len(self.rows), dtype=torch.bool)

    def draw_epoch(self) -> tuple[Tensor, dict[str, Tensor], int]:
        """The epoch's order, draws and seed of its steps, from the recipe's seed and the epoch alone.

        All rows are ordered and drawn for, then the pruned ones left out: neither the order nor the
        augmentation of the others changes.
        """
        state = np.random.SeedSequence(self.job.seed_of(self.epoch)).generate_state(2)
        generator = torch.Generator().manual_seed(int(state[0]))
        order = torch.randperm(len(self.rows), generator=generator, device="cpu")
        draws = self.rows.draw(self.recipe, generator)
        if self.recipe.prune_by == "filter":
            order = order[self.kept[order]]
        return order, draws, int(state[1])

    def lr_at(self, step: int) -> float:
        """The learning rate of a step of this epoch."""
        before = sum(record.get("steps", 0) for record in self.history)
        return self.recipe.lr_at(self.epoch, step / max(self.stepper.num_steps, 1), before + step)

    def _weigh_rows(self) -> None:
        """How much each row counts in this epoch: its sample weight, or 0 where it is pruned by weight."""
        if self.stepper.sample_weight is None:
            return
        own = self.rows.sample_weight
        weight = torch.ones_like(self.stepper.sample_weight) if own is None else own
        if self.recipe.prune_by == "weight":
            weight = weight * self.kept.to(self.device)
        self.stepper.sample_weight.copy_(weight)

    def _stop(self) -> None:
        """Asked to end, before an epoch or within it."""
        if self.rows.ranks.size == 1:  # with more, the others may be at another step
            save(self)
        raise KeyboardInterrupt
