"""Pruner: the rule p_y > k keyed by row, what it must survive; Alternation: the search it is part of."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scipy.optimize import minimize
from torch.utils.data import DataLoader, TensorDataset

from tolerant.train import Alternation, Guards, Pruner, PruneSchedule
from tolerant.train.engine.measure import pruning_record
from tolerant.train.rounds import gather as prune_gather


def names(num_rows: int) -> list[tuple[str, int]]:
    return [("row", 7 * i) for i in range(num_rows)]


# --- schedule ---------------------------------------------------------------------------------


def test_schedule_counts_epochs_from_zero():
    schedule = PruneSchedule(start_epoch=3, every=2, k=0.5)
    assert [schedule.due(epoch) for epoch in range(8)] == [
        False, False, False, True, False, True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"start_epoch": -1}, "start_epoch must be a whole number of at least 0; got -1"),
        ({"start_epoch": 1.5}, "start_epoch"),
        ({"every": 0}, "every must be a whole number of at least 1; got 0"),
        ({"every": True}, "every"),
        ({"k": 0.0}, r"k must be in \(0, 1\); got 0.0"),
        ({"k": 1.0}, "k must"),
        ({"k": float("nan")}, "k must"),
    ],
)
def test_schedule_refuses(change, text):
    with pytest.raises(ValueError, match=text):
        PruneSchedule(**{"start_epoch": 40, "every": 10, "k": 0.5} | change)


def test_schedule_of_numpy_s_numbers():
    schedule = PruneSchedule(np.int64(3), np.int32(2), np.float32(0.5))
    assert json.dumps(vars(schedule)) == json.dumps(vars(PruneSchedule(3, 2, 0.5)))


# --- the rule ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [0.5, 0.3])
def test_kept_is_strictly_above_k(dtype, k):
    at = torch.tensor(k).to(dtype)
    if float(at) > np.float32(k):  # 0.3 rounds up in half precision, and is then truly above k
        at = torch.nextafter(at, torch.zeros_like(at))
    above = at + 2e-3 if dtype == torch.bfloat16 else at + 1e-3
    pruner = Pruner(4, k=k)
    pruner.update([0, 1, 2], torch.stack([at, above, at / 2]))
    assert pruner.kept.tolist() == [False, True, False, True]
    assert pruner.weights.tolist() == [0, 1, 0, 1]
    assert pruner.num_kept == 2


def test_rows_missing_from_an_update_keep_their_state():
    pruner = Pruner(4)
    pruner.update([0, 1], [0.1, 0.9])
    pruner.update([2], [0.2])
    assert pruner.kept.tolist() == [False, True, False, True]
    pruner.update([0], [0.8])
    assert pruner.kept.tolist() == [True, True, False, True]
    pruner.update([], [])
    assert pruner.kept.tolist() == [True, True, False, True]
    np.testing.assert_array_equal(pruner.p_y, np.float32([0.8, 0.9, 0.2, np.nan]))


@pytest.mark.parametrize("hashable", [False, True])
@pytest.mark.parametrize("labelled", [False, True])
def test_any_history_gives_what_the_definition_says(hashable, labelled):
    """Random updates, small and large, with repeated rows, against a dictionary and a sort."""
    rng = np.random.default_rng(1)
    num_rows = 60
    labels = rng.integers(0, 6, num_rows) if labelled else None
    ids = names(num_rows) if hashable else range(num_rows)
    pruner = Pruner(ids if hashable else num_rows, labels, k=0.5)
    last: dict = {}
    rescues = 0
    for _ in range(60):
        size = rng.choice([0, 1, 3, 6, 40, 120])
        rows = rng.integers(0, num_rows, size)
        p_y = np.round(rng.random(size) * rng.choice([0.55, 1]), 1)  # ties, and classes below k
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pruner.update([ids[row] for row in rows], p_y)
        last.update(zip(rows.tolist(), np.float32(p_y).tolist(), strict=True))

        want = [last.get(row, 1.0) > 0.5 for row in range(num_rows)]
        for label in [None] if labels is None else np.unique(labels):
            mine = [row for row in range(num_rows) if label is None or labels[row] == label]
            above = sum(want[row] for row in mine)
            best = sorted((row for row in mine if not want[row]), key=lambda row: -last[row])
            for row in best[: 0 if above else 1]:
                want[row] = True
                rescues += 1
        assert pruner.kept.tolist() == want
        assert pruner.num_kept == sum(want)
    assert rescues or not labelled


def test_kept_once_read_does_not_change():
    pruner = Pruner(3)
    before = pruner.kept
    pruner.update([0], [0.1])
    assert before.tolist() == [True, True, True]
    assert pruner.kept.tolist() == [False, True, True]


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "c"],
        [("a", 1), ("a", 2), frozenset("x")],
        np.array([30, 10, 20]),
        torch.tensor([30, 10, 20]),
        np.array(["a.png", "b.png", "c.png"]),
        pandas.Series(["a.png", "b.png", "c.png"], index=[7, 7, 9]),
        pandas.Index(["a.png", "b.png", "c.png"]),
        [2, 1, 0],
        [0, 1, True + 1.0],  # 2.0 is a hashable id, not a position
    ],
)
def test_any_hashable_ids(ids):
    pruner = Pruner(ids)
    pruner.update(ids[1:], [0.9, 0.1])
    assert pruner.kept.tolist() == [True, True, False]
    assert pruner.index(ids).tolist() == [0, 1, 2]


@pytest.mark.parametrize("ids", [3, np.int64(3), [0, 1, 2], range(3), np.arange(3), torch.arange(3)])
def test_positions_need_no_dictionary(ids):
    pruner = Pruner(ids)
    assert pruner._position is None
    for batch in (torch.tensor([2, 0], dtype=torch.int32), np.array([2, 0]), (2, 0), iter([2, 0])):
        pruner.update(batch, [0.1, 0.2])
    assert pruner.kept.tolist() == [False, True, False]


def test_state_is_small():
    pruner = Pruner(1000, np.arange(1000) % 300)
    arrays = [value for value in vars(pruner).values() if isinstance(value, np.ndarray)]
    assert sum(a.nbytes for a in arrays if len(a) == 1000) == 7 * 1000  # p_y 4, kept 1, label 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Pruner(0), "at least 1 row"),
        (lambda: Pruner([]), "sequence of ids"),
        (lambda: Pruner("abc"), "sequence of ids"),
        (lambda: Pruner(np.zeros((2, 2))), "sequence of ids"),
        (lambda: Pruner(["a", "b", "a"]), "rows 0 and 2 are both 'a'"),
        (lambda: Pruner(3, k=1), r"k must be in \(0, 1\); got 1"),
        (lambda: PruneSchedule(1, 1, "half"), r"k must be in \(0, 1\); got 'half'"),  # type: ignore[arg-type]
        (lambda: Pruner(3, [0, 1]), "given_labels must be 3 class numbers"),
        (lambda: Pruner(3, [0, 1, -100]), "the least -100"),
        (lambda: Pruner(3, [0.0, 1.0, 2.0]), "given_labels must be a flat list of integers"),
        (lambda: Pruner(3).update([0, 3], [0.1, 0.1]), r"ids must be in 0 .. 2; got 3"),
        (lambda: Pruner(3).update([-1], [0.1]), "got -1"),
        (lambda: Pruner(3).update([True, False, True], [0.1] * 3), "flat list of integers"),
        (lambda: Pruner(["a", "b"]).update(["c"], [0.1]), "got 'c'"),
        (lambda: Pruner(3).update([0, 1], [0.1]), "each of the 2 ids"),
        (lambda: Pruner(3).update([0], [[0.1]]), "got shape"),
        (lambda: Pruner(3).update([0], [float("nan")]), "diverged"),
        (lambda: Pruner(3).update([0], [-0.7]), "exponential"),
        (lambda: Pruner(3).update([0], [1.5]), "got 1.5"),
        (lambda: Pruner(3).sampler(order=[0, 3]), "order must be in 0 .. 2; got 3"),
        (lambda: Pruner(3).sampler(rank=1), "rank"),
        (lambda: Pruner(3).sampler(num_replicas=2), "seeded alike"),
    ],
)  # fmt: skip
def test_bad_input(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_a_refused_update_changes_nothing():
    pruner = Pruner(3)
    pruner.update([0], [0.1])
    with pytest.raises(ValueError):
        pruner.update([0, 1], [0.9, 2.0])
    assert pruner.kept.tolist() == [False, True, True]


# --- a class or everything lost ---------------------------------------------------------------


def test_a_lost_class_keeps_its_best_row_and_says_so():
    pruner = Pruner(6, [0, 0, 1, 1, 1, 2])
    with pytest.warns(UserWarning, match=r"no row of class 1; its rows of highest p_y \(1\)"):
        pruner.update(range(5), [0.9, 0.8, 0.1, 0.3, 0.3])
    assert pruner.kept.tolist() == [True, True, False, True, False, True]  # of equals the first
    assert pruner.rescued.tolist() == [3]
    pruner.update([2, 4], [0.7, 0.6])  # the class stands on its own again: row 3 goes
    assert pruner.kept.tolist() == [True, True, True, False, True, True]
    assert pruner.rescued.tolist() == []


def test_many_lost_classes_are_looked_for_together(monkeypatch):
    """Looking through a million rows for each of 10,000 classes took 25 s a round."""
    labels = np.arange(300) % 100
    pruner = Pruner(300, labels, k=0.5)
    looked = []
    find = np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", lambda array: (looked.append(len(array)), find(array))[1])
    with pytest.warns(UserWarning, match="of class 0, 1, 2"):
        pruner.update(np.arange(300), np.where(labels < 99, 0.1, 0.9) + np.arange(300) / 1e6)
    assert pruner.rescued.tolist() == list(range(200, 299))
    assert looked.count(300) == 1


def test_a_lost_class_is_called_by_its_name():
    pruner = Pruner(4, [0, 0, 1, 1], class_names=("cat", "dog"))
    with pytest.warns(UserWarning, match="would keep no row of class dog; its rows"):
        pruner.update(range(4), [0.9, 0.8, 0.1, 0.3])
    with pytest.raises(ValueError, match="class_names must name the 2 classes of given_labels; got 1"):
        Pruner(4, [0, 0, 1, 1], class_names=("cat",))


def test_nothing_left_without_labels():
    pruner = Pruner(3)
    with pytest.warns(UserWarning, match="would keep no row; its"):
        pruner.update([0, 1, 2], [0.1, 0.4, 0.4])
    assert pruner.kept.tolist() == [False, True, False]


# --- guards -----------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [False, True])
def test_guards_take_a_round_or_a_class_back(labelled):
    """Random updates of some or all rows against the definition, with a dictionary."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 40)
    guards = Guards(at_most=0.5, class_at_most=0.6)
    pruner = Pruner(40, labels if labelled else None, guards=guards)
    last: dict[int, float] = {}
    left_out = held = taken = 0
    for _ in range(200):
        rows = rng.integers(0, 40, rng.choice([0, 1, 8, 60]))
        p_y = np.float32(rng.random(len(rows)) ** rng.choice([0.3, 0.7, 2])).tolist()
        counts = pruner.update(rows, p_y)
        new = last | dict(zip(rows.tolist(), p_y, strict=True))
        doubted = np.array([new.get(row, 1.0) <= 0.5 for row in range(40)])
        assert counts == (doubted.mean() <= 0.5)
        left_out += not counts
        if counts:
            for label in range(4) if labelled else ():
                if doubted[labels == label].mean() > 0.6:
                    new = {row: p for row, p in new.items() if labels[row] != label}
                    new |= {row: p for row, p in last.items() if labels[row] == label}
                    held += 1
            taken += new != last
            last = new
        assert pruner.kept.tolist() == [last.get(row, 1.0) > 0.5 for row in range(40)]
        assert pruner.num_kept == int(pruner.kept.sum())
    assert min(left_out, taken) > 10
    assert held > 5 or not labelled


