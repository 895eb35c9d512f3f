"""Noisy-validation selection and pruning inside Lightning.

The LightningModule changes its loss to one of ours; this callback does the rest::

    callback = PruneRows(PruneSchedule(start_epoch=40, every=10, k=0.5), monitor="val_acc")
    Trainer(max_epochs=120, callbacks=[callback]).fit(module, train_loader, validation_loader)

Validation rows carry given labels: noisy ones choose as well as clean ones, which nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from tolerant.adapters.alternating import IGNORED, Alternating
from tolerant.extras import extra
from tolerant.functional import log_p_y
from tolerant.train import MOSTLY_RIGHT, Alternation, Guards, Pruner, PruneSchedule

lightning = extra("lightning.pytorch", install="lightning")

Outputs = Callable[[Any, Any], tuple[Tensor, Tensor]]


def pair_outputs(module: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """(logits, given labels) of a batch that is a pair of inputs and labels."""
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise ValueError(
            f"batches must be pairs of inputs and labels; got {type(batch).__name__} of {len(batch)}. "
            "Pass outputs=lambda module, batch: (logits, given_labels) to PruneRows."
        )
    inputs, labels = batch
    return module(inputs), labels


class PruneRows(Alternating, lightning.Callback):  # type: ignore[name-defined]
    """Keeps the model of the best noisy-validation epoch, and lets it prune the training rows.

    Before an epoch the schedule names, the best model so far (without validation: the current one)
    scores every training row in eval mode; rows with p_y <= k leave the following epochs. Training goes
    on from the current weights. After ``fit`` the module holds the best epoch's weights. A model that doubts
    more than half of the rows is taken to be too weak to judge: its round is left out, with a warning.

    Rows are named by their position in the training loader's data set, which must be map-style, with
    ``shuffle`` on or off and no sampler of its own. The order of an epoch depends on ``seed`` and the
    epoch alone, so that a run resumed from the checkpoint of a finished epoch goes on as if never
    stopped (Lightning may warn of an unfinished epoch there: it takes all to be equally long). Under DDP
    every rank scores its share and all prune alike. Rows labelled -100 are not scored, and stay. After
    ``fit`` the loader gives all its rows again.

    Args:
        schedule: when to prune and at which k; None only selects the epoch.
        monitor: the logged metric of the noisy validation rows, averaged over ranks.
        mode: whether a higher ("max") or a lower ("min") value is better; the first of equals is kept.
        outputs: ``(module, batch) -> (logits, given_labels)``; by default for batches (inputs, labels).
        score_dataset: the training rows, in the same order, without augmentation; by default the
            training loader's own data set, augmented if that is.
        given_labels: int [N]; with it a class of which a round would prune more than three quarters stays
            as it was, and a class that pruning would empty keeps its best row.
        guards: how much a round may prune; None lets it prune all that p_y <= k says, as in the paper.
        restore_best: whether the module ends with the best epoch's weights, or the last one's.
    """

    def __init__(
        self,
        schedule: PruneSchedule | None = None,
        *,
        monitor: str = "val_acc",
        mode: Literal["max", "min"] = "max",
        outputs: Outputs = pair_outputs,
        score_dataset: Any = None,
        given_labels: Sequence[int] | np.ndarray | Tensor | None = None,
        guards: Guards | None = MOSTLY_RIGHT,
        restore_best: bool = True,
        seed: int = 0,
    ) -> None:
        self.schedule, self.monitor, self.mode, self.outputs = schedule, monitor, mode, outputs
        self.score_dataset, self.given_labels, self.guards = score_dataset, given_labels, guards
        self.restore_best, self.seed = restore_best, seed
        self.alternation = Alternation(mode=mode)  # with the schedule once the training rows are known
        self._loaded: Mapping[str, Any] | None = None  # of a checkpoint, for that one
        self._first = True  # the next epoch is the first of this fit
        self._replaced: list[tuple[Any, Any]] = []  # (batch sampler, its own sampler), to be given back

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        whole = (lightning.strategies.SingleDeviceStrategy, lightning.strategies.DDPStrategy)
        if not isinstance(trainer.strategy, whole):
            raise ValueError(
                "strategy must keep the whole model on every device (one device, or DDP); got "
                f"{type(trainer.strategy).__name__}, whose shards this callback cannot snapshot."
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loaded, self._loaded = self._loaded, None
        new = not trainer.global_step  # perhaps of another module: no best model yet
        if new or loaded is not None or self.alternation.schedule != self.schedule:
            num_rows = 0 if self.schedule is None else len(_loader(trainer).dataset)
            self.alternation = Alternation(
                self.schedule, num_rows, self.given_labels, guards=self.guards, mode=self.mode
            )
            if loaded is not None and not new:
                self.alternation.load_state_dict(loaded)
        if self.schedule is not None:
            self._first = True
            self._install(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self.schedule is None:
            return
        due = self.alternation.due(trainer.current_epoch)
        if due:  # not called a second time for an epoch that is resumed in its middle
            self._prune(trainer, pl_module)
        loader = _loader(trainer)
        if due or self._first or not isinstance(loader.batch_sampler.sampler, _KeptOrder):
            self._install(trainer)
        self._first = False
        share = self.pruner.num_kept / self.pruner.num_rows
        pl_module.log("kept_fraction", share, sync_dist=trainer.world_size > 1)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics)) or "none"
            raise ValueError(
                f"monitor must be a metric logged in validation; got {self.monitor!r}. Logged: {known}."
            )
        # A metric logged without sync_dist differs by rank, and ranks must not keep different epochs.
        own = trainer.callback_metrics[self.monitor].to(torch.float32, copy=True)
        value = float(trainer.strategy.reduce(own, reduce_op="mean"))
        self.alternation.observe(trainer.current_epoch, value, pl_module.state_dict())

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        # Not at the end of training, where ModelCheckpoint may still save the last weights.
        if self.restore_best and self.alternation.best_weights is not None:
            pl_module.load_state_dict(self.alternation.best_weights)
        self._give_back()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._give_back()

    def state_dict(self) -> dict[str, Any]:
        return self.alternation.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict

    @torch.no_grad()
    def _prune(self, trainer: Any, module: Any) -> None:
        loader = _loader(trainer)
        dataset = loader.dataset if self.score_dataset is None else self.score_dataset
        if len(dataset) != self.pruner.num_rows:
            raise ValueError(
                f"score_dataset must hold the {self.pruner.num_rows} training rows; got {len(dataset)}."
            )
        index = range(trainer.global_rank, len(dataset), trainer.world_size)
        rows = DataLoader(
            dataset,
            loader.batch_sampler.batch_size,
            sampler=index,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
        )
        scored = []
        with self.alternation.best_model(module):
            for batch in rows:
                # The three steps of Lightning's own loops: the dtype of "bf16-true", the module's hooks.
                batch = trainer.precision_plugin.convert_input(batch)
                batch = module._on_before_batch_transfer(batch)
                on_device = trainer.strategy.batch_to_device(batch)
                with trainer.precision_plugin.forward_context():
                    logits, labels = self.outputs(module, on_device)
                known = labels != IGNORED
                p_y = log_p_y(logits, torch.where(known, labels, 0)).exp().float()
                scored.append((p_y.cpu(), known.cpu()))
        self.decide(index, scored, epoch=trainer.current_epoch, speaks=trainer.is_global_zero)

    def _install(self, trainer: Any) -> None:
        """Give the training loader the kept rows, and Lightning the new number of batches."""
        batches = _loader(trainer).batch_sampler
        if not isinstance(batches.sampler, _KeptOrder):
            kept_order = _KeptOrder(self.pruner, batches.sampler, self.seed, trainer)
            self._replaced.append((batches, batches.sampler))
            batches.sampler = kept_order
        batches.sampler.set_epoch(trainer.current_epoch)
        loop = trainer.fit_loop
        iter(loop._data_fetcher)  # once more: Lightning began it before this callback had changed the rows
        loop.max_batches = loop._data_fetcher.length
        if not loop.max_batches:
            raise RuntimeError(
                f"{self.pruner.num_kept} kept rows fill no batch. Lower k, or use drop_last=False."
            )
        interval = trainer.val_check_interval
        if isinstance(interval, float):  # a share of the epoch, counted in batches
            trainer.val_check_batch = max(1, int(loop.max_batches * interval))
        elif isinstance(interval, int) and trainer.check_val_every_n_epoch is not None:
            # A pruned epoch may have fewer batches than that, and would never be validated.
            trainer.val_check_batch = min(interval, loop.max_batches)

    def _give_back(self) -> None:
        """The loader is the user's: a later training, or an evaluation, must find all rows in it."""
        for batches, sampler in self._replaced:
            batches.sampler = sampler
        self._replaced.clear()


