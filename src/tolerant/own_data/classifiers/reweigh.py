"""L_q for any classifier that takes sample weights and minimises cross entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST_ROUNDS = 10
_STILL = 1e-4  # of the mean loss; less than that is no progress


def fit_lq(
    fit: Any, probs: Any, given_labels: np.ndarray, sample_weight: np.ndarray | None, q: float
) -> tuple[Any, list[float]]:
    """Fit again and again with the weights p_y^q of the fit before; (the last fit, the mean L_q after each).

    L_q = (1 - exp(-q ce)) / q is concave in the cross entropy ce = -log p_y, so its tangent, of slope p_y^q,
    lies above it: a fit that lowers the tangent lowers L_q. So the mean falls from fit to fit, up to what a
    penalty on the weights adds and to the precision of the fits.

    ``fit(weight)`` returns a fitted classifier, ``probs(classifier)`` its predictions [N, C] for these rows.
    """
    base = np.ones(len(given_labels)) if sample_weight is None else sample_weight
    fitted, weight, losses = None, base, [np.inf]
    for _ in range(_MOST_ROUNDS):
        found = fit(weight)
        p_y = probs(found)[np.arange(len(given_labels)), given_labels].astype(np.float64)
        loss = float(np.average(-np.expm1(q * np.log(np.maximum(p_y, 1e-300))) / q, weights=base))
        if loss > losses[-1] - _STILL and fitted is not None:
            break
        fitted, weight = found, base * p_y**q
        losses.append(loss)
    return fitted, losses[1:]
