"""scikit-learn's own suite, on several configurations of the estimator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from tolerant import NoisyLabelClassifier

# The checks' data is often random: a class may well vanish, and the user is told.
pytestmark = pytest.mark.filterwarnings("ignore:pruning at k=")

# What scikit-learn itself expects of SGDClassifier, which draws batches of rows as this one does.
REPEATED = "a row of weight 2 is in one batch and one fold, a row given twice may be in two"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REPEATED,
    "check_sample_weight_equivalence_on_sparse_data": REPEATED,
}

NETWORKS: list[dict[str, Any]] = [
    {"folds": 2, "k": "auto"},
    {"folds": 0, "loss": "cce", "model": "mlp", "batch_size": 16, "class_weight": "balanced"},
]


@parametrize_with_checks(
    [
        *(NoisyLabelClassifier(epochs=9, lr=0.02, **options) for options in NETWORKS),
        # Of scikit-learn's kind; one that is named goes the same way, once it is made.
        NoisyLabelClassifier(folds=2, model=LogisticRegression()),
    ],
    expected_failed_checks=lambda estimator: EXPECTED,
)
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
def test_scikit_learns_own_check(estimator, check):
    check(estimator)
