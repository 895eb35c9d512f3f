"""Which labels the folds believe: the first round of pruning, before the first epoch."""

from __future__ import annotations

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.own_data.plan import LEAST_TO_PRUNE
from tolerant.own_data.settings import TRUNCATED, Settings
from tolerant.suspects.noise_model import NoiseModel, fit_noise_model, sample_to_fit

_K_RANGE = (0.05, 0.9)


def believed_by_folds(
    dataset: NoisyDataset, scored: OutOfFold, settings: Settings, original_labels: np.ndarray, k: float
) -> tuple[np.ndarray, float]:
    """Which labels to train on, bool [N], and the k of the rounds that follow: ``k``, or chosen here."""
    believed, held_out = np.ones(len(dataset), bool), scored.held_out
    if settings.loss != TRUNCATED or len(dataset) < LEAST_TO_PRUNE or not held_out.any():
        return believed, k
    given, probs = dataset.given_labels[held_out], scored.probs[held_out]
    sample = sample_to_fit(len(given))
    noise = fit_noise_model(original_labels[held_out][sample], probs[sample])
    believed[held_out] = believe(given, noise.log_odds_right(given, probs))
    if believed.sum() < LEAST_TO_PRUNE:  # too few to learn from: the folds have not learnt either
        believed[:] = True
    return believed, choose_k(given, probs, noise) if settings.k == "auto" else k


def believe(given_labels: np.ndarray, log_odds_right: np.ndarray) -> np.ndarray:
    """bool [N]: labels more likely right than wrong, and at least the least doubtful tenth of every class.

    >>> believe(np.array([0, 0, 1, 1]), np.array([2.0, -1.0, -3.0, -2.0])).tolist()
    [True, False, False, True]
    """
    believed = log_odds_right > 0
    # Sorted once, by class and in it by doubt: to look for the rows of each class costs rows times classes.
    order = np.lexsort((-log_odds_right, given_labels))
    _, starts, counts = np.unique(given_labels[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    believed[order[place < np.repeat(-(-counts // 10), counts)]] = True
    return believed


def choose_k(given_labels: np.ndarray, probs: np.ndarray, noise: NoiseModel) -> float:
    """The p_y below which as many rows lie as labels are estimated to be wrong.

    >>> probs = np.array([[0.9, 0.1]] * 8 + [[0.2, 0.8]] * 8)
    >>> given_labels = np.array([0] * 6 + [1] * 2 + [1] * 6 + [0] * 2)
    >>> choose_k(given_labels, probs, fit_noise_model(given_labels, probs))
    0.2
    """
    p_y = probs[np.arange(len(given_labels)), given_labels]
    k = np.quantile(p_y, noise.expected_wrong(given_labels, probs), method="lower")
    return float(np.clip(k, *_K_RANGE))