def test_a_round_left_out_leaves_the_rescued_as_they_were():
    pruner = Pruner(6, [0, 0, 0, 0, 1, 1], guards=Guards(at_most=0.5, class_at_most=1.0))
    with pytest.warns(UserWarning, match="class 1"):
        pruner.update([0, 4, 5], [0.1, 0.2, 0.3])
    before, p_y = pruner.kept, pruner.p_y
    assert not pruner.update([0, 1, 2, 3], [0.9, 0.1, 0.1, 0.1])
    assert torch.equal(pruner.kept, before)
    assert pruner.rescued.tolist() == [5]
    torch.testing.assert_close(pruner.p_y, p_y, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["at_most", "class_at_most"])
@pytest.mark.parametrize("share", [0.0, 1.5, float("nan"), True, "half"])
def test_guards_are_shares(share, name):
    with pytest.raises(ValueError, match=rf"{name} must be in \(0, 1\]; got .*do not prune"):
        Guards(**{name: share})
    assert Guards(**{name: np.float32(0.5)}) == Guards(**{name: 0.5})


# --- sampler ----------------------------------------------------------------------------------


def test_pruning_leaves_the_order_of_the_kept_unchanged():
    data = TensorDataset(torch.arange(50))
    pruner = Pruner(50)

    def epochs() -> list[list[int]]:
        sampler = pruner.sampler(generator=torch.Generator().manual_seed(3))
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        found = [[int(i) for (batch,) in loader for i in batch] for _ in range(2)]
        assert len(loader) == -(-pruner.num_kept // 8)
        return found

    everything = epochs()
    assert everything[0] != everything[1]
    assert sorted(everything[0]) == list(range(50))
    pruner.update(range(50), torch.rand(50, generator=torch.Generator().manual_seed(0)))
    assert 5 < pruner.num_kept < 45
    assert epochs() == [[i for i in order if pruner.kept[i]] for order in everything]


def test_sampler_sees_later_updates_and_takes_a_fixed_order():
    pruner = Pruner(["a", "b", "c", "d"])
    sampler = pruner.sampler(order=np.array([3, 1, 0, 2]))
    assert list(sampler) == [3, 1, 0, 2]
    pruner.update(["b"], [0.2])
    assert list(sampler) == [3, 0, 2]
    assert len(sampler) == 3


def test_torchs_default_device_changes_nothing():
    """As after ``torch.set_default_device("cuda")``; what lands on "meta" cannot be read."""

    def found(pruner: Pruner) -> list[list[int]]:
        seeded = {"generator": torch.Generator().manual_seed(0)}
        samplers = [
            pruner.sampler(**seeded),
            pruner.sampler(order=range(10)),
            pruner.sampler(**seeded, num_replicas=2, rank=1),
        ]
        return [list(sampler) for sampler in samplers] + [pruner.index([3, 4]).tolist()]

    expected = found(Pruner(10))
    with torch.device("meta"):
        assert found(Pruner(10)) == expected
        assert sorted(Pruner(10).sampler()) == list(range(10))


def test_ranks_share_the_kept_rows():
    pruner = Pruner(10)
    pruner.update([2, 5, 7], [0.1, 0.1, 0.1])
    shares = [
        list(pruner.sampler(generator=torch.Generator().manual_seed(1), num_replicas=3, rank=r))
        for r in range(3)
    ]
    whole = list(pruner.sampler(generator=torch.Generator().manual_seed(1)))
    assert [len(share) for share in shares] == [3, 3, 3]
    assert [row for turn in zip(*shares, strict=True) for row in turn] == whole + whole[:2]
    assert len(pruner.sampler(order=range(10), num_replicas=3)) == 3


# --- state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("hashable", [False, True])
def test_state_survives_plain_files(tmp_path, hashable):
    from safetensors.torch import load_file, save_file

    labels = [0, 0, 1, 1]
    ids = names(4) if hashable else 4
    pruner = Pruner(ids, labels, k=0.3)
    with pytest.warns(UserWarning, match="class 1"):
        pruner.update(pruner_ids := (names(4) if hashable else range(4))[1:], [0.9, 0.1, 0.2])
    state = pruner.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    save_file(tensors, tmp_path / "state.safetensors")
    text = json.dumps({name: value for name, value in state.items() if name not in tensors})

    again = Pruner(ids, labels, k=0.3)
    again.load_state_dict(load_file(tmp_path / "state.safetensors") | json.loads(text))
    assert torch.equal(again.kept, pruner.kept)
    assert again.rescued.tolist() == [3]
    for each in (pruner, again):
        each.update(pruner_ids[:2], [0.1, 0.8])
    assert torch.equal(again.kept, pruner.kept)
    assert again.kept.tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("source", "other", "text"),
    [
        (3, lambda: Pruner(4), "num_rows"),
        (3, lambda: Pruner(3, k=0.4), "k of the pruning state is 0.5, of this Pruner 0.4"),
        (3, lambda: Pruner(["a", "c", "b"]), "ids"),
        (["a", "b", "c"], lambda: Pruner(["a", "c", "b"]), "ids"),
    ],
)
def test_state_of_other_rows_is_refused(source, other, text):
    with pytest.raises(ValueError, match=text):
        other().load_state_dict(Pruner(source).state_dict())


