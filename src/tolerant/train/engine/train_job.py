"""``train``: one job, from a data set to a trained model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.dataset import NoisyDataset
from tolerant.train.engine.display import ProgressMode
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Callback, Job
from tolerant.train.engine.recipe import Recipe
from tolerant.train.engine.result import TrainResult
from tolerant.train.rounds.round import Round
from tolerant.train.rounds.schedule import PruneSchedule


def train(
    dataset: NoisyDataset,
    *,
    model: str | nn.Module,
    loss: str | nn.Module = "cce",
    recipe: Recipe | None = None,
    prune: PruneSchedule | None = None,
    rounds: Sequence[Round] = (),
    transition: np.ndarray | Tensor | None = None,
    validation: NoisyDataset | None = None,
    test: NoisyDataset | None = None,
    sample_weight: np.ndarray | None = None,
    loss_args: Mapping[str, Any] | None = None,
    model_args: Mapping[str, Any] | None = None,
    device: str | torch.device = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    callbacks: Sequence[Callback] = (),
    progress: ProgressMode = "auto",
    graph: bool | None = None,
) -> TrainResult:
    """Train a model on labels that may be wrong, by the paper's protocol.

    Args:
        dataset: the rows; a share of them (``recipe.validation_fraction``) is held out, with its
            given labels, to choose the epoch and the model that prunes.
        model: a name of `tolerant.train.NETWORKS` (with ``model_args``), or a module, of which a copy is
            trained.
        loss: a name of `tolerant.losses.REGISTRY` (with ``loss_args``), or a module called as
            ``loss(logits, labels)``. For truncated L_q by the paper's algorithm: "lq" and ``prune``.
        rounds: a method of several trainings (:class:`Round`); their epochs, losses and pruning stand in the
            place of ``loss``, ``prune`` and those of the recipe, which says the rest.
        transition: T[i, j] = P(given = j | true = i): the loss is forward corrected with it.
        validation: other rows to validate on; then none of ``dataset`` are held out.
        test: rows whose accuracy (by their true labels where known) is recorded. Nothing is chosen
            by it.
        sample_weight: [N], how much each row of ``dataset`` counts, in the loss and in the validation
            accuracy; only the ratios matter.
        checkpoint: a folder. The same call with the same folder goes on where the last one stopped,
            whatever stopped it; when it had ended, the result is read back.
        callbacks: told of the start, of every epoch and of the end.
        graph: whether to replay steps as a CUDA graph; by default on a GPU that holds the rows.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(600, 4)).astype(np.float32)
    >>> y = (x[:, 0] > 0).astype(int)
    >>> rows = NoisyDataset(x, np.where(rng.random(600) < 0.2, 1 - y, y), y, ("no", "yes"))
    >>> recipe = Recipe(epochs=5, batch_size=32, lr=0.1, milestones=())
    >>> result = train(rows, model="mlp", loss="lq", recipe=recipe, test=rows, progress="quiet")
    >>> result.test_accuracy > 0.9
    True
    """
    job = Job(
        dataset=dataset,
        model=model,
        loss=loss,
        recipe=recipe or Recipe(),
        prune=prune,
        rounds=tuple(rounds),
        transition=transition,
        validation=validation,
        test=test,
        sample_weight=sample_weight,
        loss_args=loss_args or {},
        model_args=model_args or {},
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        callbacks=callbacks,
    )
    return Fleet(side_by_side=1, device=device, progress=progress, graph=graph).run_one(job)
