"""The Lightning callback: selection, pruning, resuming, two ranks; with the real library."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import lightning.pytorch as lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from train_helpers import table

from tolerant import LqLoss, PruneSchedule
from tolerant.adapters.lightning import PruneRows, pair_outputs

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory"),
    # It takes all epochs to have as many batches as the last one, which pruning makes untrue.
    pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended"),
]
ROWS, VALIDATION = 256, 64
SCHEDULE = PruneSchedule(start_epoch=2, every=2, k=0.4)


class Module(lightning.LightningModule):
    """A user's module: only the loss is ours."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        self.loss = LqLoss(q=0.7)
        self.trained: list[list[int]] = []

    def forward(self, x):
        return self.net(x[:, 1:])  # column 0 is the row's number, for the test to read

    def training_step(self, batch, batch_idx):
        x, y = batch
        if batch_idx == 0:
            self.trained.append([])
        self.trained[-1] += x[:, 0].long().tolist()
        return self.loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)


def tensors(num_rows: int, seed: int) -> TensorDataset:
    rows = table(num_rows, seed=seed)
    number = np.arange(num_rows, dtype=np.float32)[:, None]
    inputs = np.concatenate([number, rows.inputs, np.ones((num_rows, 1), np.float32)], 1)
    return TensorDataset(torch.from_numpy(inputs), torch.from_numpy(rows.given_labels))


def loaders(batch_size: int = 32) -> tuple[DataLoader, DataLoader]:
    train, held_out = tensors(ROWS, 0), tensors(VALIDATION, 1)
    return DataLoader(train, batch_size, shuffle=True), DataLoader(held_out, 32)


def trainer(max_epochs: int, *callbacks: Callback, **options) -> lightning.Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks)}
    options = {"accelerator": "cpu", "devices": 1} | quiet | options
    return lightning.Trainer(max_epochs=max_epochs, callbacks=list(callbacks), **options)


class Watch(Callback):
    """What happened, epoch by epoch."""

    def __init__(self) -> None:
        self.validated: list[int] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.kept: list[list[bool]] = []
        self.best: list[int] = []

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.validated.append(trainer.current_epoch)

    def on_train_epoch_end(self, trainer, pl_module):
        self.weights.append({n: t.clone() for n, t in pl_module.state_dict().items()})
        prune = next(c for c in trainer.callbacks if isinstance(c, PruneRows))
        self.kept.append(prune.kept.tolist())
        self.best.append(prune.best_epoch)


def test_prunes_with_the_best_model_and_ends_with_it():
    module, prune, watch = Module(), PruneRows(SCHEDULE), Watch()
    fit = trainer(5, prune, watch)
    fit.fit(module, *loaders())
    assert watch.validated == [0, 1, 2, 3, 4]  # in epochs of fewer batches too
    for epoch, rows in enumerate(module.trained):
        kept = np.flatnonzero(watch.kept[epoch])
        assert sorted(rows) == kept.tolist()
        assert len(kept) == ROWS if epoch < 2 else len(kept) < ROWS
    assert module.trained[0] != module.trained[1]  # shuffled anew

    flipped = table(ROWS).flipped
    kept = prune.kept.numpy()
    assert flipped[kept].mean() < 0.25 * flipped.mean()
    assert fit.callback_metrics["kept_fraction"] == pytest.approx(kept.mean())

    best = watch.weights[prune.best_epoch]
    assert all(torch.equal(t, best[n]) for n, t in module.state_dict().items())
    inputs, labels = tensors(VALIDATION, 1).tensors
    assert prune.best_value == pytest.approx((module(inputs).argmax(1) == labels).float().mean().item())


def test_rows_are_scored_in_the_dtype_and_through_the_hooks_that_training_has():
    seen = []

    class Hooked(Module):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            x, y = batch
            seen.append(x.dtype)
            return torch.nan_to_num(x), y

    train, validation = loaders()
    train.dataset.tensors[0][:, 2] = torch.nan  # which only the hook takes out
    prune = PruneRows(SCHEDULE)
    trainer(3, prune, precision="bf16-true").fit(Hooked(), train, validation)
    assert set(seen) == {torch.bfloat16}
    assert prune.pruner.p_y.isfinite().all()


