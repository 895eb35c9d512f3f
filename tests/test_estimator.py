"""The estimator beyond scikit-learn's own suite: what it says of labels, what it takes, what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from train_helpers import pictures

from tolerant import NoisyLabelClassifier
from tolerant.data import Source, load
from tolerant.own_data.learn import learn


def quick(**options: Any) -> NoisyLabelClassifier:
    return NoisyLabelClassifier(**{"epochs": 9, "lr": 0.01, "folds": 2, "random_state": 0, **options})


def classifiers(model: str = "auto", **options: Any) -> NoisyLabelClassifier:
    """Epochs would ask for a network."""
    return NoisyLabelClassifier(model=model, folds=2, random_state=0, **options)


def noisy_blobs(num_rows: int = 300, rate: float = 0.3, seed: int = 0) -> tuple[Any, Any, Any]:
    X, true = make_blobs(n_samples=num_rows, centers=3, cluster_std=1.0, random_state=seed)
    rng = np.random.default_rng(seed)
    moved = (true + rng.integers(1, 3, num_rows)) % 3
    return X, np.where(rng.random(num_rows) < rate, moved, true), true


@pytest.fixture(scope="module")
def blobs() -> tuple[Any, Any, Any]:
    return noisy_blobs()


@pytest.fixture(scope="module")
def fitted(blobs) -> NoisyLabelClassifier:
    X, given, _ = blobs
    return quick(folds=3, epochs=15).fit(X, given)


def test_it_learns_the_truth_and_ranks_the_wrong_labels_first(blobs, fitted):
    X, given, true = blobs
    wrong = given != true
    assert fitted.score(X, true) > 0.92
    assert average_precision_score(wrong, -fitted.p_y_) > 0.9
    assert fitted.noise_rate_interval_[0] <= wrong.mean() <= fitted.noise_rate_interval_[1]
    assert abs(fitted.noise_rate_ - wrong.mean()) < 0.1
    assert fitted.transition_.shape == (3, 3)
    assert wrong[~fitted.kept_].mean() > 0.8
    assert not wrong[fitted.kept_].all()
    assert fitted.suspects_.num_rows == len(X)
    pruned_at = fitted.suspects_.pruned_at
    assert not fitted.suspects_.kept[pruned_at >= 0].any()
    assert (pruned_at >= 5).any()  # a third of 15 epochs
    assert fitted.k_ == 0.5


def test_a_model_that_doubts_most_labels_prunes_none():
    """Ten classes that the features say nothing of: no p_y is above k, and no doubt is evidence."""
    rng = np.random.default_rng(0)
    X, given = rng.normal(size=(300, 2)), rng.integers(0, 10, 300)
    model = quick(folds=0, epochs=6).fit(X, given)
    assert (model.p_y_ <= model.k_).mean() > 0.5
    assert model.kept_.all()
    assert model.history_[-1]["kept_fraction"] == 1.0


def test_out_of_fold_scores_do_not_believe_memorised_labels():
    """A network that learns every label by heart still doubts the wrong ones, out of fold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 100))
    true = (X[:, :10].sum(1) > 0).astype(int)
    wrong = rng.random(80) < 0.25
    given = np.where(wrong, 1 - true, true)
    options = {"loss": "cce", "epochs": 12}
    by_heart = quick(**options, folds=0).fit(X, given)
    held_out = quick(**options, folds=4).fit(X, given)
    assert by_heart.p_y_[wrong].min() > 0.9
    assert held_out.p_y_[wrong].mean() < 0.6


def test_predictions_after_pickle_joblib_and_clone_are_the_same(blobs, fitted, tmp_path):
    X, given, _ = blobs
    expected = fitted.predict_proba(X)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), expected)
    joblib.dump(fitted, tmp_path / "model.joblib")
    assert np.array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(X), expected)
    again = clone(fitted)
    assert not hasattr(again, "model_")
    assert np.array_equal(again.fit(X, given).predict_proba(X), expected)


