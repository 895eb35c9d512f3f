"""Which label a row seems to have, and how often it is right, by how it is found out how labels go wrong.

    python benchmarks/bench_relabel.py labels --out results/bench/relabel.jsonl
    python benchmarks/bench_relabel.py rounds --out results/bench/relabel_rounds.jsonl

10,000 photographs of CIFAR-10 by their features (lite0), none of them in bench_features; labels by people
(CIFAR-10N) and drawn ones. labels: each row is judged by a discriminant that has not seen its label, and
"label_accuracy" is the share of rows whose most probable label is the true one: by the model alone, by Bayes
with the likeliest T and temperature, with the T that is counted (`tolerant.train.rounds.relabel`), or with
the true one. "right" is T's mean diagonal. rounds: a network of one hidden layer trains on 7,000 of them in
rounds of so many epochs; its accuracy on the others, and that of the labels it trained under in the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from common import TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from tolerant.data import CARDS, NoisyDataset, load
from tolerant.data.features import extract, load_extractor
from tolerant.experiment.row import commit, hardware
from tolerant.noise import corrupt, make_transition
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
    rows = load("cifar10")
    index = np.random.default_rng(0).permutation(len(rows))[10_000:20_000]  # bench_features has the first
    found = extract(np.asarray(rows.inputs[index]), load_extractor("lite0", "image"))
    x, true = np.asarray(found[np.arange(len(found))], np.float32), rows.given_labels[index]
    given = {name: load(f"cifar10n-{name}").given_labels[index] for name in BY_PEOPLE}
    for kind, rate in DRAWN:
        drawn = corrupt(true, make_transition(kind, rate, NAMES), seed=seed, kind=kind, rate=rate)
        given[f"{kind} {rate}"] = drawn.given_labels
    return (x - x.mean(0)) / x.std(0), true, given


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
    order = np.random.default_rng(seed).permutation(len(x))
    seen, others = np.split(order, [7 * len(x) // 10])
    rows = NoisyDataset(x[seen], labels[seen], true[seen], NAMES)
    test = NoisyDataset(x[others], true[others], true[others], NAMES)
    recipe = replace(RECIPE, batch_size=128 if len(x) > TINY_ROWS else 16, seed=seed)
    for epochs in EPOCHS:
        start = time.process_time()
        result = train(
            rows,
            model="mlp",
            model_args={"hidden": (128,)},
            rounds=taught(*epochs, q=0.7),
            recipe=recipe,
            test=test,
            device="cpu",
            progress="quiet",
        )
        yield {
            "epochs": list(epochs),
            "test_accuracy": round(result.test_accuracy or 0.0, 4),
            "first_round": round(result.history[epochs[0] - 1]["test_accuracy"], 4),
            "label_accuracy": accuracy(result.labels, true[seen]),
            "processor_s": round(time.process_time() - start, 1),
        }


def accuracy(labels: np.ndarray, true: np.ndarray) -> float:
    return round(float((labels == true).mean()), 4)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add_seeds(parser, 3)
    parser.add_argument("what", choices=("labels", "rounds"))
    arguments = parser.parse_args(words)
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


if __name__ == "__main__":
    main()
