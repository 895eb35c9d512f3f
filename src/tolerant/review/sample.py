"""A random sample of rows for a person to label: what it finds wrong, of its own size, has no bias.

The noise rate that predictions tell rests on assumptions, and labels made by rules break them all. A sample
rests on one alone: that each of its rows is decided. The page shows the rows without the model's opinion,
which would sway the person, and in random order, so that the first of them are a sample, too. It says what
share was found wrong, with an interval (Wilson's, at 95 %).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tolerant.checks import check_whole
from tolerant.data.dataset import NoisyDataset
from tolerant.suspects import Suspects


def draw_sample(
    suspects: Suspects, dataset: NoisyDataset, reviewed: NDArray[np.bool_], count: int, *, seed: int
) -> Suspects:
    """``count`` rows drawn at random from those not ``reviewed`` [N], in random order; all if fewer.

    Each is listed with its given label alone: nothing is suggested.
    """
    check_whole(count, "count", least=1)
    if reviewed.all():
        raise ValueError("a person has decided every label: there is no row left to draw.")
    index = np.random.default_rng(seed).permutation(np.flatnonzero(~reviewed))[:count]
    given = dataset.given_labels[index]
    ones = np.ones(len(index))
    return replace(
        suspects,
        index=index,
        ids=dataset.ids[index],
        given_labels=given,
        suggested_labels=given,
        p_y=ones,
        confidence=ones,
        kept=None,
        pruned_at=None,
        evidence=None,
        trained_as=None,
    )