def test_words_for_labels(blobs):
    X, given, true = blobs
    names = np.array(["plum", "apple", "pear"])
    model = quick().fit(X, names[given])
    assert model.classes_.tolist() == ["apple", "pear", "plum"]
    assert (model.predict(X) == names[true]).mean() > 0.9
    assert set(model.suspects_.to_frame()["given_label"]) <= set(names)


def test_sparse_rows_are_the_same_rows(blobs):
    X, given, true = blobs
    matrix = scipy.sparse.csr_matrix(X)
    model = quick().fit(matrix, given)
    assert model.score(matrix, true) > 0.9
    assert np.allclose(model.predict_proba(matrix), model.predict_proba(X), atol=1e-6)
    dense = quick().fit(X, given)
    assert np.allclose(dense.predict_proba(matrix), dense.predict_proba(X), atol=1e-6)


def test_frames_keep_their_column_names(blobs):
    X, given, _ = blobs
    frame = pandas.DataFrame(X, columns=["height", "width"])
    model = quick(folds=0).fit(frame, given)
    assert model.feature_names_in_.tolist() == ["height", "width"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["width", "height"]])


@pytest.mark.parametrize(
    "index",
    [
        lambda n: [f"case {row}" for row in range(n)],
        lambda n: range(1_000, 1_000 + n),
        lambda n: pandas.date_range("2024-01-01", periods=n),
        lambda n: pandas.MultiIndex.from_product([range(n // 2), list("ab")]),
    ],
)
def test_suspects_of_a_frame_are_named_by_its_index(index, blobs):
    X, given, _ = blobs
    frame = pandas.DataFrame(X, columns=["height", "width"], index=index(len(X)))
    suspects = quick(folds=0).fit(frame, given).suspects_
    assert len(suspects)
    assert list(suspects.ids) == frame.index[suspects.index].tolist()
    assert np.array_equal(frame.loc[suspects.ids].to_numpy(), X[suspects.index])
    assert suspects.to_frame()["id"].tolist() == list(suspects.ids)


@pytest.mark.parametrize("index", [lambda n: [0] * n, lambda n: [1, "1", *range(2, n)]])
def test_an_index_that_does_not_tell_rows_apart_names_none(index, blobs):
    X, given, _ = blobs
    frame = pandas.DataFrame(X, columns=["height", "width"], index=index(len(X)))
    suspects = quick(folds=0).fit(frame, given).suspects_
    assert suspects.ids.tolist() == suspects.index.tolist()


def test_a_column_of_time_stamps_and_a_constant_one_do_no_harm(blobs):
    """1.7e9 with steps of seconds: float32 would leave nothing of it."""
    X, given, true = blobs
    late = np.column_stack([X[:, 0] + 1.7e9, X[:, 1], np.full(len(X), 7.0)])
    assert quick().fit(late, given).score(late, true) > 0.9


def convolution(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    channels, height, width = input_shape
    return nn.Sequential(nn.Conv2d(channels, num_classes, (height, width)), nn.Flatten())


def test_pictures():
    data = pictures(160, noise_rate=0.2)
    model = quick(folds=0, model="small-cnn", loss="lq").fit(data.inputs, data.given_labels)
    assert model.predict_proba(data.inputs).shape == (160, 4)
    assert (model.predict(data.inputs) == data.true_labels).mean() > 0.5
    grey = quick(folds=0, loss="lq").fit(data.inputs[..., 0], data.given_labels)
    assert grey.predict(data.inputs[..., 0]).shape == (160,)
    own = quick(folds=0, loss="lq", epochs=1, model=convolution).fit(data.inputs, data.given_labels)
    assert isinstance(own.model_[0], nn.Conv2d)
    with pytest.raises(ValueError, match="rows of shape"):
        model.predict(data.inputs[:, :, :8])
    with pytest.raises(ValueError, match="channels last"):
        quick().fit(data.inputs.transpose(0, 3, 1, 2), data.given_labels)


def small(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*input_shape, 8), nn.Tanh(), nn.Linear(8, num_classes))


def test_a_model_of_ones_own(blobs):
    X, given, true = blobs
    model = quick(model=small, lr=0.05).fit(X, given)
    assert isinstance(model.model_[1], nn.Tanh)
    assert model.score(X, true) > 0.9
    with pytest.raises(ValueError, match=r"must return an nn\.Module"):
        quick(model=lambda shape, classes: None).fit(X, given)


def test_warm_start_goes_on_from_the_last_model(blobs):
    X, given, _ = blobs
    model = quick(folds=0, warm_start=True, epochs=3, lr=1e-3, loss="cce").fit(X, given)
    first = model.history_[0]["train_loss"]
    model.fit(X, given)
    assert model.history_[0]["train_loss"] < 0.9 * first
    with pytest.raises(ValueError, match="warm_start needs the classes"):
        model.fit(X, given + 5)
    anew = clone(model).set_params(warm_start=False).fit(X, given)
    assert anew.fit(X, given).history_[0]["train_loss"] == pytest.approx(first)


def test_rows_of_weight_zero_teach_nothing(blobs):
    """Half of the rows, all labelled wrong, count for nothing; they are scored nevertheless."""
    X, _, true = blobs
    given, weight = true.copy(), np.ones(len(X))
    given[::2] = (true[::2] + 1) % 3
    weight[::2] = 0.0
    model = quick().fit(X, given, sample_weight=weight)
    assert model.score(X, true) > 0.85
    assert model.p_y_[::2].mean() < 0.15 < 0.8 < model.p_y_[1::2].mean()
    assert not model.kept_[::2].all()


def test_only_ratios_of_weights_matter(blobs):
    X, given, _ = blobs
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    one = quick(folds=0).fit(X, given, sample_weight=weight)
    thousand = quick(folds=0).fit(X, given, sample_weight=1000 * weight)
    assert np.allclose(one.predict_proba(X), thousand.predict_proba(X), atol=1e-4)


@pytest.mark.filterwarnings("ignore:the model hardly recognises")  # as it overlaps
def test_a_rare_class_that_overlaps_the_other_is_learnt_and_not_called_noise():
    """The first epoch was chosen, the class pruned with it, and a third of right labels called wrong."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 4))
    score = 2.5 * X[:, 0] + rng.logistic(size=1000)
    y = (score > np.quantile(score, 0.95)).astype(int)
    model = NoisyLabelClassifier(epochs=25, folds=2, random_state=0).fit(X[:600], y[:600])
    assert roc_auc_score(y[600:], model.predict_proba(X[600:])[:, 1]) > 0.8
    assert model.noise_rate_ < 0.05
    assert model.kept_[y[:600] == 1].mean() > 0.2


def test_a_rare_class_that_is_taken_for_noise_is_named():
    rng = np.random.default_rng(0)
    y = (rng.random(1000) < 0.02).astype(int)
    X = rng.normal(size=(1000, 4)) + 2.0 * y[:, None]
    with pytest.warns(
        UserWarning, match=r"hardly recognises '1' \(24 rows, predicted for 0\).*--class-weight balanced"
    ) as warned:
        NoisyLabelClassifier(epochs=6, folds=2, random_state=0).fit(X, y)
    assert {warning.filename for warning in warned} == {__file__}, "the caller's line, not ours"
    model = NoisyLabelClassifier(epochs=6, folds=2, class_weight="balanced", random_state=0).fit(X, y)
    assert model.predict(X[y == 1]).mean() > 0.8, "what the warning advises"


def test_of_a_hundred_and_fifty_rows_none_chooses_the_epoch():
    """Of iris a tenth is 15 rows: dozens of epochs tie, and the first of them named one class for two."""
    X, true = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    given = np.where(rng.random(150) < 0.1, (true + rng.integers(1, 3, 150)) % 3, true)
    model = NoisyLabelClassifier(epochs=60, folds=0, random_state=0).fit(X, given)
    assert model.score(X, true) > 0.94
    assert "validation_accuracy" not in model.history_[0]


@pytest.mark.filterwarnings("ignore:the model hardly recognises")  # without weights
def test_class_weight_moves_the_border():
    X, y = make_blobs(n_samples=[200, 20], centers=[[0.0], [1.5]], random_state=0)
    plain = quick(folds=0, loss="cce").fit(X, y)
    balanced = quick(folds=0, loss="cce", class_weight="balanced").fit(X, y)
    assert (balanced.predict(X) == 1).mean() > (plain.predict(X) == 1).mean() + 0.05


def test_weights_must_leave_two_classes(blobs):
    X, given, _ = blobs
    first = (given == given[0]).astype(float)
    with pytest.raises(ValueError, match="leave at least two classes a weight above 0; got 1"):
        quick(folds=0).fit(X, given, sample_weight=first)
    only = {label: float(label == given[0]) for label in np.unique(given).tolist()}
    with pytest.raises(ValueError, match="leave at least two classes a weight above 0; got 1"):
        quick(folds=0, class_weight=only).fit(X, given)


def test_class_weights_do_not_make_hard_rows_look_wrong():
    """All labels are right. A model with balanced weights names the rare class where both overlap."""
    rng = np.random.default_rng(0)
    y = rng.choice(2, size=1500, p=[0.9, 0.1])
    X = rng.normal(size=(1500, 4))
    X[np.arange(1500), y] += 1.5
    for folds in (0, 2):
        model = NoisyLabelClassifier(epochs=8, folds=folds, class_weight="balanced", random_state=0)
        model.fit(X, y)
        assert model.noise_rate_ < 0.05  # without a correction 0.14


def test_pipeline_grid_search_and_cross_validation(blobs):
    X, given, true = blobs
    pipeline = make_pipeline(StandardScaler(), quick(folds=0, epochs=5))
    search = GridSearchCV(pipeline, {"noisylabelclassifier__q": [0.5, 0.9]}, cv=2, n_jobs=1)
    assert search.fit(X, given).score(X, true) > 0.8
    probs = cross_val_predict(quick(folds=0, epochs=5), X, given, cv=2, method="predict_proba")
    assert probs.shape == (300, 3)


def test_numbers_of_numpy_are_numbers(blobs):
    """A grid of numpy.arange, or draws from scipy.stats."""
    X, given, _ = blobs
    options = {"epochs": 3, "batch_size": 32, "q": 0.5, "k": 2**-7, "lr": 2**-7, "folds": 2}
    types = {"epochs": np.int64, "batch_size": np.int32, "folds": np.int64}
    drawn = {name: types.get(name, np.float32)(value) for name, value in options.items()}
    plain, numpy = (NoisyLabelClassifier(random_state=0, **o).fit(X, given) for o in (options, drawn))
    assert np.array_equal(plain.p_y_, numpy.p_y_)


def test_texts_through_tf_idf():
    words = {0: ["sun", "rain", "wind", "cloud"], 1: ["goal", "match", "team", "ball"]}
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 160)
    texts = [" ".join(rng.choice(words[label], 3)) for label in true]
    given = np.where(rng.random(160) < 0.2, 1 - true, true)
    model = make_pipeline(TfidfVectorizer(), quick()).fit(texts, given)
    assert model.score(texts, true) > 0.95


@pytest.mark.parametrize("num_rows", [4, 10, 30])
def test_few_rows(num_rows):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 2))
    y = np.arange(num_rows) % 2
    X[:, 0] += 6 * y
    model = NoisyLabelClassifier(epochs=60, lr=0.01, batch_size=64, folds=3, random_state=0).fit(X, y)
    assert model.score(X, y) == 1.0
    assert model.p_y_.shape == (num_rows,)
    assert model.k_ is None


def test_a_class_of_one_or_two_rows_is_learnt_with(blobs):
    X, given, _ = blobs
    y = given.copy()
    y[:2] = 3
    y[2] = 4
    model = quick().fit(X, y)  # without a warning: a class that pruning would empty is spared
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert model.predict_proba(X).shape == (300, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_are_taken_as_arrays_are(blobs, dtype):
    X, given, _ = blobs
    tensor = torch.tensor(X, dtype=dtype, requires_grad=True)
    array = tensor.detach().float().numpy()
    ours, theirs = quick().fit(tensor, torch.tensor(given)), quick().fit(array, given)
    assert np.array_equal(ours.predict_proba(tensor), theirs.predict_proba(array))


def test_a_tensor_of_pictures():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = (rng.integers(0, 100, (60, 4, 4, 1)) + 100 * y[:, None, None, None]).astype(np.uint8)
    model = quick(folds=0).fit(torch.tensor(X), y)
    assert np.array_equal(model.predict(torch.tensor(X)), model.predict(X))
    with pytest.raises(
        ValueError, match=r"got float32 \(60, 1, 4, 4\).*transpose\(0, 2, 3, 1\) if the channels"
    ):
        model.fit(torch.tensor(X, dtype=torch.float32).permute(0, 3, 1, 2), y)


def people(rows: int, seed: int) -> tuple[pandas.DataFrame, np.ndarray]:
    """Who says yes follows from the town, among others; with gaps, dates and a comment."""
    rng = np.random.default_rng(seed)
    town, age = rng.choice(["Ulm", "Bonn", "Jena"], rows), rng.integers(18, 90, rows).astype(float)
    true = np.where((town == "Ulm") | (age > 75), "yes", "no")
    frame = pandas.DataFrame(
        {
            "town": town,
            "age": np.where(rng.random(rows) < 0.1, np.nan, age),
            "since": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 300, rows), "D"),
            "plan": pandas.Categorical(rng.integers(1, 4, rows)),
        }
    )
    return frame, true


@pytest.mark.parametrize("model", ["auto", "trees", "mlp"])
def test_a_frame_with_words_gaps_and_dates_is_taken_as_it_is(model):
    frame, true = people(400, 0)
    given = np.where(np.random.default_rng(0).random(400) < 0.1, "yes", true)
    fitted = (quick if model == "mlp" else classifiers)(model=model).fit(frame, given)
    new, answers = people(200, 1)
    assert fitted.score(new, answers) > 0.85
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    assert fitted.suspects_.ids.tolist() == fitted.suspects_.index.tolist()
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(new), fitted.predict_proba(new))
    one = new.iloc[:1].assign(town="Atlantis", age=np.nan)
    with pytest.warns(UserWarning, match="no word in the column 'town' is known"):
        assert fitted.predict(one)[0] in ("yes", "no")
    with pytest.raises(ValueError, match=r"missing:\n- town"):
        fitted.predict(new.drop(columns="town"))
    with (
        pytest.warns(UserWarning, match="feature names"),
        pytest.raises(ValueError, match=r"X must be a data frame, as in fit; got ndarray\."),
    ):
        fitted.predict(new.to_numpy())


def test_a_frame_says_the_same_as_the_file(tmp_path):
    """What the command line reads of it."""
    frame, given = people(300, 0)
    frame["plan"] = frame.plan.astype(str).radd("plan ")
    frame.assign(label=given).to_csv(tmp_path / "rows.csv", index=False)
    rows = load(tmp_path / "rows.csv")
    fitted = classifiers("trees").fit(frame, given)
    learned = learn(rows, replace(fitted._settings(), standardise=True), folds=fitted.folds, progress="quiet")
    assert np.array_equal(learned.p_y, fitted.p_y_)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("of", [list, np.array, pandas.Series, "column"])
def test_texts_are_read_as_words_and_characters(of):
    rng = np.random.default_rng(0)
    words = (["sun", "rain", "wind"], ["goal", "match", "team"])
    y = np.arange(160) % 2
    texts = [" ".join(rng.choice(words[label], 4)) for label in y]
    X = pandas.DataFrame({"comment": texts}) if of == "column" else of(texts)
    if of == "column":
        X["comment"] += [f", number {number} of them" for number in range(160)]  # no two alike
    fitted = classifiers().fit(X, y)
    assert {tried.name for tried in fitted.tried_} >= {"words", "characters", "bayes"}
    assert fitted.score(X, y) > 0.9
    wrong = X.to_numpy() if of == "column" else np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"X must be (a data frame|a list of texts), as in fit; got ndarray"):
        fitted.predict(wrong)


def test_a_frame_with_a_column_of_text_is_read_whole():
    frame, given = people(200, 0)
    frame = frame.drop(columns="age")
    frame["note"] = [f"note {number} says {word} to us" for number, word in enumerate(given)]
    fitted = classifiers().fit(frame, given)
    assert fitted.score(frame, given) > 0.95
    assert {tried.name for tried in fitted.tried_} >= {"words", "characters", "forest"}


def test_a_gap_that_only_new_rows_of_a_frame_have_is_the_mean(blobs):
    """Else one gap in a frame of numbers would fail a cross-validation, in the fold that predicts it."""
    X, given, _ = blobs
    frame = pandas.DataFrame(X, columns=["height", "width"])
    fitted = classifiers("linear").fit(frame, given)
    of_mean = fitted.predict_proba(frame.iloc[:1].assign(width=frame.width.mean()))
    for missing in (np.nan, pandas.array([pandas.NA], dtype="Float64")):
        assert np.allclose(fitted.predict_proba(frame.iloc[:1].assign(width=missing)), of_mean, atol=1e-6)
    frame.iloc[0, 0] = np.nan
    assert cross_val_predict(classifiers("linear"), frame, given, cv=3).shape == (len(frame),)
    with pytest.raises(ValueError, match=r"or give a pandas frame, which may have some"):
        fitted.fit(frame.to_numpy(), given)


@pytest.mark.filterwarnings("ignore:2 of 80 texts are empty")
@pytest.mark.parametrize("missing", [None, np.nan, pandas.NA])
@pytest.mark.parametrize("of", [list, pandas.Series, lambda texts: pandas.Series(texts, dtype="string")])
def test_a_missing_text_is_an_empty_one(of, missing):
    texts, y = ["rain and wind", "match and ball"] * 40, np.arange(80) % 2
    empty = ["" if row in (0, 7) else text for row, text in enumerate(texts)]
    gaps = of([missing if row in (0, 7) else text for row, text in enumerate(texts)])
    fitted = classifiers("words").fit(gaps, y)
    assert np.array_equal(fitted.p_y_, classifiers("words").fit(empty, y).p_y_)
    assert np.array_equal(fitted.predict_proba(gaps), fitted.predict_proba(empty))
    with pytest.warns(UserWarning, match="1 of 1 texts are empty"):
        fitted.predict(gaps[:1])


def test_words_that_training_never_saw_bring_the_warning_of_the_command_line(tmp_path):
    frame, given = people(200, 0)
    fitted = classifiers("linear").fit(frame, given)
    fitted.predict(frame)  # warnings are errors
    new, _ = people(40, 1)
    new.loc[[3, 5], "town"] = "Atlantis"
    new.to_csv(tmp_path / "new.csv", index=False)
    news = "2 of 40 rows have a word in the column 'town' that training never saw .first: 'Atlantis'"
    with pytest.warns(UserWarning, match=news) as of_file:
        Source(str(tmp_path / "new.csv")).read(fitted._reader.encoder)
    for predict in (fitted.predict, fitted.predict_proba):
        with pytest.warns(UserWarning, match=f"X: {news}") as of_frame:
            predict(new)
        assert len(of_frame) == 1
        assert str(of_frame[0].message).removeprefix("X") in str(of_file[0].message)
        assert of_frame[0].filename == __file__, "where it was called"


@pytest.mark.filterwarnings("ignore:X. 1 of 300 rows have no value in the column 'plan'")
def test_codes_that_a_gap_has_made_floats_are_the_same_words():
    """Of 1 and 2 pandas makes 1.0 and 2.0 where one is missing, which were words that nobody had seen."""
    plan = np.random.default_rng(0).integers(1, 5, 300)
    y = np.where(plan % 2 == 0, "a", "b")
    whole = pandas.DataFrame({"plan": pandas.Categorical(plan)})
    floats = pandas.DataFrame({"plan": np.where(np.arange(300) == 0, np.nan, plan)})
    codes = floats.astype("category")
    for fitted in (classifiers("linear").fit(X, y) for X in (whole, codes)):
        for X in (whole, whole.astype(int), floats, codes):
            assert fitted.score(X, y) > 0.99
    halves = pandas.DataFrame({"plan": pandas.Categorical(plan / 2)})
    assert classifiers("linear").fit(halves, y).score(halves, y) > 0.99


def test_what_is_no_text_among_texts_is_named():
    with pytest.raises(ValueError, match=r"X must hold texts; got int in row 4: 7\. Write it as one"):
        classifiers().fit([7 if row == 4 else "a red fox" for row in range(40)], np.arange(40) % 2)


def test_a_frame_is_not_taken_for_texts():
    texts, y = ["rain and wind", "match and ball"] * 40, np.arange(80) % 2
    fitted = classifiers("words").fit(texts, y)
    with (
        pytest.warns(UserWarning, match="feature names"),
        pytest.raises(ValueError, match=r"X must be a list of texts, as in fit; got DataFrame\."),
    ):
        fitted.predict(pandas.DataFrame({"comment": texts}))


def test_an_empty_column_beside_a_text_does_not_matter():
    """As the command line takes such a table for texts."""
    y = np.arange(80) % 2
    texts = [f"note {row} of {('rain', 'goal')[label]}" for row, label in enumerate(y)]
    frame = pandas.DataFrame({"note": texts, "answer": [None] * 80})
    assert classifiers("words").fit(frame, y).score(frame, y) > 0.9


def test_tables_of_pyarrow_are_read_as_frames():
    frame, given = people(200, 0)
    table = pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)
    ours, theirs = (classifiers("trees").fit(X, given) for X in (table, frame))
    assert np.array_equal(ours.predict_proba(table), theirs.predict_proba(frame))


def test_no_rows_are_refused():
    frame, given = people(100, 0)
    with pytest.raises(ValueError, match=r"X must have at least one row"):
        classifiers().fit(frame[:0], given[:0])


def test_pretrained_features_beside_a_frame_are_refused_with_the_way_out():
    frame, given = people(100, 0)
    with pytest.raises(ValueError, match=r"features='minilm' .*X is a data frame\. Leave it out, or"):
        classifiers(features="minilm").fit(frame, given)


def test_pretrained_features_are_of_pictures_with_channels_last():
    """Their channels would be taken for rows of pixels, and the height for channels, without a word."""
    pytest.importorskip("efficientnet_lite_pytorch")
    y = np.arange(30) % 2
    X = np.random.default_rng(0).integers(0, 100, (30, 32, 32, 3)).astype(np.uint8)
    X[y == 1] += 100
    with pytest.raises(ValueError, match="Put the channels last"):
        classifiers(features="lite0").fit(X.transpose(0, 3, 1, 2), y)
    fitted = classifiers(features="lite0").fit(X, y)
    with pytest.raises(ValueError, match="Put the channels last"):
        fitted.predict(X.transpose(0, 3, 1, 2))
    with pytest.raises(ValueError, match=r"X must be pictures or texts \(n,\), as in fit.*got a table"):
        fitted.predict(X.reshape(30, -1))


def test_a_warning_says_how_a_column_of_a_frame_is_left_out():
    frame = pandas.DataFrame({"nr": range(100), "town": ["Ulm", "Bonn"] * 50})
    with pytest.warns(UserWarning, match=r"'nr' counts the rows.*of a frame X\.drop\(columns='nr'\)"):
        classifiers("linear").fit(frame, ["a", "b"] * 50)


def test_an_array_with_words_is_refused_with_the_way_out():
    X = np.array([["red", 1.0], ["blue", 2.0]] * 20, object)
    with pytest.raises(
        ValueError, match=r"X must hold numbers: .*'red'.*pandas frame may have columns of words"
    ):
        quick().fit(X, np.arange(40) % 2)


def test_labels_at_random_leave_a_model_and_an_honest_rate():
    """All rows suspect: nothing can be learnt, and the interval says so."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 4, 200)
    model = quick(loss="lq").fit(X, y)
    assert model.noise_rate_interval_[1] > 0.4
    assert len(model.suspects_) > 80


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 2.0}, r"q must be in \[0, 1\] or 'auto'"),
        ({"q": "much"}, "q must be"),
        ({"k": 1.5}, r"k must be in \(0, 1\) or 'auto'"),
        ({"k": "often"}, "k must be"),
        ({"model": nn.Linear(2, 3)}, r"model must be .* a function \(input_shape, num_classes\).*got Linear"),
        ({"loss": "lqq"}, "Did you mean 'lq'"),
        ({"model": "mpl"}, "Did you mean 'mlp'"),
        ({"model": 3}, "model must be 'auto'"),
        ({"folds": -1}, "folds must be 0"),
        ({"folds": 1}, r"folds must be 0 .* or at least 2; got 1"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"loss": NoisyLabelClassifier}, "loss must be a name or a loss such as"),
        ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'cuda'; got 'tpu'"),
        ({"class_weight": {0: 0.0, 1: 0.0}}, "at least two classes"),
        ({"k": "auto", "folds": 0}, r"k='auto' is estimated from the folds.*got folds=0\. Give k a number"),
    ],
)
def test_bad_settings_are_refused_by_name(blobs, options, message):
    X, given, _ = blobs
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, given)


