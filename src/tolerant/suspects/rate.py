"""How many labels are wrong: an estimate, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolerant.suspects.anchors import Anchors
from tolerant.suspects.noise_model import NoiseModel
from tolerant.suspects.one_rate import OneRate

Index = NDArray[np.int64]

_SOFTER = 0.6  # how much less sure of itself the model of one rate is taken to be, for a second opinion
_RESAMPLE_ROWS = 5_000  # a resample of m rows of n errs sqrt(n / m) times as much
_DEVIATIONS = 1.96  # standard errors to either side, for a level of 0.95
_RESAMPLES = 50  # the standard error from 50 is good to a tenth of itself
# How far the interval reaches at least, to either side, of the way from the estimate to the share of rows
# that look like another class.
_AT_LEAST = 0.2
# How many times the difference that unmixing makes is added below. Where it lowers the estimate much, as with
# pair flips, it has not come to its end: the way left is up to twice the way it went. Uniform noise has none.
_UNENDED = 2.0
# A model below both of these knows too little of its classes to have anchors. Both go from 0, as by chance,
# to 1: how rarely the given labels contradict its choices, and how sure it is of them.
_LEAST_TOLD, _LEAST_SURE = 0.5, 0.65
_VAGUE = 0.2  # an interval wider than that is told without its estimate


@dataclass(frozen=True)
class RateInterval:
    """An estimated noise rate, and between which values it may lie.

    The `estimate` comes from the rows that the model is surest of (:mod:`tolerant.suspects.anchors`). It
    takes for granted that every class has rows which are surely of it. Where a class has none, because the
    model is weak or classes overlap, hard rows count as wrong labels and the estimate is too high. Where easy
    rows have fewer wrong labels than hard ones, as with labels by people, it is too low.

    By how much it is off, predictions alone cannot tell. They do tell how many MORE rows look like another
    class than the estimate explains. With r, their share divided by the estimate (1 at most), the interval
    reaches

    - above: r times that share, where the rate is if people erred on hard rows;
    - below: r squared times that share. A model too sure of itself shows fewer such rows, so below they are
      also held against the rows that the model itself expects to take for a wrong class. To this is added
      twice the difference between the estimates with and without unmixing;
    - either way at least 0.2 times that share.

    Both ends are then widened by the sampling error at `level`, that of the share of THESE labels: how far
    the estimate moves, from one resample of the rows to another, against the share of rows that look like
    another class. So a model that separates the classes has a narrow interval. With a model that is not sure
    of its choices, or knows no more than how frequent each label is, the interval starts at 0.

    results/bench/rate_families.jsonl has estimates and intervals beside the drawn rates, and cleanlab's.

    Not covered are mistakes that follow a rule which the model can learn from the inputs, such as labels made
    by keywords: every row looks right. The rate is then `at_least` this one; a sample that a person
    labels (``tolerant audit RUN --sample 100``) tells it without bias.
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95
    at_least: bool = False
    """The labels look as if made by rules, whose mistakes do not show: the rate is a lower bound."""

    @property
    def vague(self) -> bool:
        """Too wide for the estimate to mean anything: say the interval alone."""
        return self.high - self.low > _VAGUE

    def times(self, share: float) -> RateInterval:
        """The rate among all rows, if this is the rate among a share of them and the others are right."""
        return replace(self, estimate=share * self.estimate, low=share * self.low, high=share * self.high)