def test_a_state_cut_short_is_refused():
    with pytest.raises(ValueError, match=r"p_y must have shape \(3,\); got \(2,\)"):
        Pruner(3).load_state_dict({**Pruner(3).state_dict(), "p_y": torch.ones(2)})


# --- several ranks ----------------------------------------------------------------------------


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {}
    for rows_at_once in (1 << 22, 4):  # in one round, and in rounds of two rows a rank
        prune_gather._ROWS_AT_ONCE = rows_at_once
        for ids in (list(range(9)), names(9)):
            pruner = Pruner(ids, [0, 0, 0, 0, 0, 1, 1, 1, 1])
            mine = ([0, 2, 4, 6, 8], [1, 3])[rank]  # 5 and 7 not scored; lengths differ
            pruner.update([ids[i] for i in mine], [0.1 + 0.1 * i for i in mine])
            history = [pruner.kept.tolist()]
            mine = ([], [5, 0, 7, 5])[rank]  # nothing to report; a row named twice
            pruner.update([ids[i] for i in mine], [0.9, 0.9, 0.2, 0.3][: len(mine)])
            history.append(pruner.kept.tolist())
            pruner.update([ids[3]], [(0.1, 0.9)[rank]])  # the ranks disagree about row 3
            history.append(pruner.kept.tolist())
            found[f"{rows_at_once} {type(ids[0]).__name__}"] = history
    guarded = Pruner(9, [0, 0, 0, 0, 0, 1, 1, 1, 1], guards=Guards())
    for doubted in (5, 4, 3):  # too many; all of class 1; three of its four
        mine = [*range(9)[rank::2], 8]  # both ranks name row 8
        counts = guarded.update(mine, [0.9 if row < 9 - doubted else 0.1 for row in mine])
        found[f"guarded {doubted}"] = [counts, int(guarded.p_y.isnan().sum()), guarded.kept.tolist()]
    pruner = Pruner(3)
    try:
        pruner.update([0], [(0.2, float("nan"))[rank]])
    except (ValueError, RuntimeError) as e:
        found["refused"] = f"{type(e).__name__}: {e}"
    found["after"] = pruner.kept.tolist()
    try:
        Pruner(3 + rank).update([0], [0.2])
    except RuntimeError as e:
        found["sizes"] = str(e)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::UserWarning")  # of lost classes, in the forks
