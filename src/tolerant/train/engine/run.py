"""One run from start to end, as a generator that hands control back after every step.

Nothing here waits for the device: where a number is needed on the host, the run yields until it has
arrived, and another run on the same device can be served meanwhile (`tolerant.train.engine.fleet`).
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.dataset import NoisyDataset
from tolerant.losses.module import RobustLoss
from tolerant.train.engine.capture import Stepper
from tolerant.train.engine.checkpoint import Checkpoints
from tolerant.train.engine.device import Arriving, Clock, keep_freed_memory, use_bf16
from tolerant.train.engine.device_rows import Preprocess, Rows, draw_epoch
from tolerant.train.engine.evaluate import score
from tolerant.train.engine.job import Job, Record, TrainResult
from tolerant.train.engine.measure import measure, pruning_record, refuse_divergence
from tolerant.train.engine.optim import clone, copy_into
from tolerant.train.engine.ranks import current
from tolerant.train.rounds.pruner import Pruner


class Run:
    """A job on a device. ``for busy in run.go(): ...`` trains it; ``run.result`` is its result.

    **Pruning** (algorithm 1 of the paper). Before an epoch that the schedule names, "the model at the
    optimal epoch based on maximum validation accuracy" scores every training row. Read here as: of all
    epochs so far, the one of the highest accuracy on the noisy validation rows (the first of equals; of
    epochs no better than naming the most frequent label, the one of the lowest loss on these rows), with
    its weights and batch-norm statistics as they were at its end. That model only decides which rows are
    kept: training goes on from the current weights, since the paper trains 120 epochs in one go, its
    learning rate falling at 40 and 80, and starts none of them again. Without validation rows the current
    model scores. A round that would prune more than ``job.prune_at_most`` of the rows is left
    out, and all stay as they were; so do the rows of a class of which it would prune more than
    ``job.prune_class_at_most``.
    """

    def __init__(self, job: Job, device: torch.device, *, graph: bool | None = None) -> None:
        self.job, self.recipe, self.device = job, job.recipe, device
        self.train_index, self.validation_index = job.split()
        job.check(self.train_index)
        loss = job.build_loss()
        self._checkpoints = None
        if job.checkpoint is not None:
            self._checkpoints = Checkpoints(job.checkpoint, job.identity(loss), lock=not current().rank)
        try:
            self._prepare(loss, graph)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the checkpoint folder to others."""
        if self._checkpoints is not None:
            self._checkpoints.close()

    def _prepare(self, loss: nn.Module, graph: bool | None) -> None:
        job, device = self.job, self.device
        if device.type == "cpu":
            keep_freed_memory()
        self.bf16 = use_bf16(self.recipe.precision, device)
        self.loss = loss.to(device)
        self._load_rows()
        self._prune_by_weight = job.prune is not None and self.recipe.prune_by == "weight"
        weighted = self._prune_by_weight or self.rows.weight is not None
        self.stepper = Stepper(
            _on_device(job.build_model(), device),
            _per_row(self.loss, self.rows.labels) if weighted else self.loss,
            self.rows,
            self.recipe,
            bf16=self.bf16,
            weighted=weighted,
            foreign=isinstance(job.model, nn.Module) or isinstance(job.loss, nn.Module),
            graph=graph,
        )
        self.weights = self.stepper.weights
        self._callbacks = () if self.rows.ranks.rank else job.callbacks
        self.pruner: Pruner | None = None
        if job.prune is not None:
            names = job.dataset.class_names
            self.pruner = Pruner(len(self.rows), self._given, k=job.prune.k, class_names=names)
        self.pruned_at = np.full(len(self.rows), -1)
        self.epoch = self.step = self.best_epoch = 0
        self.history: list[Record] = []
        self.best: dict[str, Tensor] | None = None
        self.stop_requested = False
        self.result: TrainResult | None = None
        self._loss_sum = self._time_s = 0.0
        self._resume()
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # made on the default stream, used on the run's own

    def _load_rows(self) -> None:
        job, train_set, held_out = self.job, self.job.dataset, self.job.validation
        if len(self.validation_index):
            train_set = job.dataset.subset(self.train_index)
            held_out = job.dataset.subset(self.validation_index)
        self.preprocess = Preprocess.fit(train_set.inputs, train_set.kind, self.recipe)
        self._given = train_set.given_labels
        true = train_set.true_labels
        self._wrong = None if true is None else self._given != true

        def rows(dataset: NoisyDataset, labels: np.ndarray, index: np.ndarray | None = None) -> Rows:
            weighted = index is not None and job.sample_weight is not None
            weight = np.asarray(job.sample_weight)[index] if weighted else None
            return Rows(dataset, labels, self.preprocess, self.device, bf16=self.bf16, weight=weight)

        self.rows = rows(train_set, self._given, self.train_index)
        self.rows.make_draws(self.recipe)
        own = None if job.validation is not None else self.validation_index
        self.validation = None if held_out is None else rows(held_out, held_out.given_labels, own)
        self._constant_accuracy = 0.0 if self.validation is None else _constant_accuracy(self.validation)
        self.test = None
        if job.test is not None:
            clean = job.test.true_labels
            self.test = rows(job.test, job.test.given_labels if clean is None else clean)

    def go(self) -> Iterator[bool]:
        """Train to the end; yields True after giving the device work, False while waiting for it."""
        try:
            yield from self._epochs()
        finally:
            self.close()
        self.result = self._finish()
        for callback in self._callbacks:
            callback.on_end(self.job, self.result)

    def _epochs(self) -> Iterator[bool]:
        last = self.history[-1] if self.history else None
        for callback in self._callbacks:
            callback.on_start(self.job, last)
        while self.epoch < self.recipe.epochs:
            clock = Clock(self.device)
            schedule = self.job.prune
            if self.step == 0 and schedule is not None and schedule.due(self.epoch):
                yield from self._prune()
            num_trained = yield from self._train_epoch(clock)
            record = yield from self._record_epoch(clock, num_trained)
            self._keep_best(record)
            self.history.append(record)
            self.epoch, self.step = self.epoch + 1, 0
            if self.epoch % self.job.checkpoint_every == 0 or self.epoch == self.recipe.epochs:
                self._save()
            for callback in self._callbacks:
                callback.on_epoch_end(self.job, record)

    def _train_epoch(self, clock: Clock) -> Generator[bool, None, int]:
        stepper = self.stepper
        order, draws, seed = self._draw_epoch()
        self._weigh_rows()
        stepper.begin(order, draws, self.recipe.lr_at(self.epoch), seed)
        if self.step:
            stepper.skip(self.step, self._loss_sum)
        clock.mark()
        while stepper.steps_done < stepper.num_steps:
            if self.stop_requested:
                if stepper.ranks.size == 1:  # with more, the others may be at another step
                    self.step, self._loss_sum = stepper.steps_done, float(stepper.loss_sum)
                    self._save()
                raise KeyboardInterrupt
            stepper.step()
            yield True
        stepper.end()
        clock.mark()
        return len(order)

    def _draw_epoch(self) -> tuple[Tensor, dict[str, Tensor], int]:
        """The epoch's order, draws and seed of its steps, from the recipe's seed and the epoch alone.

        All rows are ordered and drawn for, then the pruned ones left out: neither the order nor the
        augmentation of the others changes.
        """
        state = np.random.SeedSequence([self.recipe.seed, self.epoch]).generate_state(2)
        generator = torch.Generator().manual_seed(int(state[0]))
        order = torch.randperm(len(self.rows), generator=generator, device="cpu")
        draws = draw_epoch(len(self.rows), self.recipe, generator) if self.rows.draws else {}
        if self.pruner is not None and not self._prune_by_weight:
            order = order[self.pruner.kept[order]]
        return order, draws, int(state[1])

    def _weigh_rows(self) -> None:
        """How much each row counts in this epoch: its own weight, or 0 where it is pruned by weight."""
        if self.stepper.sample_weight is None:
            return
        weight = 1.0 if self.rows.weight is None else self.rows.weight
        if self.pruner is not None and self._prune_by_weight:
            weight = weight * self.pruner.weights.to(self.device)
        self.stepper.sample_weight.copy_(torch.as_tensor(weight))

    def _prune(self) -> Iterator[bool]:
        assert self.pruner is not None
        now = None
        if self.best is not None:
            now = clone(self.weights.tensors())
            self.weights.load(self.best)
        p_y = score(self.stepper.model, self.rows, bf16=self.bf16).log_p_y.exp()
        if now is not None:
            self.weights.load(now)
        arrived = yield from Arriving(p_y).wait()
        doubted = arrived.numpy() <= np.float32(self.pruner.k)
        if doubted.mean() > self.job.prune_at_most:
            return
        share = np.bincount(self._given, doubted) / np.maximum(np.bincount(self._given), 1)
        judged = np.flatnonzero(share[self._given] <= self.job.prune_class_at_most)
        index = self.rows.ranks.share(judged)
        self.pruner.update(index, arrived[index])
        kept = self.pruner.kept.numpy()
        self.pruned_at[kept] = -1
        self.pruned_at[~kept & (self.pruned_at < 0)] = self.epoch

    def _record_epoch(self, clock: Clock, num_trained: int) -> Generator[bool, None, Record]:
        every, lr = self.recipe.score_every, self.recipe.lr_at(self.epoch)
        numbers = yield from measure(
            self.stepper,
            self.loss,
            num_trained,
            validation=self.validation,
            test=self.test,
            wrong=self._wrong if every and (self.epoch + 1) % every == 0 else None,
        )
        saved = ""
        if self._checkpoints is not None and self._checkpoints.exists:
            saved = f"The last good checkpoint is in {self._checkpoints.folder}."
        refuse_divergence(numbers, self.epoch, lr, saved)
        del numbers["weight_norm"]
        if self.pruner is not None:
            numbers.update(pruning_record(self.pruner, self._wrong))
        images = num_trained - self.step * self.recipe.batch_size
        self._time_s += clock.total_s()
        return {
            "epoch": self.epoch,
            "lr": lr,
            **numbers,
            "images_per_s": round(images / max(clock.marked_s(), 1e-9), 1),
            "time_s": round(self._time_s, 3),
        }

    def _keep_best(self, record: Record) -> None:
        accuracy = record.get("validation_accuracy")
        if accuracy is None:
            return
        if self.best is None:
            self.best, self.best_epoch = clone(self.weights.tensors()), record["epoch"]
        elif self._is_better(record, self.history[self.best_epoch]):
            copy_into(self.best, self.weights.tensors())
            self.best_epoch = record["epoch"]

    def _is_better(self, record: Record, best: Record) -> bool:
        """By noisy-validation accuracy; where neither beats the most frequent label, by the loss.

        If one label in twenty is of the rare class, all epochs that never name it are equally accurate.
        The first of them, hardly trained, would prune that class and be the result.
        """
        accuracy, highest = record["validation_accuracy"], best["validation_accuracy"]
        if max(accuracy, highest) <= self._constant_accuracy:
            return bool(record["validation_loss"] < best["validation_loss"])
        return bool(accuracy > highest)

    def _save(self) -> None:
        if self._checkpoints is None or self.rows.ranks.rank > 0:
            return
        state = self.weights.state()
        record: Record = {
            "epoch": self.epoch,
            "step": self.step,
            "loss_sum": self._loss_sum if self.step else 0.0,
            "best_epoch": self.best_epoch,
            "time_s": self._time_s,
            "history": self.history,
        }
        if self.pruner is not None:
            pruner = self.pruner.state_dict()
            state["pruner/p_y"] = pruner.pop("p_y")
            state["pruner/pruned_at"] = torch.from_numpy(self.pruned_at)
            record["pruner"] = pruner
        self._checkpoints.save(record, state, self.best)

    def _resume(self) -> None:
        if self._checkpoints is None:
            return
        loaded = self._checkpoints.load()
        found = np.array([-1, -1] if loaded is None else [loaded[0]["epoch"], loaded[0]["step"]])
        if not np.array_equal(found, self.rows.ranks.of_rank_0(found)):
            raise ValueError(
                f"checkpoint must be a folder that all ranks see; {self._checkpoints.folder} holds another "
                "checkpoint here than on rank 0. Use a shared folder."
            )
        if loaded is None:
            return
        record, state, best = loaded
        self.weights.load_state(state)
        if best is not None:
            self.best = {name: tensor.to(self.device) for name, tensor in best.items()}
        if self.pruner is not None:
            self.pruner.load_state_dict({**record["pruner"], "p_y": state["pruner/p_y"]})
            self.pruned_at[:] = state["pruner/pruned_at"].numpy()
        self.epoch, self.step = record["epoch"], record["step"]
        self.best_epoch, self.history = record["best_epoch"], record["history"]
        self._loss_sum, self._time_s = record["loss_sum"], record["time_s"]

    def _finish(self) -> TrainResult:
        chosen = self.recipe.epochs - 1
        weights = self.weights.tensors()
        if self.recipe.select == "validation" and self.best is not None:
            chosen, weights = self.best_epoch, self.best
        model = self.job.build_model()
        copy_into({**dict(model.named_parameters()), **dict(model.named_buffers())}, weights)
        tests = [record.get("test_accuracy") for record in self.history]
        rows = len(self.rows)
        return TrainResult(
            model=model.eval(),
            preprocess=self.preprocess,
            recipe=self.recipe,
            history=self.history,
            epoch=chosen,
            validation_accuracy=self.history[chosen].get("validation_accuracy"),
            test_accuracy=tests[chosen],
            last_test_accuracy=tests[-1],
            oracle_test_accuracy=max((t for t in tests if t is not None), default=None),
            kept=np.ones(rows, bool) if self.pruner is None else self.pruner.kept.numpy().copy(),
            pruned_at=self.pruned_at.copy(),
            train_index=self.train_index,
            validation_index=self.validation_index,
            time_s=self._time_s,
        )


