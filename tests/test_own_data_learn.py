"""From rows to a model: folds, what they believe, the plan of a training, what is kept in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from train_helpers import table

from tolerant.data import NoisyDataset
from tolerant.data.encoders.sparse import SparseRows
from tolerant.own_data import Settings, make_job
from tolerant.own_data.believed import believe, choose_k
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.folds import deal_folds, first_copies
from tolerant.own_data.learn import Learned, learn
from tolerant.own_data.learn_network import balanced_weight
from tolerant.own_data.out_of_fold import out_of_fold
from tolerant.suspects.noise_model import fit_noise_model
from tolerant.train import Guards, Job


def quick(dataset: NoisyDataset, settings: Settings, **options: Any) -> Learned:
    return learn(dataset, settings, folds=2, device="cpu", progress="quiet", **options)


def test_every_class_keeps_its_least_doubtful_rows(monkeypatch):
    """All classes in one look: a look for each of 10,000 among a million rows took 25 s."""
    rng = np.random.default_rng(0)
    given, odds = rng.integers(0, 30, 500), rng.integers(-9, 2, 500).astype(float)  # many are equal
    expected = odds > 0
    for label in np.unique(given):
        own = np.flatnonzero(given == label)
        expected[own[np.argsort(-odds[own], kind="stable")[: -(-len(own) // 10)]]] = True
    monkeypatch.setattr(np, "flatnonzero", lambda array: pytest.fail("looked for the rows of a class"))
    assert np.array_equal(believe(given, odds), expected)


def test_folds_that_doubt_nearly_all_of_few_rows_leave_none_out(monkeypatch):
    for believed, trained in ((49, 60), (50, 50)):
        keep = np.arange(60) < believed
        monkeypatch.setattr("tolerant.own_data.believed.believe", lambda *_, keep=keep: keep)
        learned = quick(table(60), Settings(epochs=3))
        assert len(learned.job.dataset) == trained
        assert (learned.pruned_at == 0).sum() == 60 - trained


def test_rows_that_only_the_folds_left_out_are_reported(monkeypatch):
    keep = np.arange(60) < 55
    monkeypatch.setattr("tolerant.own_data.believed.believe", lambda *_: keep)
    weight = np.r_[np.ones(40), np.zeros(20)]  # 40 rows train: too few for the rounds at k
    learned = quick(table(60), Settings(epochs=3), sample_weight=weight)
    assert learned.k is None
    assert learned.kept.tolist() == keep.tolist()
    assert learned.suspects.kept is not None


def test_k_follows_the_noise():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 2000)
    probs = np.full((2000, 4), 0.1) + 0.6 * np.eye(4)[true]
    probs += rng.uniform(0, 0.05, probs.shape)
    probs /= probs.sum(1, keepdims=True)
    moved = (true + rng.integers(1, 4, 2000)) % 4
    for rate in (0.1, 0.4):
        given = np.where(rng.random(2000) < rate, moved, true)
        k = choose_k(given, probs, fit_noise_model(given, probs))
        pruned = probs[np.arange(2000), given] <= k
        assert abs(pruned.mean() - (given != true).mean()) < 0.08


@pytest.mark.parametrize(("p_y", "k"), [(0.001, 0.05), (0.3, 0.3), (0.99, 0.9)])
def test_k_leaves_some_rows_in_and_some_out(p_y, k):
    """Whatever the folds say: at 0 no row would ever be pruned, at 1 every one."""
    probs = np.array([[p_y, 1 - p_y]] * 20)

    class HalfWrong:
        def expected_wrong(self, given_labels, probs):
            return 0.5

    assert choose_k(np.zeros(20, int), probs, HalfWrong()) == k


def test_balanced_classes_keep_the_weights_of_their_rows():
    assert balanced_weight(np.array([0, 0, 0, 1]), 2, np.array([1.0, 2, 3, 4])) == pytest.approx(
        np.array([1, 2, 3, 12]) * 2 / 3
    )


def test_who_weighs_the_rows_is_not_told_to_weigh_the_classes(recwarn):
    """A class that the model has lost is told of, unless weights were set, which may mean just that."""
    given = (np.arange(120) < 12).astype(int)
    lost = NoisyDataset(np.zeros((120, 2), np.float32), given, None, ("no", "yes"))
    quick(lost, Settings(epochs=3), sample_weight=np.linspace(0.5, 1.5, 120))
    assert not recwarn
    with pytest.warns(UserWarning, match="hardly recognises 'yes'"):
        quick(lost, Settings(epochs=3))


def test_folds_hold_every_class_evenly():
    labels = np.repeat([0, 1, 2], [50, 10, 3])
    fold = deal_folds(labels, 5, seed=1)
    for label, rows in ((0, 10), (1, 2)):
        assert np.bincount(fold[labels == label], minlength=5).tolist() == [rows] * 5
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 1
    assert not np.array_equal(fold, deal_folds(labels, 5, seed=2))


@pytest.mark.parametrize(
    ("rows", "labels", "expected"),
    [
        ("abcb", [0, 1, 0, 1], [0, 1, 2, 1]),
        ("abcb", [0, 1, 0, 0], [0, 1, 2, 3]),  # labels of their own
        ("abcdbb", [0, 1, 0, 0, 0, 1], [0, 1, 2, 3, 4, 5]),  # which agree here and there
        ("abcdddddd", [0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 1, 2, 3, 3, 3, 3, 3, 3]),  # a rare class, six times
        ("aaabbb", [0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5]),  # a few combinations that repeat
    ],
)
def test_copies_are_told_from_rows_alike_by_nature(rows, labels, expected):
    text = NoisyDataset(np.array(list(rows), object), labels, None, ("x", "y"), kind="text")
    assert first_copies(text).tolist() == expected


def test_copies_among_sparse_rows():
    rows = [
        [(1, 2)],
        [(0, 1), (1, 3)],
        [(2, 4)],
        [(1, 2)],
        [],
        [(1, 3), (0, 1)],
        [(1, 0), (2, 4)],
        [(1, 2)] * 2,
    ]
    columns, values = np.array([cell for row in rows for cell in row]).T
    ends = np.cumsum([0, *map(len, rows)])
    matrix = scipy.sparse.csr_matrix((np.float32(values), columns, ends), (len(rows), 3))
    copies = first_copies(NoisyDataset(SparseRows(matrix, 0.5), [0, 1, 0, 0, 1, 1, 0, 0], None, ("x", "y")))
    assert copies.tolist() == [0, 1, 2, 0, 4, 1, 2, 7]  # out of order, with a zero; twice 2 is 4


def test_one_odd_label_among_many_copies_stands_alone():
    number = np.concatenate([np.arange(200), np.arange(100)])
    labels = number % 2
    labels[200] = 1
    copies = first_copies(NoisyDataset(number[:, None].astype(np.float32), labels, None, ("x", "y")))
    assert copies[200] == 200
    np.testing.assert_array_equal(copies[201:], number[201:])


def test_a_row_is_scored_by_a_model_that_saw_no_copy_of_it():
    rows = table(120)
    rows = rows.subset(np.concatenate([np.arange(120), np.arange(60), np.arange(30)]))
    seen = []

    class Watched(NetworkCandidate):
        def plan(self, dataset, *options):
            seen.append(set(dataset.inputs[:, 0].tolist()))
            return super().plan(dataset, *options)

    watched = Watched(Settings(epochs=1), torch.device("cpu"))
    assert out_of_fold(rows, watched, folds=3, seed=0).held_out.all()
    for row in rows.inputs[:, 0].tolist():
        assert sum(row in part for part in seen) == 2  # all folds but its own


class NothingLearnt:
    """A candidate that remembers what it was to be fitted to."""

    device = torch.device("cpu")

    def __init__(self):
        self.fitted = []

    def plan(self, dataset, sample_weight, name, k=None):
        return Job(dataset=dataset, model="mlp", loss="cce", sample_weight=sample_weight)

    def fit_each(self, plans, side_by_side, then):
        for number, plan in enumerate(plans):
            self.fitted.append(plan)
            then(number, None)

    def probs(self, fitted, dataset):
        return np.full((len(dataset), dataset.num_classes), 0.25, np.float32)


def test_rows_of_weight_zero_are_scored_and_fitted_to_nothing():
    rows, weight = table(60), np.repeat([0.0, 1.0, 2.0], 20)
    candidate = NothingLearnt()
    assert out_of_fold(rows, candidate, folds=4, seed=0, sample_weight=weight).held_out.all()
    for job in candidate.fitted:
        assert np.array_equal(job.sample_weight, weight[job.dataset.ids])
        assert job.sample_weight.min() > 0
    one_class = np.where(rows.given_labels == 0, 1.0, 0.0)
    assert not out_of_fold(rows, candidate, folds=4, seed=0, sample_weight=one_class).held_out.any()


def test_the_final_training_prunes_at_the_k_that_the_folds_chose():
    learned = quick(table(), Settings(epochs=6, lr=0.01, k="auto"))
    assert learned.job.prune.k == learned.k != 0.5


def test_held_out_rows_are_kept_as_training_would_have():
    data = table()
    learned = quick(data, Settings(epochs=12, lr=0.01, k=0.9))
    assert not learned.result.kept.all()
    used = learned.job.dataset.ids
    held_out = used[learned.result.validation_index]
    assert learned.kept[held_out].tolist() == (learned.p_y[held_out] > 0.9).tolist()
    assert len(set(learned.kept[held_out])) == 2
    left_out = np.setdiff1d(data.ids, used)
    assert not learned.kept[left_out].any()
    assert (learned.pruned_at[left_out] == 0).all()


def test_what_a_person_decided_trains_whatever_the_folds_think():
    data = table()
    settings = Settings(epochs=6, lr=0.01)
    doubted, trusted = (quick(data, settings, reviewed=reviewed) for reviewed in (None, data.flipped))
    assert not np.isin(data.ids[data.flipped], doubted.job.dataset.ids).all()
    assert np.isin(data.ids[data.flipped], trusted.job.dataset.ids).all()
    assert not np.isin(data.ids[data.flipped], trusted.suspects.ids).any()


@pytest.mark.parametrize(
    ("shape", "q", "model", "hidden", "augment"),
    [
        ((200, 32, 32, 3), 0.3, "small-cnn", None, "flip-crop"),
        ((5000, 28, 28, 3), 0.38, "small-cnn", None, "flip-crop"),
        ((200, 16, 16, 3), 0.38, "small-cnn", None, "none"),
        ((200, 27, 32, 3), 0.38, "small-cnn", None, "none"),
        ((200, 15, 16, 3), 0.38, "mlp", (256,), "none"),
        ((200, 32, 32, 1), 0.38, "mlp", (256,), "none"),
        ((200, 32, 33, 1), 0.38, "small-cnn", None, "none"),
        ((200, 9), 0.38, "mlp", (256,), "none"),
        ((200, 2049), 0.38, "mlp", (64,), "none"),
    ],
)
def test_photographs_have_a_small_q_while_few_a_convolution_and_flips(shape, q, model, hidden, augment):
    kind, dtype = ("image", np.uint8) if len(shape) == 4 else ("table", np.float32)
    labels = np.arange(shape[0]) % 2
    data = NoisyDataset(np.zeros(shape, dtype), labels, None, ("a", "b"), kind=kind)
    job = make_job(data, Settings(), torch.device("cpu"), k=0.5)
    assert job.loss_args == {"q": q}
    assert (job.model, job.model_args.get("hidden"), job.recipe.augment) == (model, hidden, augment)
    assert job.guards == Guards()  # a model that doubts most labels is too weak to judge


@pytest.mark.parametrize("q", [0, 1, "auto"])
def test_the_ends_of_q_are_settings(q):
    assert Settings(q=q).q == q