def test_two_ranks_agree(tmp_path):
    mp.start_processes(_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    # p_y = 0.1, 0.2, ... in order, rows 5 and 7 unknown: class 0 is lost and keeps its best row, 4.
    history = ["....xxxxx", "x.....x.x", "x..x..x.x"]
    for rank in range(2):
        for name in ("4194304 int", "4194304 tuple", "4 int", "4 tuple"):
            assert ["".join(".x"[k] for k in kept) for kept in found[rank][name]] == history
        assert found[rank]["after"] == [True, True, True]
        assert found[rank]["guarded 5"] == [False, 9, [True] * 9]
        assert found[rank]["guarded 4"] == [True, 4, [True] * 9]
        assert found[rank]["guarded 3"] == [True, 0, [True] * 6 + [False] * 3]
        assert found[rank]["sizes"].endswith("[3, 4].")
    assert found[1]["refused"].startswith("ValueError: p_y must be in [0, 1]; got nan")
    assert found[0]["refused"].startswith("RuntimeError: rank 1 refused")


# --- the best model ---------------------------------------------------------------------------


def values(number: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((2,), float(number))}


@pytest.mark.parametrize(("mode", "best"), [("max", 1), ("min", 3)])
def test_the_first_of_the_best_epochs_is_kept(mode, best):
    alternation = Alternation(mode=mode)
    accuracies = [0.5, 0.8, 0.8, 0.2, 0.2]
    found = [alternation.observe(epoch, value, values(epoch)) for epoch, value in enumerate(accuracies)]
    assert (alternation.best_epoch, alternation.best_value) == (best, accuracies[best])
    assert alternation.best_weights["weight"].tolist() == [best, best]
    assert found == [True, mode == "max", False, mode == "min", False]


def test_where_no_epoch_beats_a_constant_answer_the_loss_decides():
    alternation = Alternation(constant_accuracy=0.9)
    seen = [(0.9, 0.5), (0.85, 0.4), (0.9, 0.6), (0.91, 0.7), (0.9, 0.1), (0.91, 0.2)]
    best = []
    for epoch, (accuracy, loss) in enumerate(seen):
        alternation.observe(epoch, accuracy, values(epoch), loss=loss)
        best.append(alternation.best_epoch)
    assert best == [0, 1, 1, 3, 3, 3]
    again = Alternation(constant_accuracy=0.9)
    again.observe(0, 0.9, values(0), loss=0.5)
    resumed = Alternation(constant_accuracy=0.9)
    resumed.load_state_dict(again.state_dict())
    assert not resumed.observe(1, 0.9, values(1), loss=0.6)
    assert resumed.observe(2, 0.8, values(2), loss=0.4)


@pytest.mark.parametrize("on_device", [False, True])
def test_best_weights_are_a_copy(on_device):
    weights, alternation = values(1), Alternation(on_device=on_device)
    alternation.observe(0, 0.5, weights)
    first = alternation.best_weights["weight"]
    weights["weight"].fill_(2)
    assert first.tolist() == [1, 1]
    alternation.observe(1, 0.6, weights)
    assert alternation.best_weights["weight"].tolist() == [2, 2]
    # In place on a device, whose memory is short; on the host a checkpoint being written holds the first.
    assert (first is alternation.best_weights["weight"]) == on_device


def test_the_best_model_scores_and_training_goes_on_from_the_current_one():
    alternation, model = Alternation(), torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout())
    with alternation.best_model(model):
        assert not model.training
    alternation.observe(0, 0.5, model.state_dict())
    best = model[0].weight.detach().clone()
    torch.nn.init.zeros_(model[0].weight)
    with alternation.best_model(model):
        assert torch.equal(model[0].weight, best)
        assert not model[1].training
    assert not model[0].weight.any()
    assert model[1].training