def _constant_accuracy(rows: Rows) -> float:
    """The accuracy of naming the class of most weight for all rows; a little more, for rounding."""
    weight = None if rows.weight is None else rows.weight.cpu().double()
    return float(torch.bincount(rows.labels.cpu(), weight).max()) / len(rows) + 1e-9


def _on_device(model: nn.Module, device: torch.device) -> nn.Module:
    layout: Any = {"memory_format": torch.channels_last}
    return model.to(device).to(**layout).train()


def _per_row(loss: nn.Module, labels: Tensor) -> nn.Module:
    """The loss with one value per row, to be weighed."""
    loss = copy.deepcopy(loss)
    reducing = [module for module in loss.modules() if hasattr(module, "reduction")]
    if not reducing:
        raise ValueError(
            "sample_weight and prune_by='weight' need a loss with a reduction; "
            f"{type(loss).__name__} has none. Leave sample_weight out, and use prune_by='filter'."
        )
    for module in reducing:
        module.reduction = "none"  # type: ignore[assignment]
        # A mean divides by the class weights of its rows. Here they have mean 1, as the rows' own weights:
        # otherwise they would change the learning rate.
        if isinstance(module, RobustLoss | nn.CrossEntropyLoss | nn.NLLLoss) and module.weight is not None:
            module.weight = module.weight / module.weight[labels].mean()
    return loss