def test_a_callback_used_again_starts_anew():
    """A cell run twice, or a loop over folds: the last model must not prune for this one, nor replace it."""
    prune, modules = PruneRows(SCHEDULE), [Module(), Module()]
    for module in modules:
        trainer(3, prune).fit(module, *loaders())
    assert modules[0].trained == modules[1].trained
    assert len(modules[1].trained[0]) == ROWS
    trainer(1, prune).fit(module := Module(), *loaders())
    assert prune.best_epoch == 0
    assert not torch.equal(module.net[0].weight, modules[1].net[0].weight)


class Stop(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        raise KeyError("stopped")


@pytest.mark.parametrize("stopped", [False, True])
def test_the_loader_has_all_its_rows_afterwards(stopped):
    """For a comparison of losses with one loader, where the next training must not start pruned."""
    train_loader, held_out = loaders()
    first = PruneRows(PruneSchedule(0, 1, 0.4), guards=None)
    if stopped:
        with pytest.raises(KeyError):
            trainer(1, first, Stop()).fit(Module(), train_loader, held_out)
    else:
        trainer(2, first).fit(Module(), train_loader, held_out)
    assert not first.kept.all()
    assert sum(len(labels) for _, labels in train_loader) == ROWS
    trainer(3, PruneRows(SCHEDULE)).fit(module := Module(), train_loader, held_out)
    assert [len(rows) for rows in module.trained[:2]] == [ROWS, ROWS]


@pytest.mark.parametrize("interval", [8, 0.5])
def test_epochs_made_shorter_are_still_validated(interval):
    watch = Watch()
    prune = PruneRows(SCHEDULE)
    trainer(4, prune, watch, val_check_interval=interval).fit(Module(), *loaders())
    assert prune.kept.sum() <= 7 * 32  # of 8 batches
    assert set(watch.validated) == {0, 1, 2, 3}


class Opened(Dataset):
    """Rows in a file that each worker must open for itself."""

    def __init__(self) -> None:
        self.rows = tensors(ROWS, 0)
        self.opened = False

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index):
        assert self.opened
        return self.rows[index]


def open_rows(worker: int) -> None:
    get_worker_info().dataset.opened = True


def test_the_workers_that_score_are_set_up_as_those_that_train():
    rows = DataLoader(
        Opened(), 32, shuffle=True, num_workers=1, worker_init_fn=open_rows, multiprocessing_context="fork"
    )
    prune = PruneRows(PruneSchedule(start_epoch=1, every=1, k=0.4))
    trainer(2, prune).fit(Module(), rows, loaders()[1])
    assert not prune.kept.all()


def test_a_batch_sampler_of_torch_s_own():
    rows, modules = tensors(ROWS, 0), [Module(), Module()]
    batches = BatchSampler(RandomSampler(rows), 32, drop_last=False)
    own = [DataLoader(rows, 32, shuffle=True), DataLoader(rows, batch_sampler=batches)]
    for module, loader in zip(modules, own, strict=True):
        trainer(3, PruneRows(SCHEDULE)).fit(module, loader, loaders()[1])
    assert modules[0].trained == modules[1].trained


def test_rows_without_a_label_are_not_scored():
    rows = tensors(ROWS, 0)
    rows.tensors[1][:20] = -100
    prune = PruneRows(SCHEDULE)
    trainer(3, prune).fit(Module(), DataLoader(rows, 32, shuffle=True), loaders()[1])
    assert prune.pruner.p_y.isnan().nonzero().squeeze(1).tolist() == list(range(20))
    assert prune.kept[:20].all()


