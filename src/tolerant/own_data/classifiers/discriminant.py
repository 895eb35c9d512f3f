"""Linear discriminant analysis of pretrained features, of rows that count for every class they may be of.

It takes from the labels of a class the mean of its rows and little else, and wrong labels move all means
towards each other, hardly aside. So it forgives them where logistic regression, which is decided by the rows
between the classes, learns them. It is fitted twice:

- to the given labels. The covariance within the classes is mixed with much of the identity: the mistaken rows
  of a class widen it in the very directions that tell classes apart.
- to what such fits, of other rows, and the noise model make of each label: the probability of every class. So
  the rows whose label is doubted are not lost, and less of the identity is needed.

How much of it is told, for either fit, by the given labels of a fifth of the rows, which it has not seen; the
second time through the noise model. They also tell whether the second fit is taken at all: where the first is
too often wrong, as with a hundred classes and 50 rows of each, the given labels are the better ones. (5,000
photographs with 40 % wrong labels by people, the last map of `lite0`, means of three draws that no benchmark
reports: 80.6 % of 4,000 other photographs are right by the first fit, with 0.8 of the identity, and 81.5 % by
the second, with 0.2 to 0.5. By the rows that are more likely right than wrong alone 80.7 %; by true labels it
would be 83.9 %.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tolerant.extras import extra
from tolerant.suspects.noise_model import NoiseModel, fit_noise_model, posterior, sample_to_fit

BLOCK = 4096  # rows in memory at a time: features of a million pictures stay in their memory map
_LEAST = 1e-6
# Of a mean square: what 32 bits leave of the variance of a column that is constant.
_ROUNDING = 1e-5
_LEAST_WITHIN = 1e-3  # of a variance of 1
_PARTS = 5
_JUDGES = 0  # the part whose given labels choose
_SHRINKAGES = (0.2, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95)
_SCALES = np.geomspace(2.0, 1 / 64, 29)
# Rows are relabelled unless the judges' labels are likelier by more without it. Photographs with labels by
# people (draws that no benchmark reports): ten classes, by at most 1.2, and it is worth a point; true labels,
# by 1.9, and it costs half of one; a hundred classes, by 4.7 to 6.7, and it costs up to 1.4.
_ERRORS_OF_RELABELLING = 1.5
# Of T; with more of them one noise rate is taken. Ten classes, 600 rows: 73 % right by T, 75 % by one rate;
# 1,500 rows: 78.4 and 77.7 %; a hundred classes, 5,000 rows: 49 and 52 %. (As above, with labels by people.)
_ENTRIES_A_ROW = 0.1


Plane = tuple[np.ndarray, np.ndarray]  # float64 [C, D], [C]: logits are a row times the first plus the second
Moments = tuple[np.ndarray, np.ndarray]  # float64 [parts, C], [parts, C, D]: counts and sums of each class
Judged = list[tuple[float, np.ndarray]]  # a shrinkage, and the logits [n, C] of the rows that judge


@dataclass(frozen=True, eq=False)
class Choice:
    """How much of the identity, what logits are multiplied by, and how likely each judge's label is then."""

    shrinkage: float
    scale: float
    likely: np.ndarray


