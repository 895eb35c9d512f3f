"""Supervised fine-tuning in TRL on answers that are partly wrong::

    trainer = LqSFTTrainer(model, args, train_dataset=rows, q=0.7)  # was SFTTrainer(...)
    trainer.train()

    log_p = held_out_log_probs(make_trainer, rows, folds=4)
    suspects = np.argsort(log_p)

The suspects are the answers that a model which has not trained on them believes least.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from tolerant.extras import extra
from tolerant.functional import lq_from_log_prob

trl = extra("trl", install="trl")


class LqSFTTrainer(trl.SFTTrainer):  # type: ignore[name-defined]
    r"""TRL's ``SFTTrainer`` with L_q of each token in place of its negative log-likelihood.

    TRL's own code decides what is divided by what (packing, ``completion_only_loss``, accumulation,
    padding-free batches, several ranks), and so has the head that never holds all logits. q = 0 is its
    ``loss_type="nll"``. q = 1 trains as its ``loss_type="dft"``: the gradient is the same,
    :math:`p \nabla(-\log p)`; the number that is logged is 1 - p instead of -p log p.

    Args:
        q: 0 (plain fine-tuning) to 1 (dynamic fine-tuning): a token counts :math:`p^q`, the less the model
            believes it.
        k: tokens with p <= k are left out. For a second round: a model that starts far from the answers
            believes few of their tokens.

    All else as for ``SFTTrainer``.
    """

    def __init__(self, *args: Any, q: float = 0.7, k: float | None = None, **kwargs: Any) -> None:
        lq_from_log_prob(torch.zeros(1), q=q, k=k)  # refused here, not at the first step
        self.q, self.k = q, k
        super().__init__(*args, **kwargs)
        if self.compute_loss_func is not None:
            raise ValueError(
                "compute_loss_func must not be given: the loss is L_q. For another one use SFTTrainer."
            )
        if self.args.loss_type != "nll" or self.args.label_smoothing_factor:
            raise ValueError(
                "loss_type must be 'nll' and label_smoothing_factor 0, for L_q takes their place; "
                f"got {self.args.loss_type!r} and {self.args.label_smoothing_factor}. q=1 is 'dft'."
            )
        parallel = self.accelerator.parallelism_config
        if parallel is not None and getattr(parallel, "sp_enabled", False):
            raise ValueError(
                "sequence parallelism must be off: with it TRL trains on the model's own loss, not ours."
            )

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return super().compute_loss(
            lambda **given: self._with_lq(model(**given)), inputs, return_outputs, num_items_in_batch
        )

    def _with_lq(self, outputs: Any) -> Any:
        """TRL's loss is the sum of -log_probs over a count; with -L_q there it is that of L_q over the count.

        Where a label does not count, log p is 0, and so is L_q.
        """
        log_p = getattr(outputs, "log_probs", None)
        if log_p is not None:  # else the full logits, asked for by a metric
            outputs.log_probs = -lq_from_log_prob(log_p, q=self.q, k=self.k, reduction="none")
        return outputs

    @torch.no_grad()
    def answer_log_probs(self, rows: Any = None) -> NDArray[np.float64]:
        """The mean log p of each row's answer: of its tokens that count, by the model as it is now.

        rows: prepared as TRL's are, with ``input_ids`` and ``labels``; the trainer's own ``eval_dataset`` if
        not given. Not packed: a packed row is several answers.
        """
        rows = self.eval_dataset if rows is None else rows
        if rows is None or isinstance(rows, dict):
            raise ValueError("rows must be one data set; pass rows=, or give the trainer an eval_dataset.")
        if "seq_lengths" in rows.column_names:
            raise ValueError(
                "rows must not be packed, or answers are not told apart. Set eval_packing=False."
            )
        collate = self.data_collator
        if getattr(collate, "padding_free", False):
            collate = dataclasses.replace(collate, padding_free=False)
        columns = [name for name in rows.column_names if name in ("input_ids", "labels")]
        batches = self.accelerator.prepare(
            DataLoader(rows.select_columns(columns), self.args.eval_batch_size, collate_fn=collate)
        )
        model, training = self.model, self.model.training
        model.eval()
        try:
            found = []
            for batch in batches:
                with self.compute_loss_context_manager():
                    out = model(**self._prepare_inputs(batch), use_cache=False, fused_lm_head=True)
                mean = out.log_probs.double().sum(1) / out.label_mask.sum(1)  # NaN of a row without an answer
                found.append(self.accelerator.gather_for_metrics(mean).cpu())
        finally:
            model.train(training)
        return torch.cat(found).numpy() if found else np.empty(0)


def held_out_log_probs(
    make_trainer: Callable[[Any, Any], LqSFTTrainer], rows: Any, *, folds: int = 4, seed: int = 0
) -> NDArray[np.float64]:
    """The mean log p of each answer by a model that did not train on it; the lowest are the suspects.

    In the end a model believes what it has trained on, wrong answers too. So the rows are dealt into folds,
    and each fold is scored by a model fine-tuned on the others, which takes as long as folds - 1 trainings.

    Args:
        make_trainer: called with (rows to train on, rows to score); returns
            ``LqSFTTrainer(a fresh model, args, train_dataset=train, eval_dataset=held_out)``.
        rows: a ``datasets.Dataset``.
        folds: at least 2.
    """
    if not 2 <= folds <= len(rows):
        raise ValueError(f"folds must be from 2 to the number of rows, {len(rows)}; got {folds!r}.")
    fold = np.random.default_rng(seed).permutation(len(rows)) % folds
    log_p = np.empty(len(rows))
    for number in range(folds):
        train, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        trainer = make_trainer(rows.select(train), rows.select(held_out))
        trainer.train()
        log_p[held_out] = trainer.answer_log_probs()
    return log_p