def test_an_alternation_goes_on_from_its_state():
    schedule = PruneSchedule(1, 2, 0.4)
    first, second = (Alternation(schedule, 4, [0, 0, 1, 1], guards=None) for _ in range(2))
    first.observe(0, 0.7, values(3))
    first.decide([0, 2], [0.1, 0.3])
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.kept, first.kept)
    assert second.kept.tolist() == [False, True, False, True]
    assert (second.best_epoch, second.best_value) == (0, 0.7)
    assert torch.equal(second.best_weights["weight"], first.best_weights["weight"])
    assert [second.due(epoch) for epoch in range(4)] == [False, True, False, True]


def test_a_weak_model_prunes_nothing_unless_told_to():
    rows, p_y = range(10), [0.9] * 4 + [0.1] * 6
    guarded, told = (Alternation(PruneSchedule(0, 1, 0.5), 10, **by) for by in ({}, {"guards": None}))
    assert not guarded.decide(rows, p_y)
    assert guarded.kept.all()
    assert told.decide(rows, p_y)
    assert told.kept.sum() == 4


def test_an_alternation_refuses():
    with pytest.raises(ValueError, match="mode must be 'max' or 'min'; got 'most'"):
        Alternation(mode="most")
    assert not Alternation().due(0)
    with pytest.raises(RuntimeError, match="without a schedule keeps all rows"):
        _ = Alternation().kept