def as_dict(rows):
    inputs, labels = zip(*rows, strict=True)
    return {"inputs": torch.stack(inputs), "labels": torch.stack(labels)}


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (lambda module, batch: (module(batch[0]), batch[1][:, None]), r"labels must have shape \(32,\)"),
        (
            lambda module, batch: pair_outputs(module, as_dict(zip(*batch, strict=True))),
            "got dict of 2.*outputs=",
        ),
    ],
)
def test_what_cannot_be_scored_is_said(outputs, text):
    prune = PruneRows(PruneSchedule(0, 1, 0.4), outputs=outputs)
    with pytest.raises(ValueError, match=text):
        trainer(1, prune).fit(Module(), *loaders())


@pytest.mark.filterwarnings("ignore:.*in eval mode at the start of training")
def test_rows_are_scored_plain_and_in_eval_mode():
    """By `score_dataset`, and with every part of the module back in its own mode afterwards."""
    module, scored, modes = Module(), [], []
    module.net[0].eval()  # a frozen part stays so

    def outputs(module, batch):
        scored.append(batch[0][:, 0].min().item())
        modes.append(any(part.training for part in module.modules()))
        return module(batch[0]), batch[1]

    class Modes(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            assert (pl_module.training, pl_module.net[0].training) == (True, False)

    inputs, labels = tensors(ROWS, 0).tensors
    plain = TensorDataset(torch.cat([inputs[:, :1] + 1000, inputs[:, 1:]], 1), labels)
    prune = PruneRows(SCHEDULE, outputs=outputs, score_dataset=plain)
    trainer(3, prune, Modes()).fit(module, *loaders())
    assert min(scored) >= 1000
    assert modes == [False] * len(modes)
    assert not prune.kept.all()


def test_an_earlier_and_better_epoch_scores():
    """Weights wrecked after the best epoch do not prune; training goes on from them all the same."""

    class Wreck(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            if trainer.current_epoch == 1:
                torch.nn.init.zeros_(pl_module.net[2].weight)

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.current_epoch == 2 and batch_idx == 0:
                self.went_on_from = pl_module.net[2].weight.detach().clone()

    prune, watch, wreck = PruneRows(SCHEDULE), Watch(), Wreck()
    trainer(3, prune, watch, wreck).fit(Module(), *loaders())
    assert not wreck.went_on_from.any()
    scorer = Module()
    scorer.load_state_dict(watch.weights[watch.best[1]])
    inputs, labels = tensors(ROWS, 0).tensors
    p_y = scorer(inputs).softmax(1)[torch.arange(ROWS), labels]
    torch.testing.assert_close(prune.pruner.p_y, p_y.detach())
    assert prune.kept.float().mean() > 0.5  # zero weights give every row p_y = 0.25 < k


@pytest.mark.parametrize("after_epoch", [False, True], ids=["saved-in-validation", "saved-after-epoch"])
def test_resumed_is_as_if_never_stopped(tmp_path, after_epoch):
    whole, whole_prune, watch = Module(), PruneRows(SCHEDULE, restore_best=False), Watch()
    trainer(6, whole_prune, watch).fit(whole, *loaders())

    save = ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, save_on_train_epoch_end=after_epoch)
    trainer(4, PruneRows(SCHEDULE), save).fit(Module(), *loaders())
    resumed, prune = Module(), PruneRows(SCHEDULE, restore_best=False)
    other = DataLoader(tensors(ROWS, 2), 32, shuffle=True)
    trainer(3, prune).fit(Module(), other, loaders()[1])  # what this one found is not the resumed one's
    trainer(6, prune, save).fit(resumed, *loaders(), ckpt_path=save.best_model_path)

    assert resumed.trained == whole.trained[4:]
    assert all(torch.equal(t, whole.state_dict()[n]) for n, t in resumed.state_dict().items())
    assert torch.equal(prune.kept, whole_prune.kept)
    assert (prune.best_epoch, prune.best_value) == (whole_prune.best_epoch, whole_prune.best_value)


def test_a_weak_model_prunes_nothing_unless_told_to():
    """Untrained, it gives every label about a quarter, below k."""
    weak = PruneSchedule(start_epoch=0, every=5, k=0.4)
    prune = PruneRows(weak)
    with pytest.warns(UserWarning, match=r"before epoch 0 is left out.*at_most=0\.5.*guards=None"):
        trainer(1, prune).fit(Module(), *loaders())
    assert prune.kept.all()
    prune = PruneRows(weak, guards=None)
    trainer(1, prune).fit(Module(), *loaders())
    assert prune.kept.float().mean() < 0.5


class Tell(Callback):
    """Writes down what each rank did: a process of its own returns nothing."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer, pl_module):
        prune = next(c for c in trainer.callbacks if isinstance(c, PruneRows))
        told = {
            "kept": prune.kept.tolist(),
            "best": [prune.best_epoch, prune.best_value],
            "trained": pl_module.trained,
            "weights": torch.cat([p.detach().flatten() for p in pl_module.parameters()]).tolist(),
        }
        name = f"{trainer.current_epoch}-{trainer.global_rank}.json"
        (Path(self.folder) / name).write_text(json.dumps(told))


def test_two_ranks_are_one_process_with_the_same_global_batch(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    trainer(3, PruneRows(SCHEDULE), Tell(str(one))).fit(Module(), *loaders(32))
    options = {"strategy": "ddp_fork", "devices": 2, "num_sanity_val_steps": 0}
    trainer(3, PruneRows(SCHEDULE), Tell(str(two)), **options).fit(Module(), *loaders(16))

    def told(folder: Path, epoch: int, rank: int) -> dict:
        return json.loads((folder / f"{epoch}-{rank}.json").read_text())

    for epoch in range(3):
        alone, first, second = told(one, epoch, 0), told(two, epoch, 0), told(two, epoch, 1)
        assert first["kept"] == second["kept"] == alone["kept"]
        assert first["best"] == second["best"] == pytest.approx(alone["best"])
        assert first["weights"] == second["weights"]
        if epoch < 2:  # then the kept rows may be odd in number, and a rank repeats one
            np.testing.assert_allclose(first["weights"], alone["weights"], atol=1e-5)
        rows = first["trained"][epoch] + second["trained"][epoch]
        assert set(rows) == set(np.flatnonzero(alone["kept"]))
        assert len(rows) - len(set(rows)) == len(set(rows)) % 2
    assert sum(told(two, 2, 0)["kept"]) < ROWS


@pytest.mark.parametrize(("mode", "best"), [("max", 0), ("min", 1)])
def test_selects_without_pruning(mode, best):
    class Scripted(Module):
        def validation_step(self, batch, batch_idx):
            self.log("score", [0.6, 0.2, 0.2][self.current_epoch])

    prune = PruneRows(monitor="score", mode=mode)
    trainer(3, prune, num_sanity_val_steps=0).fit(Scripted(), *loaders())
    assert prune.best_epoch == best
    with pytest.raises(RuntimeError, match="kept is known once"):
        _ = prune.kept


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(8), torch.tensor(0))])


def weighted() -> DataLoader:
    return DataLoader(tensors(ROWS, 0), 32, sampler=WeightedRandomSampler(torch.ones(ROWS), ROWS))


@pytest.mark.parametrize(
    ("change", "loader", "text"),
    [
        (
            {"monitor": "val_accuracy"},
            None,
            "monitor must .* got 'val_accuracy'. Logged: .*val_acc",
        ),
        ({"score_dataset": [0, 1]}, None, "score_dataset must hold the 256 training rows; got 2"),
        ({}, lambda: DataLoader(Endless(), 1), "map-style data set; got Endless"),
        ({}, weighted, "no sampler of its own; got WeightedRandomSampler"),
        ({}, lambda: DataLoader(tensors(ROWS, 0), batch_sampler=[[0, 1]]), "batch_sampler"),
    ],
)
def test_says_what_it_cannot_do(change, loader, text):
    prune = PruneRows(**{"schedule": PruneSchedule(0, 1, 1e-6)} | change)
    train_loader, held_out = loaders()
    with pytest.raises(ValueError, match=text):
        trainer(1, prune).fit(Module(), loader() if loader else train_loader, held_out)


def test_mode_is_checked():
    with pytest.raises(ValueError, match="mode must be 'max' or 'min'; got 'most'"):
        PruneRows(mode="most")
