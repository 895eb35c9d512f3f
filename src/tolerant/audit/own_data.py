"""What ``tolerant train`` does: load, correct, learn, write a run folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tolerant.audit.corrections import apply_corrections, read_corrections
from tolerant.audit.learn import Learned, learn
from tolerant.audit.plan import Settings
from tolerant.audit.run_folder import save_run
from tolerant.audit.source import Features, Source
from tolerant.data.dataset import NoisyDataset
from tolerant.train.distributed import current
from tolerant.train.job import Callback
from tolerant.train.progress import ProgressMode


def load_corrected(source: Source, labels: str | os.PathLike[str] | None) -> NoisyDataset:
    """The rows of ``source`` with the labels of a corrections file put in, if there is one."""
    dataset = source.load()
    if labels is None:
        return dataset
    corrected = apply_corrections(
        dataset.given_labels, read_corrections(labels), ids=dataset.ids, class_names=dataset.class_names
    )
    return dataset.with_given_labels(corrected.given_labels)


def train_source(
    source: Source,
    folder: str | os.PathLike[str],
    settings: Settings,
    *,
    version: str,
    labels: str | os.PathLike[str] | None = None,
    folds: int = 5,
    device: str | torch.device = "auto",
    progress: ProgressMode = "auto",
    callbacks: Sequence[Callback] = (),
) -> tuple[NoisyDataset, Learned]:
    """Train on ``source`` and write the run folder; the rows as loaded, and what was learnt.

    Over several ranks all of them load and train, and rank 0 writes. Checkpoints lie in the run folder
    meanwhile, so that ``torchrun --max-restarts``, or the same command again, goes on from them.
    """
    ranks = current()
    checkpoints = Path(folder) / "checkpoints" if ranks.size > 1 else None
    dataset = load_corrected(source, labels)
    features = Features.fit(dataset)
    learned = learn(
        features.trainable(dataset),
        replace(settings, standardise=features.text is None),
        folds=folds,
        device=device,
        progress=progress,
        checkpoints=checkpoints,
        callbacks=callbacks,
    )
    ranks.wait()  # nobody reads the checkpoints any more
    if ranks.rank:
        return dataset, learned
    save_run(
        folder,
        learned,
        dataset,
        source=source,
        features=features,
        version=version,
        labels=None if labels is None else os.path.abspath(labels),
    )
    if checkpoints is not None:
        shutil.rmtree(checkpoints)
    return dataset, learned
