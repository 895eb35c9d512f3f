"""Which labels are probably wrong, most doubtful first, and how many in all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolerant.checks import check_class_names
from tolerant.noise.estimate import check_probs
from tolerant.suspects.anchors import fit_anchors
from tolerant.suspects.arguments import (
    as_numpy,
    columns_by_name,
    read_groups,
    read_ids,
    read_labels,
    read_row_values,
    words_of,
)
from tolerant.suspects.noise_model import FIT_ROWS, fit_noise_model
from tolerant.suspects.one_rate import OneRate
from tolerant.suspects.rate import rate_interval
from tolerant.suspects.suspect_list import Suspects

_MOST_MOVED = 50.0  # of log odds: e^50 is as sure as can be


def find_suspects(
    given_labels: ArrayLike,
    probs: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    kept: ArrayLike | None = None,
    pruned_at: ArrayLike | None = None,
    reviewed: ArrayLike | None = None,
    original_labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> Suspects:
    """Rank the rows whose given label a model does not believe.

    Args:
        given_labels: int [N]; or words, all of them among ``class_names``. Without names the columns of
            ``probs`` are those of the words in alphabetical order, as scikit-learn's ``classes_`` are, or go
            by their names if it is a data frame whose columns are called like the labels.
        probs: [N, C] predictions of models that did NOT train on the row they score, from
            cross-validation or a held-out part. In the end a network fits even the wrong labels it
            trains on: scored on its own training rows, it believes them and they are missed. Train without
            class weights: with them rare classes seem frequent, and rows between two classes wrong.
        ids: [N] what a person calls each row, all different; row numbers if not given.
        class_names: C names, all different; "0", "1", ... if not given. If the columns of a data
            frame are called so, they go by these names, in whatever order they stand.
        kept: bool [N], False for rows that were pruned at the end of training.
        pruned_at: int [N], the epoch before which a row was pruned, 0 for before training, -1 for never.
        reviewed: bool [N], True where a person has decided the label, which is then taken as right:
            the row is not listed, and noise rate and transition come from the others.
        original_labels: [N] like given_labels, as they were before the review. The noise is then fitted to
            these. Without them it is fitted to the rows that nobody has reviewed, and after a review of the
            most doubtful ones it is estimated far too low: the surest mistakes are gone.
        groups: [N] words or numbers: rows of one group were labelled together, such as the pictures of a
            patient, and the interval of the noise rate is so much wider.
        seed: of the resampling behind the interval, and of the rows the noise is fitted to when
            there are more than 20,000.

    A row is listed when the model's first choice is another label. The order is by the probability that the
    given label is right. It follows from p_y and from which labels are often mistaken for which, as estimated
    from the same predictions (:mod:`tolerant.suspects.noise_model`).

    >>> probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.95, 0.05]])
    >>> suspects = find_suspects([0, 1, 0, 0], probs, class_names=("cat", "dog"))
    >>> [(s, suspects.class_names[label]) for s, label in
    ...  zip(suspects.index.tolist(), suspects.suggested_labels)]
    [(2, 'dog')]
    """
    probs, class_names = columns_by_name(probs, given_labels, class_names)
    probs = check_probs(as_numpy(probs))
    num_rows, num_classes = probs.shape
    class_names = words_of(given_labels, num_classes) if class_names is None else class_names
    names = check_class_names(class_names, num_classes)
    named = class_names is not None
    given = read_labels("given_labels", given_labels, num_rows, names, named=named)
    original = None
    if original_labels is not None:
        original = read_labels("original_labels", original_labels, num_rows, names, named=named)
    row_ids = read_ids(ids, num_rows)
    is_kept = read_row_values("kept", kept, num_rows, np.bool_)
    epochs = read_row_values("pruned_at", pruned_at, num_rows, np.int64)
    is_reviewed = read_row_values("reviewed", reviewed, num_rows, np.bool_)
    if is_reviewed is None:
        is_reviewed = np.zeros(num_rows, np.bool_)
    group_of = read_groups(groups, num_rows)

    generator = np.random.default_rng(seed)
    sample, share = _rows_to_fit(is_reviewed, original is not None, generator)
    counted = ~is_reviewed[sample]
    if not counted.any():  # of no rows there is no share
        counted[:] = True
    fit_labels = given if original is None else np.where(is_reviewed, original, given)
    fit_given, fit_probs = fit_labels[sample], probs[sample]
    model = fit_noise_model(fit_given, fit_probs)
    anchors = None if isinstance(model, OneRate) else fit_anchors(fit_given, fit_probs)
    rate = rate_interval(
        model,
        fit_given,
        fit_probs,
        generator,
        anchors=anchors,
        groups=None if group_of is None else group_of[sample],
        counted=counted,
        known_wrong=fit_given != given[sample],
        share=share,
    )
    log_odds = _as_many_wrong(model.log_odds_right(given, probs), ~is_reviewed, rate.estimate)
    log_odds[is_reviewed] = np.inf

    choice = probs.argmax(axis=1)
    index = np.flatnonzero((choice != given) & ~is_reviewed)
    index = index[np.argsort(log_odds[index], kind="stable")]
    return Suspects(
        index=index,
        ids=row_ids[index],
        given_labels=given[index],
        suggested_labels=choice[index].astype(np.int64),
        p_y=probs[index, given[index]].astype(np.float64),
        confidence=probs[index, choice[index]].astype(np.float64),
        kept=None if is_kept is None else is_kept[index],
        pruned_at=None if epochs is None else epochs[index],
        class_names=names,
        p_right=1.0 / (1.0 + np.exp(-log_odds)),
        noise_rate=rate.times(float(np.mean(~is_reviewed))),
        transition=model.transition if anchors is None else anchors.transition,
        kept_share=None if is_kept is None else float(is_kept.mean()),
        num_reviewed=int(is_reviewed.sum()),
    )


def _rows_to_fit(
    is_reviewed: NDArray[np.bool_], original_known: bool, generator: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """The rows that the noise is fitted to, `FIT_ROWS` at most, and their share of those they are drawn from.

    Reviewed rows count only with the labels from before the review: with corrected ones they show no noise.
    """
    rows = np.arange(len(is_reviewed))
    if not original_known and not is_reviewed.all():
        rows = np.flatnonzero(~is_reviewed)
    if len(rows) <= FIT_ROWS:
        return rows, 1.0
    return np.sort(generator.choice(rows, FIT_ROWS, replace=False)), FIT_ROWS / len(rows)


def _as_many_wrong(
    log_odds: NDArray[np.float64], counted: NDArray[np.bool_], rate: float
) -> NDArray[np.float64]:
    """Log odds moved by one number, which keeps their order, so that the counted rows lead to this rate.

    >>> moved = _as_many_wrong(np.array([5.0, 6.0, 9.0]), np.ones(3, bool), 0.5)
    >>> round(float((1 / (1 + np.exp(moved))).mean()), 6), np.diff(moved).tolist()
    (0.5, [1.0, 3.0])
    """
    some = log_odds[counted]
    if not len(some):
        return log_odds
    low, high = -_MOST_MOVED, _MOST_MOVED
    for _ in range(60):  # bisection
        middle = (low + high) / 2
        if (1.0 / (1.0 + np.exp(some + middle))).mean() > rate:
            low = middle
        else:
            high = middle
    return log_odds + (low + high) / 2
