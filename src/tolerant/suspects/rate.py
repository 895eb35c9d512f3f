"""How many labels are wrong: an estimate, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolerant.suspects.noise_model import NoiseModel

_SOFTER = 0.6  # how much less sure of itself the model is taken to be for the lower end (see `RateInterval`)
_RESAMPLE_ROWS = 5_000  # a resample of m rows of n errs sqrt(n / m) times as much
_DEVIATIONS = 1.96  # standard errors to either side, for a level of 0.95
_RESAMPLES = 50  # the standard error from 50 is good to a tenth of itself


@dataclass(frozen=True)
class RateInterval:
    """An estimated noise rate, and between which values it may lie.

    `estimate` comes from the fitted noise model. Predictions alone cannot tell a wrong label from a hard
    row, so `low` and `high` are two readings of them, each widened by its sampling error at `level`:
    `low` takes the model to be too sure of itself (sharpness times 0.6) and so puts more doubts down to
    hard rows; `high` counts every row that looks like another class, the model's own mistakes
    included, and so holds unless the model believes more wrong labels than it doubts right ones. A weak
    model gives a wide interval, which starts at 0 if the model knows no more than how frequent each label is,
    or if the estimate is beyond what the second reading allows.

    Measured on digits with uniform noise of 10, 20 and 40 % and class-dependent noise of 5, 10 and 20 % of
    all labels (results/bench/rate.jsonl): the drawn rate lies inside in all of 96 runs, half of them on seeds
    that had no part in the design. So the interval, 6 to 19 points, is wider than its level asks for. The
    estimate is within half a point on average, but 6 points too low in the last noise, where 40 % of every
    second class carry the next one's label.

    The 0.6 was chosen on digits, Fashion-MNIST and CIFAR-10N, with an L_q network and out of fold. Not
    covered are mistakes that follow from the inputs, such as labels made by keyword rules (TREC): the
    model learns them, no prediction shows them, and the estimate is far too low.
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def times(self, share: float) -> RateInterval:
        """The rate among all rows, if this is the rate among a share of them and the others are right."""
        return replace(self, estimate=share * self.estimate, low=share * self.low, high=share * self.high)


def rate_interval(
    model: NoiseModel,
    given: NDArray[np.int64],
    probs: NDArray[np.floating],
    generator: np.random.Generator,
    *,
    groups: NDArray[Any] | None = None,
    counted: NDArray[np.bool_] | None = None,
) -> RateInterval:
    """How many of these labels are wrong, as far as the predictions can tell.

    With ``counted`` [N] how many of those. The others, which a person has reviewed, only tell of the noise.

    Rows of one of the ``groups`` were labelled together, so they are resampled together: a thousand rows of
    ten groups tell no more about the noise rate than ten labels.
    """
    num_rows = len(given)
    group = np.arange(num_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    members = np.split(np.argsort(group, kind="stable"), np.bincount(group).cumsum()[:-1])
    counted = np.ones(num_rows, np.bool_) if counted is None else counted
    estimate = model.expected_wrong(given[counted], probs[counted])
    refit = model.refitter(given, probs)
    less_sure = replace(model, sharpness=_SOFTER * model.sharpness)
    softer = less_sure.refitter(given, probs)(np.arange(num_rows), np.flatnonzero(counted))
    # As many groups as have _RESAMPLE_ROWS rows, on average.
    num_drawn = max(1, round(len(members) * min(1.0, _RESAMPLE_ROWS / num_rows)))
    rates = np.empty(_RESAMPLES)
    for resample in range(_RESAMPLES):
        drawn = generator.integers(len(members), size=num_drawn)
        index = np.concatenate([members[number] for number in drawn])
        among = index[counted[index]]
        rates[resample] = refit(index, among) if len(among) else 0.0
    error = _DEVIATIONS * rates.std(ddof=1) * np.sqrt(num_drawn / len(members))
    is_doubted = (probs.argmax(axis=1) != given)[counted]
    doubted = float(is_doubted.mean())
    sums = np.bincount(group[counted], is_doubted - doubted)
    doubted_error = _DEVIATIONS * np.sqrt((sums**2).sum()) / len(is_doubted)
    # With no wrong label among n found, up to 3 / n may still be wrong ("rule of three"), and with nothing
    # but wrong ones as many right: resamples that all look alike show no sampling error.
    least_error = 3.0 / len(np.unique(group[counted]))
    high = max(estimate + error, doubted + doubted_error, estimate + least_error)
    low = min(softer - error, estimate - max(error, least_error))
    # More labels wrong than rows look like another class: T has it that a class is always labelled otherwise.
    # So it comes out of a model that takes a rare class for noise, and shows nothing.
    if estimate > doubted + doubted_error or _tells_nothing(model, given, probs):
        low = 0.0
    return RateInterval(estimate, float(max(low, 0.0)), float(min(high, 1.0)))


def _tells_nothing(model: NoiseModel, given: NDArray[np.int64], probs: NDArray[np.floating]) -> bool:
    """Whether the labels are as likely if drawn by their frequencies alone, without looking at any row.

    T can always turn predictions that know nothing into those frequencies, by enough noise. Fitted to chance,
    each entry of T gains half a unit of log likelihood on average. Two deviations are added, and 5 for the
    folds, whose training rows have fewer of the very labels that they hold out.
    """
    counts = np.unique(given, return_counts=True)[1]
    by_frequency = float((counts * np.log(counts / len(given))).sum())
    by_chance = model.num_free / 2 + 2 * np.sqrt(model.num_free / 2) + 5.0
    return model.log_likelihood(given, probs) < by_frequency + float(by_chance)
