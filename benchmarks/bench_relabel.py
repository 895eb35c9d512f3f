"""Which label a row seems to have, and how often it is right, by how it is found out how labels go wrong.

    python benchmarks/bench_relabel.py labels --out results/bench/relabel.jsonl
    python benchmarks/bench_relabel.py rounds --out results/bench/relabel_rounds.jsonl
    python benchmarks/bench_relabel.py ways --out results/bench/relabel_ways.jsonl

10,000 photographs of CIFAR-10 by their features (lite0), none of them in bench_features; labels by people
(CIFAR-10N) and drawn ones. labels: each row is judged by a discriminant that has not seen its label, and
"label_accuracy" is the share of rows whose most probable label is the true one: by the model alone, by Bayes
with the likeliest T and temperature, with the T that is counted (`tolerant.train.rounds.relabel`), or with
the true one. "right" is T's mean diagonal. rounds: a network of one hidden layer trains on 7,000 of them in
rounds of so many epochs, which decide "within"; its accuracy on the others, and that of the labels it trained
under in the end.
ways: decisions of `ways.py`, in rounds of 8, 12 and 12 epochs, on labels that no table reports: the
photographs as in rounds, with labels of people (random1, and either: a wrong one of random1 and random2 where
there is one); 15,000 photographs of CIFAR-100, 3,000 of them to test on; and, with a small network of
convolutions, 4,000 pictures of Fashion-MNIST, 14 x 14 pixels, and 4,000 more to test on. "stayed_wrong" and
"made_wrong" are shares of all rows: those that still go by a wrong given label, and by a wrong one that was
not given. A stored row is not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from common import TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of, stored
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold
from torch import Tensor
from ways import WAYS, Way

from tolerant.data import CARDS, NoisyDataset, load
from tolerant.data.features import extract, load_extractor
from tolerant.experiment.row import commit, hardware
from tolerant.noise import KINDS, corrupt, make_transition
from tolerant.theory import choose_q
from tolerant.train import Recipe, train
from tolerant.train.engine.mixup import one_hot
from tolerant.train.rounds import relabel
from tolerant.train.rounds.round import taught

BY_PEOPLE = ("random1", "random2", "random3", "worse", "aggre")
DRAWN = (("uniform", 0.4), ("uniform", 0.8), ("class-dependent", 0.4), ("uniform", 0.0))
EPOCHS = ((8, 24), (8, 12, 12), (8, 6, 6, 6, 6))
NAMES = CARDS["cifar10"].class_names
RECIPE = Recipe(
    lr=0.02,
    nesterov=True,
    weight_decay=5e-4,
    schedule="cosine",
    warm_up=0.15,
    milestones=(),
    augment="none",
    center="none",
    average=0.99,
    validation_fraction=0,
    select="last",
    score_every=0,
    precision="fp32",
)


def photographs(seed: int, *, tiny: bool) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Features, true labels, and the given ones by what they are called."""
    if tiny:
        rng, true = np.random.default_rng(seed), np.arange(TINY_ROWS) % 10
        x = (rng.normal(size=(TINY_ROWS, 16)) + 4 * np.eye(10, 16)[true]).astype(np.float32)
        return x, true, {"worse": np.where(rng.random(TINY_ROWS) < 0.3, (true + 1) % 10, true)}
    index = np.random.default_rng(0).permutation(50_000)[10_000:20_000]  # bench_features has the first
    x, true = features("cifar10", index)
    given = {name: load(f"cifar10n-{name}").given_labels[index] for name in BY_PEOPLE}
    for kind, rate in DRAWN:
        drawn = corrupt(true, make_transition(kind, rate, NAMES), seed=seed, kind=kind, rate=rate)
        given[f"{kind} {rate}"] = drawn.given_labels
    return x, true, given


