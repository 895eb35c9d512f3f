"""The classifiers that have a name: one card each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tolerant.data.dataset import NoisyDataset
from tolerant.extras import extra
from tolerant.own_data.classifiers import rows
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant

OF_FEATURES = "discriminant"  # the classifier of pretrained features
_MOST_CLASSES_OF_BOOSTING = 50  # it grows a tree for each class in each of its rounds,
_MOST_COLUMNS_OF_BOOSTING = 10_000  # and searches all columns for each leaf: 0.5 ms a column and fit
# With fewer it splits leaves of an eighth of the rows: with 40 in each leaf its score was 12.9 points lower
# (standard error 5.8; seven public tables of 72 to 240 rows, three kinds of noise, two seeds). Even so it
# adds nothing to the others: 0.1 points without it (0.5; eight tables, three seeds).
_LEAST_ROWS_OF_BOOSTING = 320
# With more rows less regularisation changes little, and takes longer to fit.
_MOST_ROWS_OF_LESS_REGULARISED = 10_000
# With fewer larger trees are hardly ever the likelier ones (24 draws of labels of 13 tables, 1,050 rows: 0.0
# points of score). With 9,000 to 14,000 rows the choice was worth 0.2 points (27 draws of 14 tables), 3 where
# columns tell classes apart in fine steps: flights by airline, diamonds by cut.
_LEAST_ROWS_OF_LARGER_TREES = 5_000


@dataclass(frozen=True)
class Card:
    """A classifier: what it is given of the rows, and which rows it suits.

    None of them weighs the classes while it is fitted: predictions are moved afterwards (`temper`), as
    far as that agrees with the given labels. A weight in the fit would be all or nothing.
    """

    name: str
    about: str
    make: Callable[[NoisyDataset, int], Any]
    """(rows to fit, seed) -> an unfitted classifier."""
    rows: Callable[[NoisyDataset], Any]
    suits: Callable[[NoisyDataset], bool]
    in_auto: Callable[[NoisyDataset], bool]
    """Whether ``auto`` tries it on such rows."""
    seconds: Callable[[int, int, int], float]
    """Of one fit to (rows, cells that are not zero, classes), about, on one core of a small machine."""
    package: str = "sklearn"
    """Where it comes from."""
    part: str | None = None
    """Of texts and tables with texts, the part that it is given (`SparseRows.parts`); None: all."""
    instead_of: str | None = None
    """``auto`` takes one of the two: that under which the given labels are likelier, out of fold."""
    relabels: bool = False
    """It counts a doubted row for the classes it may be of: none is left out, and `fit` has `trusted`."""

    def check_installed(self) -> None:
        """A ModuleNotFoundError that says how to get it."""
        try:
            extra(self.package)
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"model {self.name!r} needs {self.package}: pip install {self.package}", name=missing.name
            ) from None


def _logistic(C: float) -> Any:
    return extra("sklearn.linear_model").LogisticRegression(C=C, max_iter=300)


def _linear(dataset: NoisyDataset, seed: int) -> Any:
    # Of scaled columns a tenth of scikit-learn's C: with it wrong labels are learnt, too. On labels that no
    # benchmark reports that was worth 2 to 5 points where rows are few, and cost 2 on one set of seven.
    return _logistic(1.0 if rows.is_sparse(dataset) else 0.1)


def _linear_of_texts(dataset: NoisyDataset, seed: int) -> Any:
    if not _is_text(dataset):
        return _linear(dataset, seed)
    # The same minimum by steps, each on one row: in a tenth of the time, probabilities within 0.01 (1,700
    # to 5,000 texts). They need rows that are all as long, which TF-IDF has.
    return extra("sklearn.linear_model").LogisticRegression(
        solver="saga", max_iter=_passes(len(dataset)), random_state=seed
    )


def _passes(num_rows: int) -> int:
    # Of 80,000 texts -log p of held-out labels is 1.95, 1.89, 1.88 and 1.87 after 1, 2, 3 and 5.
    return 10 if num_rows <= 20_000 else 5


def _linear_seconds(num_rows: int, cells: int, classes: int) -> float:
    return 0.05 + 1e-7 * cells * classes


def _linear_of_texts_seconds(num_rows: int, cells: int, classes: int) -> float:
    return 0.05 + 4e-9 * _passes(num_rows) * cells * classes


def _rows_a_leaf(dataset: NoisyDataset) -> int:
    return max(5, min(len(dataset), _LEAST_ROWS_OF_BOOSTING) // 8)


def _boosting(dataset: NoisyDataset, seed: int, **steps: float) -> Any:
    # Small steps, large leaves, strong regularisation: with the defaults it memorises wrong labels.
    leaf = _rows_a_leaf(dataset)
    return extra("sklearn.ensemble").HistGradientBoostingClassifier(
        **steps,
        min_samples_leaf=leaf,
        l2_regularization=leaf / 4,  # as much as the sum of p (1 - p) in the least leaf
        early_stopping=False,
        random_state=seed,
    )


def _forest(dataset: NoisyDataset, seed: int) -> Any:
    return extra("sklearn.ensemble").RandomForestClassifier(80, min_samples_leaf=5, random_state=seed)


def _extra_trees(dataset: NoisyDataset, seed: int) -> Any:
    return extra("sklearn.ensemble").ExtraTreesClassifier(80, min_samples_leaf=3, random_state=seed)


def _lightgbm(dataset: NoisyDataset, seed: int) -> Any:
    leaf = _rows_a_leaf(dataset)
    return extra("lightgbm").LGBMClassifier(
        learning_rate=0.05,
        n_estimators=80,
        num_leaves=15,
        min_child_samples=leaf,
        reg_lambda=leaf / 4,
        n_jobs=1,  # folds run side by side
        verbosity=-1,
        random_state=seed,
    )


def _xgboost(dataset: NoisyDataset, seed: int) -> Any:
    leaf = _rows_a_leaf(dataset)
    return extra("xgboost").XGBClassifier(
        learning_rate=0.05,
        n_estimators=80,
        max_leaves=15,
        max_depth=0,
        grow_policy="lossguide",
        min_child_weight=leaf / 4,  # a sum of p (1 - p), at most a quarter for each row
        reg_lambda=leaf / 4,
        tree_method="hist",
        n_jobs=1,
        random_state=seed,
    )


def _bayes(dataset: NoisyDataset, seed: int) -> Any:
    return extra("sklearn.naive_bayes").ComplementNB(alpha=0.3)


def _discriminant(dataset: NoisyDataset, seed: int) -> Any:
    return RoundDiscriminant()


def _is_text(dataset: NoisyDataset) -> bool:
    return rows.has_part("words", dataset)


def _is_dense(dataset: NoisyDataset) -> bool:
    return dataset.kind == "table" and not rows.is_sparse(dataset)


def _has_columns(dataset: NoisyDataset) -> bool:
    """A table, with texts or without."""
    return dataset.kind == "table" and (rows.has_part("columns", dataset) or not rows.is_sparse(dataset))


def _may_need_less_regularised(dataset: NoisyDataset) -> bool:
    return _is_dense(dataset) and len(dataset) <= _MOST_ROWS_OF_LESS_REGULARISED


def _may_boost(dataset: NoisyDataset) -> bool:
    if not _has_columns(dataset):
        return False
    encoder = dataset.encoder
    num_columns = dataset.inputs.shape[1] if encoder is None else len(encoder.columns)
    return (
        len(dataset) >= _LEAST_ROWS_OF_BOOSTING
        and dataset.num_classes <= _MOST_CLASSES_OF_BOOSTING
        and num_columns <= _MOST_COLUMNS_OF_BOOSTING
    )


def _may_need_larger_trees(dataset: NoisyDataset) -> bool:
    return _may_boost(dataset) and len(dataset) >= _LEAST_ROWS_OF_LARGER_TREES


def _boosting_seconds(num_rows: int, cells: int, classes: int) -> float:
    return (0.15 + 1.2e-6 * cells) * max(1, classes - 1)


def _never(dataset: NoisyDataset) -> bool:
    return False


def _is_table(dataset: NoisyDataset) -> bool:
    return dataset.kind == "table"


def _counts(dataset: NoisyDataset) -> bool:
    """Sparse rows without negative numbers, such as counts and TF-IDF."""
    return rows.is_sparse(dataset) and rows.words(dataset).min() >= 0


def _less_regularised(C: int, as_much: str, *, seconds_a_cell: float) -> Card:
    """Where columns say nearly the same, classes differ in their small differences, which takes large
    coefficients: five measures of crabs' shells tell two species apart by 97 % instead of 80 %."""
    return Card(
        f"linear-{C}",
        f"logistic regression, regularised {as_much} as much",
        lambda dataset, seed: _logistic(C),
        rows.whole,
        suits=_is_dense,
        in_auto=_may_need_less_regularised,
        seconds=lambda num_rows, cells, classes: 0.05 + seconds_a_cell * cells * classes,
        instead_of="linear",
    )


