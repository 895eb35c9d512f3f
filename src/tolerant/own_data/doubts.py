"""The list of suspects, where predictions were moved towards rare classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tolerant.own_data.classifiers.temper import temper
from tolerant.suspects import Suspects, find_suspects
from tolerant.suspects.whole_matrix import sharpen

_POWERS = np.geomspace(0.25, 1.0, 13)


def find_doubts(
    given_labels: np.ndarray,
    probs: np.ndarray,
    prior: np.ndarray | None,
    tau: float,
    *,
    of_true: bool = False,
    rate_probs: np.ndarray | None = None,
    **options: Any,
) -> Suspects:
    """`find_suspects` for predictions that `temper` moved towards rare classes, by ``prior`` and ``tau``.

    The ranking is by the moved predictions, which rank better. Noise rate and transition are by those before
    the move: moved ones make rows between two classes look wrong more often than they are. (Out of fold on 27
    noisy sets, the rate's interval held the share that was drawn in 25; by moved predictions in 20.)

    ``of_true``: the models relabel rows, so their predictions are meant as probabilities of true classes. The
    given labels tell how sure these may be only if hard rows are mislabelled as often as easy ones. But
    people err on hard rows, and then too few labels look wrong. So the interval reaches at least as high as
    for the same predictions made only as sure as they are right of GIVEN labels. (Features of photographs
    that no benchmark reports, labels by people and drawn ones: so the interval held the truth in 9 of 9 sets,
    without this in 5.)

    ``rate_probs`` are predictions by which noise rate and transition are estimated in the place of ``probs``:
    a stronger model, which ranks better, knows what people call hard rows, and misses more of their mistakes.
    (3,000 photographs that no benchmark reports, 30.2 % wrong: discriminants 23.4 %, at most 34.5; networks
    that they taught 20.2 %, at most 27.5.)
    """
    found = find_suspects(given_labels, probs, **options)
    if rate_probs is not None:
        by_others = find_doubts(given_labels, rate_probs, prior, tau, of_true=of_true, **options)
        return replace(found, noise_rate=by_others.noise_rate, transition=by_others.transition)
    before = found
    if prior is not None and tau:
        before = find_suspects(given_labels, temper(probs, prior, -tau), **options)
    rate = before.noise_rate
    if of_true:
        softer = find_suspects(given_labels, _as_sure_as_of_given(given_labels, probs), **options)
        rate = replace(rate, high=max(rate.high, softer.noise_rate.high))
    return replace(found, noise_rate=rate, transition=before.transition)


def _as_sure_as_of_given(given_labels: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """These predictions, made less sure: raised to the power under which the given labels are likeliest."""
    rows = np.arange(len(given_labels))

    def likelihood(power: float) -> float:
        return float(np.log(sharpen(probs, power)[rows, given_labels] + 1e-12).mean())

    return np.asarray(sharpen(probs, max(_POWERS, key=likelihood)), np.float32)
