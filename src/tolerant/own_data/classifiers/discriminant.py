"""Linear discriminant analysis of pretrained features, of rows that count for every class they may be of.

It takes from the labels of a class the mean of its rows and little else, and wrong labels move all means
towards each other, hardly aside. So it forgives them where logistic regression, which is decided by the rows
between the classes, learns them. It is fitted twice:

- to the given labels. The covariance within the classes is mixed with much of the identity: the mistaken rows
  of a class widen it in the very directions that tell classes apart.
- to what such fits, of other rows, and the noise model make of each label: the probability of every class. So
  the rows whose label is doubted are not lost, and less of the identity is needed.

How much of it is told, for either fit, by the given labels of a fifth of the rows, which it has not seen; the
second time through the noise model. (Features of `lite0`, 5,000 photographs with 40 % wrong labels by people,
means of three draws that no benchmark reports: 80.6 % of 4,000 other photographs are right by the first fit,
with 0.8 of the identity, and 81.5 % by the second, with 0.2 to 0.5. By the rows that are more likely right
than wrong alone 80.7 %; by true labels it would be 83.9 %.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tolerant.suspects.noise_model import NoiseModel, fit_noise_model, posterior, sample_to_fit

_BLOCK = 4096  # rows in memory at a time: features of a million pictures stay in their memory map
_LEAST = 1e-6
_PARTS = 5
_JUDGES = 0  # the part whose given labels choose
_SHRINKAGES = (0.2, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95)
_SCALES = np.geomspace(2.0, 1 / 64, 29)
# Of T; with more of them one noise rate is taken. Ten classes, 600 rows: 73 % right by T, 75 % by one rate;
# 1,500 rows: 78.4 and 77.7 %; a hundred classes, 5,000 rows: 49 and 52 %. (As above, with labels by people.)
_ENTRIES_A_ROW = 0.1


Plane = tuple[np.ndarray, np.ndarray]  # float64 [C, D], [C]: logits are a row times the first plus the second
Moments = tuple[np.ndarray, np.ndarray]  # float64 [parts, C], [parts, C, D]: counts and sums of each class


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
        shrinkage, scale = rows.choose(given, None)
        # The labels of the other parts have to be told without the one that judges.
        probs = rows.out_of_part(given, shrinkage, scale, {_JUDGES})
        noise = rows.fit_noise(probs, rows.part != _JUDGES)
        final, final_scale = rows.choose(relabelled(probs, noise), noise)
        probs = rows.out_of_part(given, shrinkage, scale, set())
        whole = relabelled(probs, rows.fit_noise(probs, rows.part >= 0))
        self.coef_, self.intercept_ = (final_scale * part for part in rows.plane(whole, set(), final))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """float64 [N, C]."""
        starts = range(0, X.shape[0], _BLOCK)
        found = [_block(X, start) @ self.coef_.T + self.intercept_ for start in starts]
        return np.exp(_log_softmax(np.concatenate([np.empty((0, len(self.classes_))), *found])))


class _Rows:
    """Rows in parts, and the sums over them that do not depend on labels."""

    def __init__(self, X: Any, label: np.ndarray, weight: np.ndarray, num_classes: int) -> None:
        self.X, self.label, self.weight, self.num_classes = X, label, weight, num_classes
        self.part = np.random.default_rng(0).permutation(len(label)) % _PARTS
        self.origin = _block(X, 0).mean(axis=0)  # near the rows: products in 32 bits are exact enough
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
        for start in range(0, len(self.label), _BLOCK):
            yield slice(start, start + _BLOCK), _block(self.X, start) - self.origin

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

    def plane(self, moments: Moments, without: set[int], shrinkage: float) -> Plane:
        """Between the classes, from all parts but those."""
        parts = [part for part in range(_PARTS) if part not in without]
        counts, sums = (each[parts].sum(axis=0) for each in moments)
        total, dim = max(self.totals[parts].sum(), _LEAST), len(self.origin)
        middle = self.sums[parts].sum(axis=0) / total
        means = np.where(counts[:, None] > _LEAST, sums / np.maximum(counts, _LEAST)[:, None], middle)
        products = self.products[parts].sum(axis=0) / np.float32(total)
        deviation = np.sqrt(np.maximum(products.diagonal() - middle**2, 0.0)) + _LEAST
        centres = (means - middle) / deviation
        share = counts / total
        within = products / np.outer(deviation, deviation).astype(np.float32)
        at = (middle / deviation).astype(np.float32)
        within -= np.outer(at, at) + ((centres.T * share) @ centres).astype(np.float32)
        even = max(float(np.trace(within)) / dim, _LEAST)
        within *= np.float32(1.0 - shrinkage)
        within[np.diag_indices(dim)] += np.float32(shrinkage * even)
        slopes = np.linalg.solve(within, centres.T.astype(np.float32)).astype(np.float64)
        coef = (slopes / deviation[:, None]).T
        level = np.log(np.maximum(share, _LEAST)) - (centres.T * slopes).sum(axis=0) / 2
        return coef, level - coef @ (middle + self.origin)

    def choose(self, moments: Moments, noise: NoiseModel | None) -> tuple[float, float]:
        """The shrinkage, and the factor of the logits, by the labels of one part that has not been seen.

        Those under which they are likeliest; or drawn by the ``noise`` from what is predicted, and then the
        least shrinkage within a standard error of the likeliest: with the part itself it needs less.
        """
        judges = np.flatnonzero((self.part == _JUDGES) & (self.weight > 0))[:_BLOCK]
        if not len(judges):  # too few rows, or none of them has a weight
            return _SHRINKAGES[-1], 1.0
        rows, label = np.asarray(self.X[judges], np.float32), self.label[judges]

        found = []
        for shrinkage in _SHRINKAGES:
            coef, intercept = self.plane(moments, {_JUDGES}, shrinkage)
            logits = rows @ coef.T + intercept
            likely = [_log_likelihood(label, scale * logits, noise) for scale in _SCALES]
            best = int(np.argmax([each.sum() for each in likely]))
            found.append((likely[best], shrinkage, float(_SCALES[best])))
        most = max(found, key=lambda each: float(each[0].sum()))[0]
        errors = 0.0 if noise is None else 1.0
        return next(
            (shrinkage, scale)
            for rows_likely, shrinkage, scale in found
            if (most - rows_likely).sum() <= errors * np.sqrt(len(label)) * (most - rows_likely).std()
        )

    def out_of_part(self, moments: Moments, shrinkage: float, scale: float, without: set[int]) -> np.ndarray:
        """float32 [N, C]: what is said of each row from all parts but its own and those."""
        planes = [self.plane(moments, {part} | without, shrinkage) for part in range(_PARTS)]
        probs = np.empty((len(self.label), self.num_classes), np.float32)
        for here, rows in self.blocks():
            rows += self.origin
            for part, (coef, intercept) in enumerate(planes):
                some = np.flatnonzero(self.part[here] == part)
                logits = scale * (rows[some] @ coef.T + intercept)
                probs[here.start + some] = np.exp(_log_softmax(logits))
        return probs

    def fit_noise(self, probs: np.ndarray, among: np.ndarray) -> NoiseModel:
        index = np.flatnonzero(among & (self.weight > 0))
        index = index[sample_to_fit(len(index))]
        return fit_noise_model(self.label[index], probs[index], entries_a_row=_ENTRIES_A_ROW)


def _log_likelihood(label: np.ndarray, logits: np.ndarray, noise: NoiseModel | None) -> np.ndarray:
    """[N]."""
    probs = np.exp(_log_softmax(logits))
    if noise is not None:
        probs = probs @ noise.transition
    return np.log(np.maximum(probs[np.arange(len(label)), label], 1e-300))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    away = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(away - np.log(np.exp(away).sum(axis=1, keepdims=True)))


def _block(X: Any, start: int) -> np.ndarray:
    return np.asarray(X[np.arange(start, min(start + _BLOCK, X.shape[0]))], np.float32)
