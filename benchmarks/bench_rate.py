"""How often the interval of the noise rate holds the truth; how good "auto" is for k and q.

    python benchmarks/bench_rate.py rate --out results/bench/rate.jsonl     # digits, no data to fetch
    python benchmarks/bench_rate.py k --out results/bench/rate.jsonl
    python benchmarks/bench_rate.py q --out results/bench/rate.jsonl
    python benchmarks/bench_rate.py summary --out results/bench/rate.jsonl  # tables from the stored rows

`rate`: digits (1,438 rows, ten classes); wrong labels uniform over the other classes, or class-dependent (of
every second digit that share is given as the next one, so half as many in all). One row a seed: estimate and
interval from five folds, as `tolerant train` makes them, beside the rate that was drawn.

`k`: the same data; test accuracy of the final model with k = 0.5, "auto", and the best of a grid.
`q`: the problems of bench_audit.py with 3 and 10 classes; test accuracy and average precision with q = 0.7,
"auto", and the best of a grid. "Best of a grid" is chosen by TEST labels, which nobody has: it says what is
left to gain.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from unittest.mock import patch

import bench_audit
import numpy as np
from common import TINY_FIT, TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of
from sklearn.metrics import average_precision_score

from tolerant import NoisyLabelClassifier, find_suspects
from tolerant.data import NoisyDataset, load
from tolerant.noise import corrupt, symmetric
from tolerant.own_data import Learned, Settings
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.learn import learn
from tolerant.own_data.out_of_fold import OutOfFold, out_of_fold
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.evaluate import predict_log_proba

RATES = (0.1, 0.2, 0.4)
K_GRID = (0.1, 0.3, 0.5, 0.7, 0.9)
Q_GRID = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Scale:
    """How much is measured: by default all of it."""

    num_rows: int | None = None
    rates: tuple[float, ...] = RATES
    folds: int = 5
    epochs: int | None = None


TINY = Scale(TINY_ROWS, RATES[:1], **TINY_FIT)


def transition(kind: str, rate: float) -> np.ndarray:
    if kind == "uniform":
        return symmetric(10, rate)
    matrix = np.eye(10)
    for label in range(0, 10, 2):
        matrix[label, label], matrix[label, label + 1] = 1 - rate, rate
    return matrix


def noisy_digits(kind: str, rate: float, seed: int, scale: Scale) -> NoisyDataset:
    rows = load("digits")
    rows = rows.subset(np.arange(len(rows))[: scale.num_rows])
    return rows.with_given_labels(corrupt(rows.true_labels, transition(kind, rate), seed=seed).given_labels)


def conditions(seeds: range, scale: Scale) -> Iterator[tuple[str, float, int, NoisyDataset]]:
    for seed in seeds:
        for kind in ("uniform", "class-dependent"):
            for rate in scale.rates:
                yield kind, rate, seed, noisy_digits(kind, rate, seed, scale)


def fold_probs(rows: NoisyDataset, seed: int, scale: Scale) -> np.ndarray:
    """What `learn` scores the rows by, without its final training."""
    candidate = NetworkCandidate(Settings(seed=seed, epochs=scale.epochs), pick_device("auto"))
    return out_of_fold(rows, candidate, folds=scale.folds, seed=seed).probs


def measure_rate(seeds: range, scale: Scale) -> Iterator[Row]:
    for kind, rate, seed, rows in conditions(seeds, scale):
        found = find_suspects(rows.given_labels, fold_probs(rows, seed, scale), seed=seed).noise_rate
        yield {
            "what": "rate",
            "kind": kind,
            "rate": rate,
            "seed": seed,
            "realised": float(rows.flipped.mean()),
            "estimate": found.estimate,
            "low": found.low,
            "high": found.high,
        }


def measure_k(seeds: range, scale: Scale) -> Iterator[Row]:
    test = load("digits", split="test")
    for kind, rate, seed, rows in conditions(seeds, scale):

        def learn_with(k: float | Literal["auto"], rows: NoisyDataset = rows, seed: int = seed) -> Learned:
            settings = Settings(seed=seed, k=k, epochs=scale.epochs)
            return learn(rows, settings, folds=scale.folds, progress="quiet")

        first = learn_with("auto")
        # The folds are the same for every k: trained once.
        scored = OutOfFold(first.probs, np.ones(len(rows), bool))
        accuracy = {}
        for k in K_GRID:
            with patch("tolerant.own_data.learn_network.out_of_fold", lambda *_, scored=scored, **__: scored):
                accuracy[k] = test_accuracy(learn_with(k), test)
        yield {
            "what": "k",
            "kind": kind,
            "rate": rate,
            "seed": seed,
            "k_auto": first.k,
            "fixed": accuracy[0.5],
            "auto": test_accuracy(first, test),
            "best": max(accuracy.values()),
        }


def test_accuracy(learned: Learned, test: NoisyDataset) -> float:
    log_probs = predict_log_proba(
        learned.result.model, test, learned.result.preprocess, device=pick_device("auto")
    )
    return float((log_probs.argmax(axis=1) == test.true_labels).mean())


def measure_q(seeds: range, scale: Scale) -> Iterator[Row]:
    for seed in seeds:
        for name in ("table", "digits"):
            problem = bench_audit.PROBLEMS[name](seed)
            if scale.num_rows is not None:
                problem = problem.first(scale.num_rows)
            wrong = problem.given_labels != problem.true_labels
            accuracy, precision = {}, {}
            for q in (*Q_GRID, "auto"):
                model = NoisyLabelClassifier(
                    model="network", q=q, folds=scale.folds, epochs=scale.epochs, random_state=seed
                )
                model.fit(problem.inputs, problem.given_labels)
                accuracy[q] = model.score(problem.test_inputs, problem.test_labels)
                precision[q] = float(average_precision_score(wrong, -model.suspects_.p_right))
            for what, values in (("q-accuracy", accuracy), ("q-precision", precision)):
                yield {
                    "what": what,
                    "kind": name,
                    "rate": round(float(wrong.mean()), 3),
                    "seed": seed,
                    "fixed": values[0.7],
                    "auto": values["auto"],
                    "best": max(values[q] for q in Q_GRID),
                }


def summary(rows: list[Row]) -> None:
    groups: dict[tuple[str, str, float], list[Row]] = defaultdict(list)
    for row in rows:
        rate = row["rate"] if row["kind"] in ("uniform", "class-dependent") else 0.0
        groups[row["what"], row["kind"], rate].append(row)
    print("noise rate: share of seeds whose interval holds the drawn rate; mean error and width, in points")
    for (what, kind, rate), own in groups.items():
        if what == "rate":
            inside = np.mean([row["low"] <= row["realised"] <= row["high"] for row in own])
            error = 100 * np.mean([row["estimate"] - row["realised"] for row in own])
            width = 100 * np.mean([row["high"] - row["low"] for row in own])
            print(f"{kind:<16} {rate:.1f}  {inside:4.0%} of {len(own)}  {error:+5.1f}  {width:5.1f}")
    print("\nfixed (k 0.5, q 0.7), auto, best of the grid by test labels; mean over seeds, in %")
    for (what, kind, rate), own in groups.items():
        if what != "rate":
            means = [100 * np.mean([row[name] for row in own]) for name in ("fixed", "auto", "best")]
            numbers = "  ".join(f"{mean:6.2f}" for mean in means)
            print(f"{what:<12} {kind:<16} {f'{rate:.1f}' if rate else '':<4}  {numbers}  ({len(own)} seeds)")


MEASURES = {"rate": measure_rate, "k": measure_k, "q": measure_q}


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=[*MEASURES, "summary"])
    add_seeds(parser, 10)
    arguments = parser.parse_args(words)
    if arguments.what == "summary":
        if arguments.out is None:
            parser.error("summary needs --out, the rows to summarise")
        summary([json.loads(line) for line in arguments.out.read_text().splitlines()])
        return
    warnings.simplefilter("ignore")
    for row in MEASURES[arguments.what](seeds_of(arguments), TINY if arguments.tiny else Scale()):
        plain = {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
        append(arguments.out, plain)
        print(plain, flush=True)


if __name__ == "__main__":
    main()