def features(name: str, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of these rows, by `lite0`, each of mean 0 and deviation 1; and the true labels."""
    rows = load(name)
    found = extract(np.asarray(rows.inputs[index]), load_extractor("lite0", "image"))
    x = np.asarray(found[np.arange(len(found))], np.float32)
    return (x - x.mean(0)) / x.std(0), rows.given_labels[index]


def likeliest(probs: Tensor, given: Tensor) -> Tensor:
    """T by expectation maximisation, at the temperature where both make the labels likeliest."""
    found = []
    for temperature in relabel._TEMPERATURES:
        tempered = torch.softmax(probs.log() / temperature, 1)
        transition = torch.full((10, 10), 0.4 / 9).fill_diagonal_(0.6)
        for _ in range(10):
            joint = tempered * (given @ transition.T)
            counts = (joint / joint.sum(1, keepdim=True)).T @ given + 1e-6 * len(probs)
            transition = counts / counts.sum(1, keepdim=True)
        found.append((float((tempered * (given @ transition.T)).sum(1).log().mean()), transition))
    return max(found, key=lambda one: one[0])[1]


def decisions(x: np.ndarray, true: np.ndarray, labels: np.ndarray, seed: int) -> Iterator[Row]:
    probs = np.zeros((len(x), 10), np.float32)
    for seen, held_out in StratifiedKFold(3, shuffle=True, random_state=seed).split(x, labels):
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.8).fit(x[seen], labels[seen])
        probs[held_out] = model.predict_proba(x[held_out])
    given, p = one_hot(torch.from_numpy(labels), 10), torch.from_numpy(probs).clamp_min(1e-6)
    counts = one_hot(torch.from_numpy(true), 10).T @ given
    ways = {
        "likeliest": likeliest(p, given),
        "counted": relabel.count_transition(p, given),
        "true": (counts + 1e-3) / (counts + 1e-3).sum(1, keepdim=True),
    }
    judged = {"no T": p, **{way: relabel.posterior(p, given, t) for way, t in ways.items()}}
    for way, found in judged.items():
        right = round(float(ways[way].diagonal().mean()), 3) if way in ways else 1.0
        yield {"transition": way, "right": right, "label_accuracy": accuracy(found.argmax(1).numpy(), true)}


def in_rounds(x: np.ndarray, true: np.ndarray, labels: np.ndarray, seed: int) -> Iterator[Row]:
    rows, test = split(x, labels, true, NAMES, seed, 7 * len(x) // 10)
    recipe = replace(RECIPE, batch_size=128 if len(x) > TINY_ROWS else 16, seed=seed)
    for epochs in EPOCHS:
        start = time.process_time()
        result = train(
            rows,
            model="mlp",
            model_args={"hidden": (128,)},
            rounds=WAYS["within"].of(taught(*epochs, q=choose_q(len(NAMES)))),
            recipe=recipe,
            test=test,
            device="cpu",
            progress="quiet",
        )
        yield {
            "epochs": list(epochs),
            "test_accuracy": round(result.test_accuracy or 0.0, 4),
            "first_round": round(result.history[epochs[0] - 1]["test_accuracy"], 4),
            "label_accuracy": accuracy(result.labels, rows.true_labels),
            "processor_s": round(time.process_time() - start, 1),
        }


PICTURES = replace(
    RECIPE, lr=0.1, batch_size=128, augment="flip", center="channel", scale="std", average=0.98
)
MADE = (("uniform", 0.7), ("instance", 0.4), ("class-dependent", 0.3))


def pictures(seed: int, *, tiny: bool) -> Iterator[tuple[str, NoisyDataset, NoisyDataset]]:
    """Small pictures with labels made wrong, and others that are right."""
    source = load("digits" if tiny else "fashion-mnist")
    size = TINY_ROWS if tiny else 4000
    index = np.random.default_rng(seed).permutation(len(source))[: 2 * size]
    x, true = np.asarray(source.inputs[index]), source.given_labels[index]
    if tiny:
        x = x.reshape(-1, 8, 8, 1).astype(np.uint8)
    else:
        x = x.reshape(-1, 14, 2, 14, 2, 1).mean((2, 4)).round().astype(np.uint8)
    names = CARDS["fashion-mnist"].class_names
    rows, test = (
        NoisyDataset(x[part], true[part], true[part], names, kind="image")
        for part in (slice(size), slice(size, None))
    )
    for name, rate in MADE:
        kind, offered = KINDS[name], {"rate": rate, "inputs": rows.inputs}
        needed = {each: offered[each] for each in kind.needs}
        drawn = kind.draw(rows.given_labels, names, seed=seed, **needed)
        yield f"{name} {rate}", rows.with_given_labels(drawn.given_labels), test


def photos(seed: int, *, tiny: bool) -> Iterator[tuple[str, NoisyDataset, NoisyDataset]]:
    x, true, given = photographs(seed, tiny=tiny)
    if tiny:
        yield "worse", *split(x, given["worse"], true, NAMES, seed, 7 * len(x) // 10)
        return
    given["either"] = np.where(given["random1"] != true, given["random1"], given["random2"])
    for name in ("random1", "either"):
        yield name, *split(x, given[name], true, NAMES, seed, 7 * len(x) // 10)
    x, true = features("cifar100", np.random.default_rng(0).permutation(50_000)[:15_000])
    names = CARDS["cifar100"].class_names
    drawn = corrupt(true, make_transition("uniform", 0.6, names), seed=seed, kind="uniform", rate=0.6)
    yield "100 classes, uniform 0.6", *split(x, drawn.given_labels, true, names, seed, 12_000)


def split(
    x: np.ndarray, given: np.ndarray, true: np.ndarray, names: Sequence[str], seed: int, num_seen: int
) -> tuple[NoisyDataset, NoisyDataset]:
    """Rows to train on, and others with their true labels."""
    seen, others = np.split(np.random.default_rng(seed).permutation(len(x)), [num_seen])
    rows = NoisyDataset(x[seen], given[seen], true[seen], tuple(names))
    return rows, NoisyDataset(x[others], true[others], true[others], tuple(names))


def in_way(way: Way, rows: NoisyDataset, test: NoisyDataset, seed: int) -> Row:
    as_pictures, true, start = rows.kind == "image", rows.true_labels, time.process_time()
    assert true is not None
    recipe = replace(PICTURES if as_pictures else RECIPE, batch_size=128 if len(rows) > TINY_ROWS else 16)
    with way.decides():
        result = train(
            rows,
            model="small-cnn" if as_pictures else "mlp",
            model_args={"width": 16} if as_pictures else {"hidden": (128,)},
            rounds=way.of(taught(8, 12, 12, q=choose_q(rows.num_classes))),
            recipe=replace(recipe, seed=seed),
            test=test,
            device="cpu",
            progress="quiet",
        )
    wrong, stayed = result.labels != true, result.labels == rows.given_labels
    return {
        "test_accuracy": round(result.test_accuracy or 0.0, 4),
        "first_round": round(result.history[7]["test_accuracy"], 4),
        "label_accuracy": accuracy(result.labels, true),
        "stayed_wrong": round(float((wrong & stayed).mean()), 4),
        "made_wrong": round(float((wrong & ~stayed).mean()), 4),
        "kept": round(float(result.kept.mean()), 4),
        "model_accuracy": accuracy(result.predict_log_proba(rows).argmax(1), true),
        "processor_s": round(time.process_time() - start, 1),
    }


def accuracy(labels: np.ndarray, true: np.ndarray) -> float:
    return round(float((labels == true).mean()), 4)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add_seeds(parser, 3)
    parser.add_argument("what", choices=("labels", "rounds", "ways"))
    parser.add_argument("--only", help="of ways, these alone, by commas")
    arguments = parser.parse_args(words)
    if arguments.what == "ways":
        compare_ways(arguments)
        return
    for seed in seeds_of(arguments):
        x, true, given = photographs(seed, tiny=arguments.tiny)
        for name, labels in given.items():
            wrong = round(float((labels != true).mean()), 4)
            rows = (decisions if arguments.what == "labels" else in_rounds)(x, true, labels, seed)
            for found in rows:
                row = {"labels": name, "seed": seed, "wrong": wrong, **found}
                row |= {"hardware": hardware(torch.device("cpu")), "commit": commit()}
                append(arguments.out, row)
                print(row, flush=True)


def compare_ways(arguments: argparse.Namespace) -> None:
    names = [*WAYS] if arguments.only is None else arguments.only.split(",")
    done = {(row["labels"], row["seed"], row["way"]) for row in stored(arguments.out)}
    for make in (pictures, photos):
        sets = [(seed, *each) for seed in seeds_of(arguments) for each in make(seed, tiny=arguments.tiny)]
        for name, (seed, labels, rows, test) in product(names, sets):
            if (labels, seed, name) in done:
                continue
            found = in_way(WAYS[name], rows, test, seed)
            wrong = round(float(rows.flipped.mean()), 4)
            row = {"labels": labels, "seed": seed, "wrong": wrong, "way": name, **found}
            row |= {"hardware": hardware(torch.device("cpu")), "commit": commit()}
            append(arguments.out, row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