class _KeptOrder(Sampler[int]):
    """This rank's kept rows, in an order drawn from the seed and the epoch."""

    def __init__(self, pruner: Pruner, replaced: Any, seed: int, trainer: Any) -> None:
        plain = isinstance(replaced, SequentialSampler | DistributedSampler) or (
            isinstance(replaced, RandomSampler)
            and not replaced.replacement
            and replaced.num_samples == pruner.num_rows
        )
        if not plain:
            raise ValueError(
                "the training loader must have shuffle=True or shuffle=False and no sampler of its own; "
                f"got {type(replaced).__name__}."
            )
        self._shuffle = isinstance(replaced, RandomSampler) or getattr(replaced, "shuffle", False)
        self._pruner, self._seed, self._epoch = pruner, seed, 0
        self._num_replicas, self._rank = trainer.world_size, trainer.global_rank

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return -(-self._pruner.num_kept // self._num_replicas)

    def __iter__(self) -> Iterator[int]:
        state = int(np.random.SeedSequence([self._seed, self._epoch]).generate_state(1)[0])
        order = None if self._shuffle else np.arange(self._pruner.num_rows)
        return iter(
            self._pruner.sampler(
                order,
                generator=torch.Generator().manual_seed(state),
                num_replicas=self._num_replicas,
                rank=self._rank,
            )
        )


def _loader(trainer: Any) -> Any:
    loader = trainer.train_dataloader
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        got = type(getattr(loader, "dataset", loader)).__name__
        raise ValueError(f"pruning needs one training DataLoader over a map-style data set; got {got}.")
    batches = loader.batch_sampler
    if not hasattr(batches, "sampler") or not hasattr(batches, "batch_size"):
        raise ValueError(
            "the training loader must have a batch_size, not a batch_sampler of its own. Pass batch_size and "
            "shuffle to the DataLoader."
        )
    return loader
