"""What ``tolerant train`` does: load, correct, learn, write a run folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tolerant.data.dataset import NoisyDataset
from tolerant.data.digest import row_digests
from tolerant.files import make_folder
from tolerant.own_data.learn import Learned, learn
from tolerant.own_data.plan import Settings
from tolerant.own_data.run_folder import save_run
from tolerant.own_data.source import Features, Source
from tolerant.review.corrections import CorrectedLabels, apply_corrections, read_corrections
from tolerant.review.page import MOST_SHOWN
from tolerant.suspects.arguments import check_ids
from tolerant.train.engine.job import Callback
from tolerant.train.engine.ranks import current


def correct(dataset: NoisyDataset, files: Sequence[str | os.PathLike[str]]) -> CorrectedLabels:
    """The labels of ``dataset`` after each of these corrections files, one on top of the other."""
    given = dataset.given_labels
    reviewed = np.zeros(len(dataset), np.bool_)
    for path in files:
        step = apply_corrections(
            given, read_corrections(path), ids=dataset.ids, class_names=dataset.class_names
        )
        given, reviewed = step.given_labels, reviewed | step.reviewed
    return CorrectedLabels(given, reviewed, given != dataset.given_labels)


def train_source(
    source: Source,
    folder: str | os.PathLike[str],
    settings: Settings,
    *,
    version: str,
    labels: Sequence[str | os.PathLike[str]] = (),
    folds: int,
    device: str | torch.device,
    callbacks: Sequence[Callback] = (),
    limit: int = MOST_SHOWN,
) -> Learned:
    """Train on ``source`` and write the run folder.

    ``labels`` are corrections files, applied one after the other: those of a second review were made for
    the labels that the first had left. What a person has decided is not asked again.

    ``limit`` is the most suspects on the page.

    Meanwhile checkpoints are kept in the run folder: after a stop or a kill the same call goes on from them.
    A call with other rows or settings starts anew, and sets aside a finished run that is in the folder.
    Over several ranks all of them load and train, rank 0 writes, and ``torchrun --max-restarts`` goes on in
    the same way.
    """
    ranks = current()
    checkpoints = Path(folder) / "checkpoints"
    dataset = source.load()
    check_ids(dataset.ids)
    corrected = correct(dataset, labels)
    if not ranks.rank:
        make_folder(folder)  # like the ids and labels above: refused now, not after hours of training
    features = Features.fit(dataset)
    digests = row_digests(dataset.inputs)
    fingerprint = _fingerprint(dataset, digests, corrected, settings, folds)
    learned = learn(
        features.trainable(dataset).with_given_labels(corrected.given_labels),
        replace(settings, standardise=features.text is None),
        folds=folds,
        reviewed=corrected.reviewed,
        original_labels=dataset.given_labels,
        device=device,
        progress="auto",
        checkpoints=checkpoints / fingerprint,
        callbacks=callbacks,
    )
    ranks.wait()  # nobody reads the checkpoints any more
    if ranks.rank:
        return learned
    save_run(
        folder,
        learned,
        dataset,
        source=source,
        features=features,
        version=version,
        fingerprint=fingerprint,
        digests=digests,
        corrected=corrected,
        labels=labels,
        limit=limit,
    )
    _clear(checkpoints)
    return learned


def _clear(checkpoints: Path) -> None:
    """Remove all checkpoints, those of other settings too; the run is written, so nothing may fail here.

    The folder can be a link to a larger disk, with other things in it, and another training may be at work.
    """
    for folder in checkpoints.iterdir():
        if re.fullmatch("[0-9a-f]{16}", folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        checkpoints.rmdir()


def _fingerprint(
    dataset: NoisyDataset, digests: np.ndarray, corrected: CorrectedLabels, settings: Settings, folds: int
) -> str:
    """A hash of all that a training depends on, so that none goes on from the checkpoint of another."""
    digest = hashlib.sha256(repr((settings, folds, dataset.class_names)).encode())
    digest.update(corrected.given_labels.tobytes() + corrected.reviewed.tobytes() + digests.tobytes())
    if dataset.groups is not None:
        digest.update(dataset.groups.tobytes())
    return digest.hexdigest()[:16]
