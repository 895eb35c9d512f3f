"""Whether labels of texts look as if keyword rules had made them.

A model learns such rules, mistakes included, so its predictions show none of the mistakes: the noise rate is
then a lower bound only. Labels by people need more than a handful of words.
"""

from __future__ import annotations

import warnings

import numpy as np

from tolerant.data.dataset import Inputs
from tolerant.extras import extra

_LEAST_ROWS, _MOST_ROWS, _FOLDS = 300, 5000, 3
_LEAVES_A_CLASS = 3
# On TREC's questions such a tree misses fewer of the labels by rules, and over a third of the true ones.
_MOST_MISSED = 0.06
_OF_THE_REST = 0.2  # and of the rows outside the largest class: to guess that class is no rule


def made_by_rules(texts: Inputs, given_labels: np.ndarray) -> bool:
    """Whether a tree with three leaves a class, which asks for words and pairs, tells nearly every label.

    Looked at are at most 5,000 texts, each by a tree that has not seen it; fewer than 300 are too few.
    """
    index = np.random.default_rng(0).permutation(len(texts))[:_MOST_ROWS]
    given = given_labels[index]
    counts = np.bincount(given)
    if len(index) < _LEAST_ROWS or (counts > 0).sum() < 2:
        return False
    words = extra("sklearn.feature_extraction.text").CountVectorizer(
        binary=True, ngram_range=(1, 2), min_df=3, token_pattern=r"(?u)\b\w+\b"
    )
    try:
        found = words.fit_transform([str(text) for text in texts[index]])
    except ValueError:  # no word occurs three times
        return False
    tree = extra("sklearn.tree").DecisionTreeClassifier(
        max_leaf_nodes=_LEAVES_A_CLASS * int((counts > 0).sum()), random_state=0
    )
    selection = extra("sklearn.model_selection")
    with warnings.catch_warnings(action="ignore"):  # of classes with fewer rows than folds
        folds = selection.StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
        told = selection.cross_val_predict(tree, found, given, cv=folds)
    missed = float((told != given).mean())
    return bool(missed <= min(_MOST_MISSED, _OF_THE_REST * (1.0 - counts.max() / len(given))))
