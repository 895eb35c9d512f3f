"""What ``tolerant train`` does: read, learn, write a run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from tolerant.data import Source
from tolerant.data.features.extract import Compute
from tolerant.data.features.find import check_name
from tolerant.own_data.choose_features import AUTO, NONE, Say, picture_sides
from tolerant.own_data.classifiers.choose import check_model
from tolerant.own_data.corrected_rows import CorrectedRows
from tolerant.own_data.learn import learn
from tolerant.own_data.learned import Learned
from tolerant.own_data.network import NETWORK, PRETRAINED
from tolerant.own_data.rules import made_by_rules
from tolerant.own_data.run_folder import remove_checkpoints, save_run, using
from tolerant.own_data.settings import Settings
from tolerant.own_data.text_features import takes_characters
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
    compute: Compute | None = None,
    callbacks: Sequence[Callback] = (),
    limit: int = MOST_SHOWN,
    say: Say = lambda line: None,
) -> Learned:
    """Train on ``source`` and write the run folder, which is refused while another process trains there.

    ``corrections`` are files, applied one after the other: those of a second review were made for the labels
    that the first had left. What a person has decided is not asked again.

    ``features`` is the name of a pretrained extractor, "auto" (which takes one for photographs) or "none".
    ``compute``: where features are computed, that of `tolerant.data.features.extract`.
    ``limit`` is the most suspects on the page. ``say`` is told what was chosen and what is about to be tried.

    Meanwhile checkpoints are kept in the run folder: after a stop or a kill the same call goes on from them.
    A call with other rows or settings starts anew, and sets aside a finished run that is in the folder.
    Over several ranks all of them load and train, rank 0 writes, and ``torchrun --max-restarts`` goes on in
    the same way.
    """
    check_model(settings.model)
    if features not in (AUTO, NONE):
        check_name(features)  # before a hundred thousand pictures are decoded
    ranks, folder = current_ranks(), Path(folder)
    # Before anything is read: who shares the folder with another training learns it at once.
    with nullcontext() if ranks.rank else using(folder, [source.name, *corrections]):
        features, sides = _features_and_sides(settings, features)
        place = str(pick_device(device))
        data = CorrectedRows.read(
            source.with_roles(say),
            corrections,
            features=features,
            picture_sides=sides,
            compute=compute if not ranks.rank else None,
            device=place,
            say=say,
            with_characters=takes_characters(settings),
        )
        fingerprint = data.fingerprint(settings, folds)
        learned = learn(
            data.trainable(place),
            replace(
                settings,
                standardise=data.encoder.text is None,
                pretrained=data.encoder.features_alone,
            ),
            folds=folds,
            reviewed=data.corrected.reviewed,
            original_labels=data.dataset.given_labels,
            device=device,
            progress="auto",
            checkpoints=folder / "checkpoints" / fingerprint,
            callbacks=callbacks,
            say=say,
        )
        texts = data.dataset.free_texts
        if texts is not None and made_by_rules(texts, data.dataset.given_labels):
            learned = replace(learned, suspects=learned.suspects.with_lower_bound())
        ranks.wait()  # nobody reads the checkpoints any more
        if not ranks.rank:
            save_run(folder, learned, data, fingerprint=fingerprint, limit=limit)
            remove_checkpoints(folder)
        return learned


def _features_and_sides(settings: Settings, features: str) -> tuple[str, tuple[int, ...] | None]:
    """The extractor whose features are read, and how large pictures are wanted (`picture_sides`)."""
    if settings.model == PRETRAINED:  # which is the extractor's network itself, and has one size
        sides = picture_sides(settings.model_args.get("features", AUTO))
        return NONE, sides and sides[:1]
    if features == AUTO and settings.model not in (AUTO, NETWORK):
        return NONE, None  # who names a network means it to see the pictures
    return features, picture_sides(features)
