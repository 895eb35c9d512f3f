"""What ``tolerant train`` does: read, learn, write a run folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from tolerant.data import Source
from tolerant.files import make_folder
from tolerant.own_data.classifiers.choose import takes_classifiers
from tolerant.own_data.corrected_rows import CorrectedRows
from tolerant.own_data.learn import learn
from tolerant.own_data.learned import Learned
from tolerant.own_data.network import NETWORK
from tolerant.own_data.pretrained import AUTO, NONE, Say
from tolerant.own_data.run_folder import save_run
from tolerant.own_data.settings import Settings
from tolerant.review.page import MOST_SHOWN
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.job import Callback
from tolerant.train.engine.ranks import current_ranks


def train_source(
    source: Source,
    folder: str | os.PathLike[str],
    settings: Settings,
    *,
    corrections: Sequence[str | os.PathLike[str]] = (),
    folds: int,
    device: str | torch.device,
    features: str = NONE,
    callbacks: Sequence[Callback] = (),
    limit: int = MOST_SHOWN,
    say: Say = lambda line: None,
) -> Learned:
    """Train on ``source`` and write the run folder.

    ``corrections`` are files, applied one after the other: those of a second review were made for the labels
    that the first had left. What a person has decided is not asked again.

    ``features`` is the name of a pretrained extractor, "auto" (which takes one for photographs) or "none".
    ``limit`` is the most suspects on the page. ``say`` is told what was chosen and what is about to be tried.

    Meanwhile checkpoints are kept in the run folder: after a stop or a kill the same call goes on from them.
    A call with other rows or settings starts anew, and sets aside a finished run that is in the folder.
    Over several ranks all of them load and train, rank 0 writes, and ``torchrun --max-restarts`` goes on in
    the same way.
    """
    ranks = current_ranks()
    if features == AUTO and settings.model not in (AUTO, NETWORK):
        features = NONE  # who names a network means it to see the pictures
    place = str(pick_device(device))
    data = CorrectedRows.read(
        source,
        corrections,
        features=features,
        device=place,
        say=say,
        with_characters=takes_classifiers(settings),
    )
    if not ranks.rank:
        make_folder(folder)  # like ids and corrections: refused now, not after hours of training
    checkpoints = Path(folder) / "checkpoints"
    fingerprint = data.fingerprint(settings, folds)
    learned = learn(
        data.trainable(place),
        replace(
            settings,
            standardise=data.encoder.text is None,
            pretrained=data.encoder.extractor is not None,
        ),
        folds=folds,
        reviewed=data.corrected.reviewed,
        original_labels=data.dataset.given_labels,
        device=device,
        progress="auto",
        checkpoints=checkpoints / fingerprint,
        callbacks=callbacks,
        say=say,
    )
    ranks.wait()  # nobody reads the checkpoints any more
    if not ranks.rank:
        save_run(folder, learned, data, fingerprint=fingerprint, limit=limit)
        _clear(checkpoints)
    return learned


def _clear(checkpoints: Path) -> None:
    """Remove all checkpoints, those of other settings too; the run is written, so nothing may fail here.

    The folder can be a link to a larger disk, with other things in it, and another training may be at work.
    """
    for folder in checkpoints.iterdir() if checkpoints.is_dir() else ():
        if re.fullmatch("[0-9a-f]{16}", folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        checkpoints.rmdir()