def test_a_class_without_a_name_is_refused_before_training(blobs, monkeypatch):
    X, given, _ = blobs
    monkeypatch.setattr("tolerant.own_data.learn_network.out_of_fold", pytest.fail)
    with pytest.raises(ValueError, match=r"different names, none empty; got \('', 'b', 'c'\)"):
        quick().fit(X, np.array(["", "b", "c"])[given])


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="one class only"):
        quick().fit(np.zeros((20, 2)), np.ones(20))


@pytest.mark.parametrize("missing", [None, np.nan, pandas.NA])
@pytest.mark.parametrize("kind", [list, pandas.Series, lambda words: pandas.Series(words, dtype="string")])
def test_a_missing_label_is_named(kind, missing):
    words = ["a", "b"] * 10
    words[3] = missing
    with pytest.raises(
        ValueError, match=r"y must have a value for every row; 1 are missing \(first: .* in row 3\)"
    ):
        quick().fit(np.zeros((20, 2)), kind(words))


def test_k_auto_prunes_the_estimated_share(blobs):
    X, given, true = blobs
    model = quick(k="auto", folds=3, epochs=15).fit(X, given)
    assert 0.05 <= model.k_ <= 0.9
    assert abs((~model.kept_).mean() - (given != true).mean()) < 0.1


def test_a_value_beyond_float32_is_still_predicted(blobs):
    X, given, _ = blobs
    model = quick(folds=0).fit(X, given)
    assert np.isfinite(model.predict_proba(np.full((1, X.shape[1]), 1e300))).all()


def test_pictures_of_floats_are_refused_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"pictures must be uint8 .*got float64 \(6, 8, 8, 3\)\. Call \(255 \* X\)"
    ):
        quick().fit(np.zeros((6, 8, 8, 3)), [0, 1] * 3)
