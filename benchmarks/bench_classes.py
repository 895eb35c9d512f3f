"""Tables of many classes: test accuracy and suspect ranking by q.

    python benchmarks/bench_classes.py --first-seed 10 --seeds 3 --out results/bench/classes.jsonl
    python benchmarks/bench_classes.py --only digits20,digits40,blobs100,zipf300       # no data to fetch

digits20, digits40, fashion80: the classes of the digits and of Fashion-MNIST, each cut into two, four or
eight by k-means. blobs100: 100 normal distributions in 20 dimensions, 25 training rows each on average.
zipf300: 300 of them, most with a few rows and some with hundreds. Uniform noise at 0.2 and 0.4, circular
noise at 0.2. "bound" is `tolerant.theory.exponent.same_gap`, which grows with the number of classes.
The rest is `NoisyLabelClassifier`'s defaults. Precision: among as many of the most doubtful rows as are
wrong.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from common import TINY_FIT, TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of

from tolerant import NoisyLabelClassifier
from tolerant.data import load
from tolerant.experiment.row import hardware, versions
from tolerant.noise import circular, corrupt, uniform
from tolerant.theory.exponent import same_gap

NOISES = {"uniform 0.2": (uniform, 0.2), "uniform 0.4": (uniform, 0.4), "circular 0.2": (circular, 0.2)}
FEWEST = 3  # rows of a class
FETCHED = "fashion80"

Table = tuple[np.ndarray, np.ndarray, int]  # inputs, true labels, how many of the rows are for training
# Inputs and true labels to train on, inputs and true labels to test on.
Problem = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def cut(inputs: np.ndarray, labels: np.ndarray, parts: int, num_train: int) -> Table:
    from sklearn.cluster import KMeans

    finer = labels * parts
    for number in range(labels.max() + 1):
        rows = labels == number
        finer[rows] += KMeans(parts, n_init=1, random_state=0).fit_predict(inputs[rows])
    return inputs, finer, num_train


def digits(parts: int) -> Table:
    from sklearn.datasets import load_digits

    return cut(*load_digits(return_X_y=True), parts, 1200)


def fashion(parts: int) -> Table:
    from sklearn.decomposition import PCA

    rows = load("fashion-mnist").subset(np.random.default_rng(0).permutation(60_000)[:9000])
    pixels = np.asarray(rows.inputs).reshape(len(rows), -1) / 255
    return cut(PCA(50, random_state=0).fit_transform(pixels), rows.given_labels, parts, 4000)


def blobs(labels: np.ndarray, spread: float, num_train: int, rng: np.random.Generator) -> Table:
    centres = spread * rng.normal(size=(labels.max() + 1, 20))
    return centres[labels] + rng.normal(size=(len(labels), 20)), labels, num_train


def zipf(num_classes: int, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    share = 1 / np.arange(1, num_classes + 1)
    every = np.repeat(np.arange(num_classes), 6)
    return np.append(every, rng.choice(num_classes, num_rows - len(every), p=share / share.sum()))


TABLES: dict[str, Callable[[np.random.Generator], Table]] = {
    "digits20": lambda rng: digits(2),
    "digits40": lambda rng: digits(4),
    "fashion80": lambda rng: fashion(8),
    "blobs100": lambda rng: blobs(np.repeat(np.arange(100), 40), 1.2, 2500, rng),
    "zipf300": lambda rng: blobs(zipf(300, 6000, rng), 1.5, 4000, rng),
}


def split(table: Table, rng: np.random.Generator) -> Problem:
    """Training and test rows, without classes of which too few rows are left to train on."""
    inputs, labels, num_train = table
    order = rng.permutation(len(labels))
    inputs, labels = inputs[order].astype(np.float32), labels[order]
    known = np.bincount(labels[:num_train], minlength=labels.max() + 1) >= FEWEST
    number = np.cumsum(known) - 1
    train, test = np.split(np.arange(len(labels)), [num_train])
    train, test = train[known[labels[train]]], test[known[labels[test]]]
    return inputs[train], number[labels[train]], inputs[test], number[labels[test]]


def few(problem: Problem) -> Problem:
    """Rows of four classes."""
    inputs, labels, test_inputs, test_labels = problem
    train, test = labels < 4, test_labels < 4
    return (
        inputs[train][:TINY_ROWS],
        labels[train][:TINY_ROWS],
        test_inputs[test][:TINY_ROWS],
        test_labels[test][:TINY_ROWS],
    )


def measure(problem: Problem, name: str, noise: str, setting: str, seed: int, fit: Mapping[str, Any]) -> Row:
    from sklearn.metrics import average_precision_score

    inputs, labels, test_inputs, test_labels = problem
    num_classes = int(labels.max()) + 1
    make, rate = NOISES[noise]
    given = corrupt(labels, make(num_classes, rate), seed=seed, rate=rate).given_labels
    wrong = given != labels
    q = same_gap(num_classes) if setting == "bound" else setting
    changed = {"loss": "cce"} if q == "cce" else {"q": q if q == "auto" else float(q)}
    start = time.process_time()
    model = NoisyLabelClassifier(random_state=seed, device="cpu", **changed, **fit).fit(inputs, given)
    right = model.suspects_.p_right
    doubtful = np.argsort(right, kind="stable")[: wrong.sum()]
    measured = {
        "wrong": wrong.mean(),
        "test_accuracy": model.score(test_inputs, test_labels),
        "precision": wrong[doubtful].mean(),
        "average_precision": average_precision_score(wrong, -right),
    }
    return {
        "data": name,
        "rows": len(labels),
        "classes": num_classes,
        "noise": noise,
        "seed": seed,
        "setting": setting,
        **{key: round(float(value), 4) for key, value in measured.items()},
        "processor_s": round(time.process_time() - start, 1),
        "hardware": hardware(torch.device("cpu")),
        "versions": versions(),
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--only", default=",".join(TABLES), help="data sets, with commas between")
    parser.add_argument("--settings", default="auto,0.7,bound,cce", help="q, auto, bound or cce")
    add_seeds(parser, 1)
    arguments = parser.parse_args(words)
    names, noises = arguments.only.split(","), list(NOISES)
    if arguments.tiny:
        names, noises = [name for name in names if name != FETCHED], noises[-1:]
    warnings.simplefilter("ignore")
    print("data       noise        seed setting  test accuracy  precision")
    for seed in seeds_of(arguments):
        for name in names:
            rng = np.random.default_rng(seed)
            problem = split(TABLES[name](rng), rng)
            if arguments.tiny:
                problem = few(problem)
            for noise, setting in product(noises, arguments.settings.split(",")):
                row = measure(problem, name, noise, setting, seed, TINY_FIT if arguments.tiny else {})
                print(
                    f"{name:<10} {noise:<12} {seed:>4} {setting:<7}  {row['test_accuracy']:>13.4f}"
                    f"  {row['precision']:>9.4f}",
                    flush=True,
                )
                append(arguments.out, row)


if __name__ == "__main__":
    main()