# --- quality ----------------------------------------------------------------------------------


def test_quality_counts_pruned_as_found():
    def quality(pruner, wrong):
        record = pruning_record(pruner.kept.numpy(), wrong)
        return record["prune_precision"], record["prune_recall"], record["kept_fraction"]

    wrong = np.isin(np.arange(10), [1, 2, 3])
    pruner = Pruner(10)
    assert quality(pruner, wrong) == (None, 0.0, 1.0)
    pruner.update([1, 2, 9], np.zeros(3))
    assert quality(pruner, wrong) == (2 / 3, 2 / 3, 0.7)
    assert quality(pruner, ~wrong & wrong) == (0.0, None, 0.7)


# --- the alternating search (algorithm 1) -----------------------------------------------------


def lq(log_p: np.ndarray | float, q: float) -> np.ndarray:
    return -np.expm1(q * log_p) / q if q else -np.asarray(log_p)


class SoftmaxRegression:
    """q = 0 (cross entropy) is convex in theta, larger q is not; theta lives in a box."""

    def __init__(self, seed: int, q: float, k: float) -> None:
        rng = np.random.default_rng(seed)
        true = rng.integers(0, 3, 90)
        centres = np.array([[2, 0], [-1, 1.7], [-1, -1.7]])
        x = centres[true] + rng.normal(size=(90, 2))
        self.x = np.column_stack([x, np.ones(90)])
        self.y = np.where(rng.random(90) < 0.3, rng.integers(0, 3, 90), true)
        self.q, self.threshold = q, lq(np.log(k), q)

    def log_p(self, theta: np.ndarray) -> np.ndarray:
        z = self.x @ theta.reshape(3, 3)
        return z - np.logaddexp.reduce(z, axis=1, keepdims=True)

    def log_p_y(self, theta: np.ndarray) -> np.ndarray:
        return self.log_p(theta)[np.arange(90), self.y]

    def objective(self, theta: np.ndarray, w: np.ndarray) -> float:
        """Eq. 13: sum_i w_i L_q(i) - L_q(k) sum_i w_i."""
        return float(w @ (lq(self.log_p_y(theta), self.q) - self.threshold))

    def gradient(self, theta: np.ndarray, w: np.ndarray) -> np.ndarray:
        log_p = self.log_p(theta)
        residual = np.exp(log_p) - np.eye(3)[self.y]
        scale = w * np.exp(self.q * log_p[np.arange(90), self.y])
        return (self.x.T @ (scale[:, None] * residual)).ravel()

    def fit(self, theta: np.ndarray, w: np.ndarray) -> np.ndarray:
        return minimize(self.objective, theta, (w,), "L-BFGS-B", self.gradient, bounds=[(-5, 5)] * 9).x


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("k", [0.3, 0.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_alternating_search_descends_to_a_fixed_point(q, k, seed):
    problem = SoftmaxRegression(seed, q, k)
    pruner = Pruner(90, k=k)
    theta = problem.fit(np.zeros(9), np.ones(90))
    values = [problem.objective(theta, np.ones(90))]
    for _ in range(50):
        before = pruner.kept
        pruner.update(range(90), np.exp(problem.log_p_y(theta)))
        w = pruner.weights.double().numpy()
        values.append(problem.objective(theta, w))
        if torch.equal(before, pruner.kept):
            break
        theta = problem.fit(theta, w)
        values.append(problem.objective(theta, w))
    assert len(values) >= 4  # it had something to prune
    assert torch.equal(before, pruner.kept)  # a fixed point in w ...
    again = problem.fit(theta, w)
    assert problem.objective(again, w) >= values[-1] - 1e-6  # ... and in theta
    # 1e-7: p_y is compared with k in float32
    assert (np.diff(values) <= 1e-7).all()
    assert np.isclose(values[-1], np.minimum(lq(problem.log_p_y(theta), q) - problem.threshold, 0).sum())
    assert values[-1] < values[0] - 0.1
