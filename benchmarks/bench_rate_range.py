"""How often the interval of the noise rate holds the truth where it should be wide.

    python benchmarks/bench_rate_range.py --out results/bench/rate_range.jsonl
    python benchmarks/bench_rate_range.py --out results/bench/rate_range.jsonl --summary  # of the stored rows

Each row is a data set drawn at random: 2 to 10 classes, 300 to 2,000 rows, classes from far apart to hardly
told apart. Its labels are clean, wrong by a matrix of one of four kinds, or wrong more often in hard rows and
there as the next likely class, as people err. Predictions are exact probabilities of given or of true
classes, those made too sure or too unsure, or of logistic regression and boosting, out of five folds.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from bench_rate import logistic, pair_flips, simulate
from common import Row, add_seeds, append, make_parser, seeds_of
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_predict

from tolerant import find_suspects
from tolerant.noise import symmetric

KINDS = ("clean", "uniform", "pair flips", "one way", "random", "hard rows")
MODELS = ("exact", "true classes", "too sure", "unsure", "logistic", "boosting")
DRAWS = 40  # for each seed
WEAK = 2.0  # with classes nearer than this even the best model errs in a sixth of two classes


def draw_transition(kind: str, num_classes: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    matrix = np.eye(num_classes)
    if kind == "uniform":
        return symmetric(num_classes, rate)
    if kind == "pair flips":
        return pair_flips(num_classes, rate)
    if kind == "one way":
        matrix[0, :2] = 1 - rate, rate
    if kind == "random":
        wrong = rng.uniform(0, rate, (num_classes, 1))
        matrix = (1 - wrong) * matrix + wrong * rng.dirichlet(np.ones(num_classes), num_classes)
    return matrix


def err_in_hard_rows(true: np.ndarray, exact: np.ndarray, rate: float, rng: np.random.Generator) -> Any:
    """Of the row that is hardest twice the rate is wrong, of the easiest none: the next likely class."""
    rows = np.arange(len(true))
    others = exact.copy()
    others[rows, true] = -1.0
    hardness = (-exact[rows, true]).argsort().argsort() / len(true)
    return np.where(rng.random(len(true)) < 2 * rate * hardness, others.argmax(axis=1), true)


def predict(
    model: str, inputs: np.ndarray, given: np.ndarray, exact: np.ndarray, matrix: np.ndarray
) -> np.ndarray:
    if model in ("logistic", "boosting"):
        learner = logistic() if model == "logistic" else HistGradientBoostingClassifier(max_iter=30)
        return cross_val_predict(learner, inputs, given, cv=5, method="predict_proba")
    if model != "exact":
        exact = np.maximum(exact @ np.linalg.pinv(matrix), 1e-9)
    probs = exact ** {"too sure": 2.0, "unsure": 0.4}.get(model, 1.0)
    return probs / probs.sum(axis=1, keepdims=True)


def measure(seeds: range, draws: int) -> Iterator[Row]:
    for seed in seeds:
        rng = np.random.default_rng([seed, 26])
        for draw in range(draws):
            num_classes, num_rows = int(rng.choice([2, 3, 5, 10])), int(rng.choice([300, 1000, 2000]))
            distance, rate = float(rng.choice([0.8, 1.5, 2.5, 3.5, 5.0, 6.5])), float(rng.uniform(0.05, 0.4))
            kind, model = (
                str(rng.choice(KINDS)),
                str(rng.choice(MODELS, p=[0.2, 0.15, 0.05, 0.05, 0.4, 0.15])),
            )
            if model == "boosting" and num_classes > 3:
                model = "logistic"  # which takes a hundredth of the time
            matrix = draw_transition(kind, num_classes, rate, rng)
            inputs, true, given, exact = simulate(matrix, distance, num_rows, 1000 * seed + draw)
            if kind == "hard rows":
                given = err_in_hard_rows(true, exact, rate, rng)
                model = "true classes" if model == "exact" else model
            if np.bincount(given, minlength=num_classes).min() < 5:
                continue  # not enough for five folds
            found = find_suspects(given, predict(model, inputs, given, exact, matrix)).noise_rate
            yield {
                "seed": seed,
                "kind": kind,
                "classes": num_classes,
                "rows": num_rows,
                "distance": distance,
                "model": model,
                "realised": float((given != true).mean()),
                "estimate": found.estimate,
                "low": found.low,
                "high": found.high,
            }


def summary(rows: list[Row]) -> None:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        people = row["kind"] == "hard rows"
        groups["hard rows" if people else "a matrix or clean"].append(row)
        groups[f"{row['kind']}, classes {'hardly told apart' if row['distance'] < WEAK else 'apart'}"].append(
            row
        )
    print("how many intervals hold the drawn rate, mean width in points, how many are wider than 20")
    for name, own in sorted(groups.items()):
        inside = np.mean([row["low"] <= row["realised"] <= row["high"] for row in own])
        widths = np.array([row["high"] - row["low"] for row in own])
        wide = (widths > 0.2).mean()
        print(f"{name:<40} {inside:4.0%} of {len(own):<4} {100 * widths.mean():5.1f}  {wide:4.0%}")


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--summary", action="store_true", help="print a table of the rows in --out")
    add_seeds(parser, 12)
    arguments = parser.parse_args(words)
    if arguments.summary:
        summary([json.loads(line) for line in arguments.out.read_text().splitlines()])
        return
    warnings.simplefilter("ignore")
    for row in measure(seeds_of(arguments), 2 if arguments.tiny else DRAWS):
        plain = {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
        append(arguments.out, plain)
        print(plain, flush=True)


if __name__ == "__main__":
    main()