def rate_interval(
    model: NoiseModel,
    given: NDArray[np.int64],
    probs: NDArray[np.floating],
    generator: np.random.Generator,
    *,
    anchors: Anchors | None,
    groups: NDArray[Any] | None = None,
    counted: NDArray[np.bool_] | None = None,
    known_wrong: NDArray[np.bool_] | None = None,
    share: float = 1.0,
) -> RateInterval:
    """How many of these labels are wrong, as far as the predictions can tell.

    Args:
        anchors: those of the same rows; None for a `OneRate` model, which knows the rate itself.
        groups: [N], rows that were labelled together, so they are resampled together: a thousand rows of ten
            groups tell no more about the noise rate than ten labels.
        counted: bool [N], the rows that the rate is of. The others a person has reviewed.
        known_wrong: bool [N], the labels among these that the person found to be wrong.
        share: if these rows were drawn from more, their share of them.
    """
    num_rows = len(given)
    group = np.arange(num_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    counted = np.ones(num_rows, np.bool_) if counted is None else counted
    known_wrong = np.zeros(num_rows, np.bool_) if known_wrong is None else known_wrong
    choice = probs.argmax(axis=1)
    rate, second, refit = _readings(model, anchors, given, probs)
    looks_other = (choice if anchors is None else anchors.choice) != given
    unsure = 1.0 - float((probs.max(axis=1) if anchors is None else anchors.sure).mean())

    def left(rate: float, index: Index | slice = slice(None)) -> float:
        """What that rate of all rows leaves for those that are counted."""
        most = max(int(counted[index].sum()), 1)
        wrong = rate * len(counted[index]) - known_wrong[index].sum()
        return float(np.clip(wrong / most, 0.0, 1.0))

    def beyond(index: Index) -> float:
        """What is left beyond the rows that look like another class: more wrong labels are more of both."""
        seen = looks_other[index[counted[index]]]
        return left(refit(index), index) - (float(seen.mean()) if len(seen) else 0.0)

    error = _DEVIATIONS * _standard_error(beyond, group, generator)
    is_doubted = choice != given
    doubted = float(is_doubted.mean())
    sums = np.bincount(group, is_doubted - doubted)
    doubted_error = _DEVIATIONS * np.sqrt((sums**2).sum()) / num_rows
    # With no wrong label among n found, up to 3 / n may still be wrong ("rule of three"), and with nothing
    # but wrong ones as many right: resamples that all look alike show no sampling error.
    error = max(
        float(np.hypot(error, np.sqrt(1.0 - share) * doubted_error)), 3.0 / len(np.unique(group[counted]))
    )
    estimate = left(rate)
    # Of a class that the model never sees every label looks wrong, whether it is or not.
    unseen = float((~np.isin(given, np.unique(choice))).mean())
    more = max(float(looks_other.mean()) - rate, 0.0)
    of_rate, of_unsure = (min(more / max(other, 1e-9), 1.0) for other in (rate, unsure))
    above, below = max(of_rate, _AT_LEAST), max(of_rate**2, of_unsure**2, _AT_LEAST)
    low = left(rate - _UNENDED * abs(second - rate) - below * more - unseen) - error
    high = left(rate + above * more) + error
    if anchors is not None and _has_none(anchors):
        low = 0.0
    # More labels wrong than rows look like another class: T has it that a class is always labelled otherwise.
    # So it comes out of a model that takes a rare class for noise, and shows nothing.
    if rate > doubted + doubted_error or _tells_nothing(model, given, probs):
        low, high = 0.0, max(high, left(doubted + doubted_error))
    return RateInterval(estimate, float(max(low, 0.0)), float(min(high, 1.0)))


def _standard_error(
    statistic: Callable[[Index], float], group: NDArray[np.int64], generator: np.random.Generator
) -> float:
    """The standard error of a function of row numbers, by resamples of whole groups."""
    members = np.split(np.argsort(group, kind="stable"), np.bincount(group).cumsum()[:-1])
    # As many groups as have _RESAMPLE_ROWS rows, on average.
    num_drawn = max(1, round(len(members) * min(1.0, _RESAMPLE_ROWS / len(group))))
    found = np.empty(_RESAMPLES)
    for resample in range(_RESAMPLES):
        drawn = generator.integers(len(members), size=num_drawn)
        found[resample] = statistic(np.concatenate([members[number] for number in drawn]))
    return float(found.std(ddof=1)) * float(np.sqrt(num_drawn / len(members)))


def _readings(
    model: NoiseModel, anchors: Anchors | None, given: NDArray[np.int64], probs: NDArray[np.floating]
) -> tuple[float, float, Callable[[Index], float]]:
    """The rate, a second opinion, and a function that fits the rate to a resample of the rows."""
    if anchors is not None:
        return anchors.rate, anchors.first_rate, anchors.refit
    assert isinstance(model, OneRate)
    again = model.refitter(given, probs)
    softer = replace(model, sharpness=_SOFTER * model.sharpness).refitter(given, probs)
    return model.expected_wrong(given, probs), softer(np.arange(len(given))), again


def _has_none(anchors: Anchors) -> bool:
    """Whether what counts as anchors is too unsure to be any: hard rows, each as much of another class."""
    by_chance = 1.0 / len(anchors.transition)
    told = 1.0 - float((anchors.choice != anchors.given_labels).mean()) / (1.0 - by_chance)
    sure = (float(anchors.sure.mean()) - by_chance) / (1.0 - by_chance)
    return told < _LEAST_TOLD and sure < _LEAST_SURE


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