class RoundDiscriminant:
    """A classifier of scikit-learn's kind, of dense rows, in memory or not."""

    def fit(
        self,
        X: Any,
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        trusted: np.ndarray | None = None,
    ) -> RoundDiscriminant:
        """Columns are scaled; rows of weight 0 count for nothing, ``trusted`` labels are right."""
        self.classes_, label = np.unique(y, return_inverse=True)
        weight = np.ones(len(label)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        rows = _Rows(X, label, weight, len(self.classes_))
        one_hot = np.eye(len(self.classes_), dtype=np.float32)

        def relabelled(probs: np.ndarray, noise: NoiseModel) -> Moments:
            found = posterior(noise, label, probs)
            if trusted is not None:
                found[trusted] = one_hot[label[trusted]]
            return rows.moments(found)

        given = rows.moments(one_hot[label])
        judged = rows.judge(given)
        first = rows.choose(judged, None)
        # The labels of the other parts have to be told without the one that judges.
        probs = rows.out_of_part(given, first, {_JUDGES})
        noise = rows.fit_noise(probs, rows.part != _JUDGES)
        plain = rows.choose(judged, noise)
        second = rows.choose(rows.judge(relabelled(probs, noise)), noise)
        moments, chosen = given, plain
        if not _is_surpassed(second.likely, plain.likely, _ERRORS_OF_RELABELLING):
            probs = rows.out_of_part(given, first, set())
            moments, chosen = relabelled(probs, rows.fit_noise(probs, rows.part >= 0)), second
        plane = rows.classes(moments, set()).plane(chosen.shrinkage)
        self.coef_, self.intercept_ = (chosen.scale * part for part in plane)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """float64 [N, C]."""
        starts = range(0, X.shape[0], BLOCK)
        found = [block(X, start) @ self.coef_.T + self.intercept_ for start in starts]
        return np.exp(_log_softmax(np.concatenate([np.empty((0, len(self.classes_))), *found])))


@dataclass(frozen=True, eq=False)
class _Classes:
    """Where classes are, and how rows lie around them."""

    within: np.ndarray
    """float32 [D, D], the covariance within the classes, of columns scaled to a variance of 1."""
    centres: np.ndarray
    """float64 [C, D], of such columns, from their middle."""
    share: np.ndarray
    deviation: np.ndarray
    middle: np.ndarray

    def plane(self, shrinkage: float) -> Plane:
        """Between the classes, with so much of the identity in the covariance."""
        even = max(float(np.trace(self.within)) / len(self.within), _LEAST_WITHIN)
        mixed = self.within * np.float32(1.0 - shrinkage)
        mixed[np.diag_indices(len(mixed))] += np.float32(shrinkage * even)
        linalg = extra("scipy.linalg")
        try:
            factor = linalg.cho_factor(mixed, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:  # of few rows in many columns some directions hold nothing but rounding
            return self.plane((1.0 + shrinkage) / 2)
        slopes = linalg.cho_solve(factor, self.centres.T.astype(np.float32), check_finite=False)
        slopes = slopes.astype(np.float64)
        coef = (slopes / self.deviation[:, None]).T
        level = np.log(np.maximum(self.share, _LEAST)) - (self.centres.T * slopes).sum(axis=0) / 2
        return coef, level - coef @ self.middle


class _Rows:
    """Rows in parts, and the sums over them that do not depend on labels."""

    def __init__(self, X: Any, label: np.ndarray, weight: np.ndarray, num_classes: int) -> None:
        self.X, self.label, self.weight, self.num_classes = X, label, weight, num_classes
        self.part = np.random.default_rng(0).permutation(len(label)) % _PARTS
        self.judges = np.flatnonzero((self.part == _JUDGES) & (weight > 0))[:BLOCK]
        near = block(X, 0)
        counted = near[weight[: len(near)] > 0]
        # Among the rows: so products in 32 bits are exact enough.
        self.origin = (counted if len(counted) else near).mean(axis=0)
        dim = X.shape[1]
        self.totals, self.sums = np.bincount(self.part, weight, _PARTS), np.zeros((_PARTS, dim))
        self.products = np.zeros((_PARTS, dim, dim), np.float32)
        for here, rows in self.blocks():
            for part in range(_PARTS):
                some = rows[self.part[here] == part]
                weighted = some * self.weight[here][self.part[here] == part, None].astype(np.float32)
                self.sums[part] += weighted.sum(axis=0)
                self.products[part] += weighted.T @ some

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        for start in range(0, len(self.label), BLOCK):
            yield slice(start, start + BLOCK), block(self.X, start) - self.origin

    def moments(self, labels: np.ndarray) -> Moments:
        """Of float32 [N, C], how much each row counts for each class."""
        counts = np.zeros((_PARTS, self.num_classes))
        sums = np.zeros((_PARTS, self.num_classes, self.X.shape[1]))
        for here, rows in self.blocks():
            weighted = labels[here] * self.weight[here][:, None].astype(np.float32)
            for part in range(_PARTS):
                some = self.part[here] == part
                counts[part] += weighted[some].sum(axis=0)
                sums[part] += weighted[some].T @ rows[some]
        return counts, sums

    def classes(self, moments: Moments, without: set[int]) -> _Classes:
        """As all parts but those show them."""
        parts = [part for part in range(_PARTS) if part not in without]
        counts, sums = (each[parts].sum(axis=0) for each in moments)
        total = max(self.totals[parts].sum(), _LEAST)
        middle = self.sums[parts].sum(axis=0) / total
        means = np.where(counts[:, None] > _LEAST, sums / np.maximum(counts, _LEAST)[:, None], middle)
        within = self.products[parts[0]].copy()
        for part in parts[1:]:  # one by one: all of them beside each other take the most memory here
            within += self.products[part]
        within /= np.float32(total)
        variance = within.diagonal() - middle**2
        # A column that only the part left out has values in says nothing. Its rounding, scaled to a variance
        # of 1, made the covariance indefinite, and all of that was shrunk away, in 24 attempts.
        constant = variance <= _ROUNDING * within.diagonal()
        deviation = np.where(constant, np.inf, np.sqrt(np.maximum(variance, 0.0)) + _LEAST)
        centres, share = (means - middle) / deviation, counts / total
        scale, at = (each.astype(np.float32) for each in (1 / deviation, middle / deviation))
        within *= scale
        within *= scale[:, None]
        apart = np.vstack([at, centres * np.sqrt(share)[:, None]]).astype(np.float32)
        within -= apart.T @ apart
        return _Classes(within, centres, share, deviation, middle + self.origin)

    def judge(self, moments: Moments) -> Judged:
        """What is said of the part that judges, from the others."""
        judges = np.asarray(self.X[self.judges], np.float32)
        classes, found = self.classes(moments, {_JUDGES}), []
        for shrinkage in _SHRINKAGES if len(judges) else ():
            coef, intercept = classes.plane(shrinkage)
            found.append((shrinkage, judges @ coef.T + intercept))
        return found

    def choose(self, judged: Judged, noise: NoiseModel | None) -> Choice:
        """The shrinkage, and the factor of the logits, by the labels of the part that has not been seen.

        Those under which they are likeliest; or drawn by the ``noise`` from what is predicted, and then the
        least shrinkage within a standard error of the likeliest: with the part itself it needs less.
        """
        label, found = self.label[self.judges], []
        for shrinkage, logits in judged:
            likely = [_log_likelihood(label, scale * logits, noise) for scale in _SCALES]
            best = int(np.argmax([each.sum() for each in likely]))
            found.append(Choice(shrinkage, float(_SCALES[best]), likely[best]))
        if not found:  # too few rows, or none of them has a weight
            return Choice(_SHRINKAGES[-1], 1.0, np.empty(0))
        most = max(found, key=lambda each: float(each.likely.sum()))
        errors = 0.0 if noise is None else 1.0
        return next(each for each in found if not _is_surpassed(each.likely, most.likely, errors))

    def out_of_part(self, moments: Moments, by: Choice, without: set[int]) -> np.ndarray:
        """float32 [N, C]: what is said of each row from all parts but its own and those."""
        planes = [self.classes(moments, {part} | without).plane(by.shrinkage) for part in range(_PARTS)]
        probs = np.empty((len(self.label), self.num_classes), np.float32)
        for here, rows in self.blocks():
            rows += self.origin
            for part, (coef, intercept) in enumerate(planes):
                some = np.flatnonzero(self.part[here] == part)
                logits = by.scale * (rows[some] @ coef.T + intercept)
                probs[here.start + some] = np.exp(_log_softmax(logits))
        return probs

    def fit_noise(self, probs: np.ndarray, among: np.ndarray) -> NoiseModel:
        index = np.flatnonzero(among & (self.weight > 0))
        index = index[sample_to_fit(len(index))]
        return fit_noise_model(self.label[index], probs[index], entries_a_row=_ENTRIES_A_ROW)


def _is_surpassed(likely: np.ndarray, most: np.ndarray, errors: float) -> bool:
    """Whether others make the same labels likelier, by more than so many of its standard errors."""
    more = most - likely
    return bool(more.sum() > errors * np.sqrt(len(more)) * more.std()) if len(more) else False


def _log_likelihood(label: np.ndarray, logits: np.ndarray, noise: NoiseModel | None) -> np.ndarray:
    """[N]."""
    probs = np.exp(_log_softmax(logits))
    if noise is not None:
        probs = probs @ noise.transition
    return np.log(np.maximum(probs[np.arange(len(label)), label], 1e-300))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    away = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(away - np.log(np.exp(away).sum(axis=1, keepdims=True)))


def block(X: Any, start: int) -> np.ndarray:
    return np.asarray(X[np.arange(start, min(start + BLOCK, X.shape[0]))], np.float32)
