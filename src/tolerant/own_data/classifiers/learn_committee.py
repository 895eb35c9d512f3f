"""The classifiers that were chosen, fitted to the labels that they believe, or to all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tolerant.own_data.believed import believed_by_folds
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.kept_scores import KeptScores
from tolerant.own_data.classifiers.member import Member
from tolerant.own_data.classifiers.rows import are_texts
from tolerant.own_data.classifiers.score import fit_member, score_member
from tolerant.own_data.classifiers.side_by_side import side_by_side
from tolerant.own_data.classifiers.taught import Taught, can_answer, teach
from tolerant.own_data.classifiers.temper import choose_tau, temper
from tolerant.own_data.classifiers.trial import Trial
from tolerant.own_data.learned import Learned
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.own_data.task import Task
from tolerant.own_data.warn_of_classes import warn_of_lost_classes
from tolerant.suspects.anchors import fit_anchors
from tolerant.suspects.noise_model import has_whole_matrix, sample_to_fit
from tolerant.suspects.unweighted import as_if_unweighted

_K = 0.5  # of networks, which go on pruning
# By so much several classifiers must agree better with the given labels of a table, out of fold, before they
# are fitted without the doubted ones: these are often hard or of a rare class, and none of the classifiers
# learns much from a single row. On tables that no benchmark reports, a fifth of the labels wrong, that was
# worth 0.3 points (standard error 0.2; 50 tables of 95 to 916 rows, 158 draws) against leaving out what is
# more likely wrong than right, and 0.5 (0.2) against leaving out what is wrong by nine to one; from 1,031 to
# 1,750 rows 0.3 (0.1; 13 tables). Where two fifths are wrong nothing can be told: -0.2 (0.3) and -0.4 (0.8).
_GAIN_BY_LEAVING_OUT = 0.01
# Of a class no larger share of the labels is taken to be lost where predictions are moved towards rare
# classes: few rows tell T badly. With a class of fewer labels than these, whose true number hangs on a few
# labels of other classes, nothing is reckoned. To reckon with T was worth 0.3 points (standard error 0.1) on
# tables that no benchmark reports (160 of at most 700 rows, a fifth of the labels wrong in three ways, one
# draw each), 0.6 where labels were lost one way; on those 70 of them by which nothing was chosen 0.2 (0.1).
_MOST_WRONG, _LEAST_TO_TELL = 0.3, 20


def learn_committee(members: Sequence[Member], trial: Trial, task: Task, kept: KeptScores) -> Learned:
    """Doubt with the chosen members, and fit them to the labels that they believe, or to all.

    Belief comes from the plain predictions. Doubts come from the mean of these and of what the members say
    out of fold once they are fitted to believed labels alone, moved towards rare classes.

    Several classifiers of a table are fitted to all rows, unless they agree clearly better with the given
    labels without the doubted ones.

    Members that relabel rows themselves are fitted to all of them, once: it would be worth 0.003 of the
    average precision of wrong labels among 5,000 photographs, and take as long again. Of pretrained
    features they then teach networks, which doubt and answer beside them.
    """
    dataset, settings, given = task.dataset, task.settings, task.dataset.given_labels
    chosen = [member for member in members if member.name in trial.choice.names]
    plain = _mean([trial.scored[member.name].out_of_fold for member in chosen])
    by_folds, _ = believed_by_folds(dataset, plain, settings, task.first_labels, _K)
    believed = task.believed(by_folds)
    doubts, as_fitted, held_out = plain, plain, plain.held_out
    relabels = all(member.relabels for member in chosen)
    kept_rows = believed | relabels
    if not kept_rows.all() and held_out.any():
        scored = [
            kept.get(
                f"{member.name} again", partial(score_member, member, task, trial.parts, believed=believed)
            )
            for member in chosen
        ]
        again = _mean([each.out_of_fold for each in scored])
        doubts = _mean([plain, again])
        prior = task.prior(task.used(believed))
        _, score = choose_tau(given[held_out], again.probs[held_out], prior, settings.class_weight)
        must_gain = len(members) > 1 and not are_texts(dataset)
        if must_gain and score <= trial.choice.score + _GAIN_BY_LEAVING_OUT:
            kept_rows = np.ones_like(believed)
        else:
            as_fitted = again
    used = task.used(kept_rows)
    prior, tau = task.prior(used), trial.choice.tau
    if held_out.any() and not relabels:
        tau = _tau_of_true(task, plain, as_fitted, prior)
        if settings.class_weight == "balanced":
            prior = _share_said(as_fitted.probs[held_out])
    fitted = side_by_side(partial(fit_member, task=task, used=used), chosen)
    rate_by = None
    if relabels and settings.pretrained and held_out.all():
        networks, said = teach(plain, task)
        if said.held_out.all():
            doubts, rate_by = _mean([plain, said]), plain
            if can_answer(len(used), dataset.num_classes):
                fitted = [Taught(each, networks) for each in fitted]
    names = [member.name for member in chosen]
    rows = {member.name: member.rows for member in chosen}
    committee = Committee(dict(zip(names, fitted, strict=True)), rows, prior, tau)
    prior = task.prior()
    probs = temper(doubts.probs, prior, trial.choice.tau)
    rate_probs = None if rate_by is None else temper(rate_by.probs, prior, trial.choice.tau)
    if not held_out.all():
        own, weight = committee.probs(dataset), task.sample_weight
        own = own if weight is None else as_if_unweighted(given, own, weight)
        probs = np.where(held_out[:, None], probs, own)
    warn_of_lost_classes(dataset, probs)
    pruned_at = np.where(kept_rows, -1, 0)
    return Learned(
        committee,
        None,
        probs,
        probs[np.arange(len(given)), given],
        task.suspects(
            probs,
            None if kept_rows.all() else kept_rows,
            pruned_at,
            prior,
            trial.choice.tau,
            of_true=relabels,
            rate_probs=rate_probs,
        ),
        kept_rows,
        pruned_at,
        k=None,
        seed=settings.seed,
        num_trained=len(used),
        tried=trial.tried,
        doubt_prior=prior,
        doubt_tau=trial.choice.tau,
        doubt_of_true=relabels,
        rate_probs=rate_probs,
    )


def _tau_of_true(task: Task, plain: OutOfFold, as_fitted: OutOfFold, prior: np.ndarray) -> float:
    """How far to move what is said of new rows: as agrees with true labels, where enough rows tell these.

    What is said of the rows at hand, to doubt their labels, is moved as agrees with these.
    """
    held_out = np.flatnonzero(plain.held_out)
    given, transition = task.dataset.given_labels[held_out], None
    enough = np.bincount(given, minlength=len(prior)).min() >= _LEAST_TO_TELL
    if enough and not are_texts(task.dataset) and has_whole_matrix(len(given), len(prior)):
        sample = sample_to_fit(len(given))
        found = fit_anchors(given[sample], plain.probs[held_out][sample]).transition
        share = np.minimum(1.0, _MOST_WRONG / np.maximum(1.0 - found.diagonal(), _MOST_WRONG))
        transition = share[:, None] * found + np.diag(1.0 - share)
    tau, _ = choose_tau(given, as_fitted.probs[held_out], prior, task.settings.class_weight, transition)
    return tau


def _mean(scored: Sequence[OutOfFold]) -> OutOfFold:
    return OutOfFold(np.mean([each.probs for each in scored], axis=0), scored[0].held_out)


def _share_said(probs: np.ndarray) -> np.ndarray:
    """float64 [C]: how frequent each class is by what is said of the rows.

    Where tau is 1 and not chosen, predictions are divided by these shares, not by those of the labels. Naive
    Bayes, say, takes classes for more alike than they are: a class of four labels among 604 got every row. On
    8 sets of texts with labels by rules the balanced accuracy was 4.5 points higher (standard error 2.6; six
    of them are in no benchmark), on 12 with drawn ones 0.1 (0.2).
    """
    share = probs.mean(axis=0, dtype=np.float64)
    return np.asarray(share / share.sum())
