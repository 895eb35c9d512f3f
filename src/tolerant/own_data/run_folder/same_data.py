"""Whether the rows of a run's source are still those that it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.digest import dataset_digests
from tolerant.hints import warn_caller


def warn_of_edits(source: str, folder: Path, dataset: NoisyDataset, input_digests: np.ndarray) -> None:
    """Count the rows whose inputs are not those of the run in ``folder``; ``source`` is what they are called.

    A warning only: whoever corrects a few cells may still want the list of the others.
    """
    edited = np.flatnonzero(input_digests != dataset_digests(dataset))
    if len(edited):
        warn_caller(
            f"{len(edited):,} of the {len(dataset):,} rows of {source} have been edited since "
            f"{folder} was trained (first: {dataset.ids[edited[0]]}): the list and the page judge their "
            "labels by the old content. Train again to have them judged by the new one."
        )
