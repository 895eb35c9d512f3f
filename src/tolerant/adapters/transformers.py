"""Our losses and pruning inside the Transformers ``Trainer``::

    prune = PruneRows(rows, PruneSchedule(start_epoch=2, every=1, k=0.5))
    Trainer(
        model,
        args,
        train_dataset=prune.dataset,
        eval_dataset=noisy_validation_rows,
        compute_loss_func=TrainerLoss(LqLoss(q=0.7)),
        callbacks=[prune],
    ).train()

Evaluation rows carry given labels, as noisy as the training rows'.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tolerant.adapters.alternating import IGNORED, Alternating
from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.functional import log_p_y
from tolerant.train import MOSTLY_RIGHT, Alternation, Guards, PruneSchedule

transformers = extra("transformers", install="transformers")

_NO_METRICS = ("epoch", "_runtime", "_per_second", "_time")  # what Trainer reports beside metrics
FILE = "tolerant_prune.safetensors"


class TrainerLoss:
    """A loss of ours as the ``compute_loss_func`` of a ``Trainer``.

    For sequence classification (one label per row) and for every token with a label other than -100
    (token classification, masked and causal language models). The sum over a micro-batch is divided by
    the number of labels in the whole batch of an optimiser step, over all accumulation steps and ranks,
    as Trainer counts them: 8 rows at once and 4 times 2 rows have the same gradient.

    Args:
        loss: such as ``LqLoss(q=0.7)``; its reduction does not matter.
        shift: whether logits at a position predict the next label, as in causal language models; by
            default told from the class of the model's outputs.

    Trainer tells causal models by their loss type. Of one without (``GPT2LMHeadModel``: its name does not
    end in ``ForCausalLM``) it counts the first label of each row too, which nothing predicts, and the loss
    comes out smaller by that share: give those labels -100.

    One process a GPU (``torchrun``, ``accelerate launch``): several GPUs in one process are refused.
    """

    def __init__(self, loss: nn.Module, *, shift: bool | None = None) -> None:
        self.loss = copy.deepcopy(loss)
        reducing = [part for part in self.loss.modules() if hasattr(part, "reduction")]
        if not reducing:
            raise ValueError(f"loss must have a reduction, such as LqLoss(); got {type(loss).__name__}.")
        for part in reducing:
            part.reduction = "sum"  # type: ignore[assignment]
            if getattr(part, "ignore_index", IGNORED) != IGNORED:
                raise ValueError(
                    f"ignore_index must be {IGNORED}, the labels Trainer does not count; "
                    f"got {part.ignore_index}."
                )
        self.shift = shift

    def __call__(
        self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        logits, labels = _aligned(outputs, labels, self.shift)
        self.loss.to(logits.device)  # class weights and transition matrices go where the model is
        total: Tensor = self.loss(logits.flatten(0, -2), labels.flatten())
        if num_items_in_batch is None:
            num_items_in_batch = (labels != IGNORED).sum()
        count = torch.as_tensor(num_items_in_batch, device=total.device)
        if count.ndim:
            raise ValueError(
                "one process must drive one GPU; Trainer drives several (DataParallel), whose loss it "
                "would scale wrongly. Start it with torchrun, or set CUDA_VISIBLE_DEVICES."
            )
        return total / count.clamp(min=1)  # a step whose rows are all pruned has gradient 0


class PruneRows(Alternating, transformers.TrainerCallback):  # type: ignore[name-defined]
    """Prunes rows of a ``Trainer`` by the paper's algorithm.

    Before an epoch the schedule names, the model of the best noisy evaluation so far, by Trainer's
    ``metric_for_best_model`` (default: the loss; without evaluations the current model), scores every
    training row in eval mode. Rows with p_y <= k stay in their batches with labels of -100, which
    neither the loss nor ``num_items_in_batch`` counts: steps an epoch and learning rates stay as
    planned, and pruned rows still cost their time. p_y of a row of tokens is the geometric mean over
    its labels. A model that doubts more than half of the rows is taken to be too weak to judge: its round is
    left out, with a warning. ``load_best_model_at_end=True`` selects the epoch, as in any Trainer.

    State is saved into Trainer's checkpoints and read back by ``resume_from_checkpoint`` of one in
    ``output_dir``. Under DDP every rank scores its share and all prune alike.

    Args:
        rows: map-style, each row a mapping with its label or labels under ``label``.
        given_labels: int [N]; with it a class of which a round would prune more than three quarters stays
            as it was, and a class that pruning would empty keeps its best row.
        guards: how much a round may prune; None lets it prune all that p_y <= k says, as in the paper.
        shift: as in `TrainerLoss`.
    """

    def __init__(
        self,
        rows: Any,
        schedule: PruneSchedule,
        *,
        label: str = "labels",
        given_labels: Sequence[int] | np.ndarray | Tensor | None = None,
        guards: Guards | None = MOSTLY_RIGHT,
        shift: bool | None = None,
    ) -> None:
        if not hasattr(rows, "__len__"):
            raise ValueError(
                f"rows must have a length and positions, to be pruned by them; got {type(rows).__name__}. "
                "Read a stream into a list first."
            )
        self.rows, self.schedule, self.shift = rows, schedule, shift
        self._given_labels, self._guards = given_labels, guards
        self.alternation = self._start_anew("max")
        # Shared memory: the loader's workers see later rounds too.
        self._kept = self.kept.clone().share_memory_()
        self.dataset = _KeptLabels(rows, label, self._kept)
        self._other_metrics: set[str] = set()

    def _start_anew(self, mode: Literal["max", "min"]) -> Alternation:
        rows, labels = len(self.rows), self._given_labels
        return Alternation(self.schedule, rows, labels, guards=self._guards, mode=mode)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if getattr(args, "deepspeed", None) or getattr(args, "fsdp", None):
            raise ValueError("PruneRows needs the whole model on every device: DDP, not DeepSpeed or FSDP.")
        if kwargs["train_dataloader"].dataset is not self.dataset:
            raise ValueError("train_dataset must be the `dataset` of this PruneRows, or nothing is pruned.")
        # Perhaps a trial's training: what the last one found is not this model's.
        self.alternation = self._start_anew("max" if _higher_is_better(args) else "min")
        if state.global_step:
            self._load(_folder(args, state) / FILE)
        self._kept.copy_(self.kept)
        self._other_metrics.clear()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        epoch = state.epoch or 0.0
        if epoch != int(epoch) or not self.alternation.due(int(epoch)):
            return  # resumed in the middle of an epoch: its round is in the checkpoint
        if self.best_value is None and self._other_metrics:
            known = ", ".join(sorted(self._other_metrics))
            warnings.warn(
                f"no evaluation has had the metric {_metric(args)!r} (they had {known}), so the current "
                "model prunes, not the best. Set metric_for_best_model to one of them.",
                stacklevel=2,
            )
        self._prune(args, state, kwargs["model"], kwargs["train_dataloader"].collate_fn)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        name = _metric(args)
        if name not in metrics:  # one of several evaluation sets; Trainer itself misses a wrong name
            self._other_metrics |= {m for m in metrics if not m.endswith(_NO_METRICS)}
            return
        self.alternation.observe(state.epoch, metrics[name], kwargs["model"].state_dict())

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        pruner = self.pruner.state_dict()
        tensors = {"p_y": pruner.pop("p_y")}
        tensors |= {f"best/{name}": t for name, t in (self.alternation.best_weights or {}).items()}
        best = {"best_value": self.best_value, "best_epoch": self.alternation.best_epoch}
        record = json.dumps({"pruner": pruner, **best})
        data = extra("safetensors.torch").save(tensors, metadata={"record": record})
        write_atomic(_folder(args, state) / FILE, data)

    def _load(self, path: Path) -> None:
        if not path.exists():
            raise ValueError(
                f"{path} does not exist: resume from a checkpoint in output_dir, saved with PruneRows."
            )
        with extra("safetensors").safe_open(path, framework="pt") as file:
            record = json.loads(file.metadata()["record"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.alternation.load_state_dict(
            {
                "pruner": {**record["pruner"], "p_y": tensors.pop("p_y")},
                "best": {name.removeprefix("best/"): t for name, t in tensors.items()} or None,
                "best_epoch": record.get("best_epoch"),
                "best_value": record["best_value"],
            }
        )

    @torch.no_grad()
    def _prune(self, args: Any, state: Any, model: Any, collate: Any) -> None:
        index = range(args.process_index, len(self.rows), args.world_size)
        # A loader draws a seed for its workers. It does so from a generator of its own: Trainer restores the
        # global one only after this, so a draw from that would change the dropout of a resumed run.
        own = torch.Generator()
        batches = DataLoader(
            self.rows, args.eval_batch_size, sampler=index, collate_fn=collate, generator=own
        )
        with self.alternation.best_model(model):
            scored = list(self._scores(model, batches))
        self.decide(index, scored, epoch=int(state.epoch or 0), speaks=state.is_world_process_zero)
        self._kept.copy_(self.kept)

    def _scores(self, model: Any, batches: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """p_y of each row, and whether it has a label."""
        accelerate = extra("accelerate.utils", install="transformers")
        for batch in batches:
            # Not each value's .to(): a collator may also give flags, None and lists of tensors.
            inputs = dict(accelerate.send_to_device(batch, model.device))
            labels = inputs.pop("labels")
            logits, labels = _aligned(model(**inputs), labels, self.shift)
            if labels.ndim == 1:
                labels = labels[:, None]
            counts = labels != IGNORED
            own = torch.where(counts, labels, 0).flatten()
            log_p = torch.where(counts, log_p_y(logits.flatten(0, -2), own).reshape(labels.shape), 0.0)
            yield (log_p.sum(1) / counts.sum(1)).exp().float().cpu(), counts.any(1).cpu()


class _KeptLabels(Dataset[Any]):
    """The rows, those pruned with labels that are not counted."""

    def __init__(self, rows: Any, label: str, kept: Tensor) -> None:
        if len(rows) and label not in rows[0]:
            theirs = next((name for name in ("label", "labels", "label_ids") if name in rows[0]), None)
            way_out = (
                f"Pass label={theirs!r}."
                if theirs is not None
                else "A collator that makes labels of the inputs comes too late: put them into the rows."
            )
            raise ValueError(
                f"rows must hold their labels under {label!r}; got {', '.join(rows[0])}. {way_out}"
            )
        self.rows, self.label, self.kept = rows, label, kept

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        row = self.rows[index]
        return row if self.kept[index] else {**row, self.label: _ignored(row[self.label])}


def _ignored(labels: Any) -> Any:
    if isinstance(labels, Tensor | np.ndarray):
        like: Any = torch.full_like if isinstance(labels, Tensor) else np.full_like
        return like(labels, IGNORED)
    return [IGNORED] * len(labels) if isinstance(labels, Sequence) else IGNORED


def _aligned(outputs: Any, labels: Tensor, shift: bool | None) -> tuple[Tensor, Tensor]:
    """Logits (..., C) and the labels (...) they predict."""
    logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
    if shift is None:
        shift = "CausalLM" in type(outputs).__name__
    if shift:
        logits, labels = logits[..., :-1, :], labels[..., 1:]
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels must have the logits' shape without classes, {tuple(logits.shape[:-1])}; "
            f"got {tuple(labels.shape)}."
        )
    return logits, labels


def _metric(args: Any) -> str:
    name = args.metric_for_best_model or "loss"
    return name if name.startswith("eval_") else f"eval_{name}"


def _higher_is_better(args: Any) -> bool:
    told = args.greater_is_better
    return not _metric(args).endswith("loss") if told is None else bool(told)


def _folder(args: Any, state: Any) -> Path:
    prefix = transformers.trainer_utils.PREFIX_CHECKPOINT_DIR
    return Path(args.output_dir) / f"{prefix}-{state.global_step}"