# Trees, which take the columns of a table, and not its texts.
_of_columns = partial(
    Card, rows=rows.columns, suits=_has_columns, in_auto=_never, seconds=_boosting_seconds, part="columns"
)

CLASSIFIERS = {
    card.name: card
    for card in (
        Card(
            "linear",
            "logistic regression on scaled columns, on columns and words, or on words and characters",
            _linear_of_texts,
            rows.with_words,
            suits=_is_table,
            in_auto=lambda dataset: _has_columns(dataset) or (_is_table(dataset) and not _is_text(dataset)),
            seconds=_linear_seconds,
        ),
        _less_regularised(1, "a tenth", seconds_a_cell=1.5e-7),
        _less_regularised(10, "a hundredth", seconds_a_cell=2e-7),
        _of_columns(
            "trees",
            "gradient boosting, on categories as codes and gaps as they are",
            partial(_boosting, learning_rate=0.05, max_iter=80, max_leaf_nodes=15),
            in_auto=_may_boost,
        ),
        _of_columns(
            "larger-trees",
            "gradient boosting of twice as many leaves a tree, in twice as large steps",
            partial(_boosting, learning_rate=0.1, max_iter=100, max_leaf_nodes=31),
            in_auto=_may_need_larger_trees,
            seconds=lambda num_rows, cells, classes: 2 * _boosting_seconds(num_rows, cells, classes),
            instead_of="trees",
        ),
        _of_columns(
            "forest",
            "random forest, at least five rows a leaf",
            _forest,
            rows=rows.of_table,
            in_auto=_has_columns,
            # A split looks at as many columns as the root of their number.
            seconds=lambda num_rows, cells, classes: (
                0.15 + 1.5e-4 * num_rows + 9e-6 * (num_rows * cells) ** 0.5 + 8e-8 * cells
            ),
        ),
        _of_columns(
            "extra-trees",
            "trees that split at random places, at least three rows a leaf",
            _extra_trees,
            rows=rows.of_table,
            in_auto=_has_columns,
            seconds=lambda num_rows, cells, classes: (
                0.1 + 1e-4 * num_rows + 2e-6 * (num_rows * cells) ** 0.5 + 8e-8 * cells
            ),
        ),
        Card(
            OF_FEATURES,
            "linear discriminant of features, which relabels doubted rows and teaches networks",
            _discriminant,
            rows.unread,
            suits=_is_dense,
            in_auto=_never,  # of columns that a person chose others tell more
            seconds=lambda num_rows, cells, classes: 0.2 + 5e-10 * cells**2 / max(num_rows, 1),
            relabels=True,
        ),
        _of_columns(
            "lightgbm", "LightGBM's gradient boosting, where installed", _lightgbm, package="lightgbm"
        ),
        _of_columns("xgboost", "XGBoost's gradient boosting, where installed", _xgboost, package="xgboost"),
        Card(
            "words",
            "logistic regression on words and pairs of words",
            _linear_of_texts,
            rows.words,
            suits=rows.is_sparse,
            in_auto=_is_text,
            seconds=_linear_of_texts_seconds,
            part="words",
        ),
        Card(
            "characters",
            "logistic regression on runs of two to five characters",
            _linear_of_texts,
            rows.characters,
            suits=partial(rows.has_part, "characters"),
            in_auto=partial(rows.has_part, "characters"),
            seconds=_linear_of_texts_seconds,
            part="characters",
        ),
        Card(
            "meaning",
            "logistic regression on the features of a pretrained extractor of texts",
            _linear,
            rows.meaning,
            suits=partial(rows.has_part, "meaning"),
            in_auto=partial(rows.has_part, "meaning"),
            seconds=lambda num_rows, cells, classes: 0.1 + 4e-5 * num_rows * classes,
            part="meaning",
        ),
        Card(
            "bayes",
            "complement naive Bayes on words",
            _bayes,
            rows.words,
            suits=_counts,
            in_auto=_counts,
            seconds=lambda num_rows, cells, classes: 0.02 + 1e-8 * cells,
            part="words",
        ),
    )
}
