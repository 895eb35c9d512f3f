"""How often the interval of the noise rate holds the truth; how good "auto" is for k and q.

    python benchmarks/bench_rate.py families --out results/bench/rate_families.jsonl  # simulated
    python benchmarks/bench_rate.py people --out results/bench/rate_families.jsonl    # CIFAR-10N
    python benchmarks/bench_rate.py rate --out results/bench/rate.jsonl     # digits, no data to fetch
    python benchmarks/bench_rate.py k --out results/bench/rate.jsonl
    python benchmarks/bench_rate.py q --out results/bench/rate.jsonl
    python benchmarks/bench_rate.py summary --out results/bench/rate.jsonl  # tables from the stored rows

`families`: rows of a normal distribution for each class, "apart" (the best model errs on about 1 % of them)
or "near" (5 to 13 %), with labels drawn by four transition matrices; predictions of logistic regression and
boosting, out of five folds, and the exact probabilities of the given labels. `people`: 5,000 photographs
with three kinds of labels by people, by features of `lite0`; logistic regression, and the network of
`tolerant train`. Both have cleanlab's rate and transition, from its confident joint, in the same row.

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
from dataclasses import dataclass, replace
from typing import Literal
from unittest.mock import patch

import bench_audit
import cleanlab.count
import numpy as np
from common import TINY_FIT, TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from tolerant import NoisyLabelClassifier, find_suspects
from tolerant.data import NoisyDataset, load
from tolerant.data.features import extract, load_extractor
from tolerant.noise import corrupt, symmetric
from tolerant.noise.estimate import softmax
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


def pair_flips(num_classes: int, rate: float) -> np.ndarray:
    return (1 - rate) * np.eye(num_classes) + rate * np.roll(np.eye(num_classes), 1, axis=1)


# Of each family T, and the distances of the class centres for "apart" and "near".
FAMILIES: dict[str, tuple[np.ndarray, dict[str, float]]] = {
    "pair flips": (pair_flips(10, 0.4), {"apart": 6.5, "near": 4.8}),
    "one way": (np.array([[0.7, 0.3], [0.0, 1.0]]), {"apart": 4.7, "near": 2.6}),
    "asymmetric": (
        np.array([[0.7, 0.3, 0.0], [0.0, 0.85, 0.15], [0.0, 0.0, 1.0]]),
        {"apart": 5.0, "near": 3.0},
    ),
    "uniform": (symmetric(10, 0.2), {"apart": 6.5, "near": 4.8}),
}
FAMILY_ROWS, FAMILY_COLUMNS = 2000, 10


def simulate(
    matrix: np.ndarray, distance: float, num_rows: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, true and given labels, exact probabilities of the given labels."""
    rng, num_classes = np.random.default_rng([seed, len(matrix)]), len(matrix)
    directions = np.linalg.qr(rng.normal(size=(FAMILY_COLUMNS, FAMILY_COLUMNS)))[0]
    centres = distance / np.sqrt(2) * directions[:num_classes]  # all equally far from each other
    true = rng.integers(num_classes, size=num_rows)
    inputs = centres[true] + rng.normal(size=(num_rows, FAMILY_COLUMNS))
    given = corrupt(true, matrix, seed=seed).given_labels
    return inputs, true, given, softmax(inputs @ centres.T) @ matrix


def beside_cleanlab(given: np.ndarray, true: np.ndarray, probs: np.ndarray) -> Row:
    found, joint = find_suspects(given, probs), cleanlab.count.estimate_joint(given, probs)
    counts = np.zeros_like(joint)
    np.add.at(counts, (true, given), 1.0)
    diagonal = counts.diagonal() / counts.sum(axis=1)
    theirs = joint.diagonal() / joint.sum(axis=0)
    return {
        "realised": float((given != true).mean()),
        "model_error": float((probs.argmax(axis=1) != true).mean()),
        "estimate": found.noise_rate.estimate,
        "low": found.noise_rate.low,
        "high": found.noise_rate.high,
        "diagonal_error": float(np.abs(found.transition.diagonal() - diagonal).mean()),
        "cleanlab": float(1.0 - np.trace(joint)),
        "cleanlab_diagonal_error": float(np.abs(theirs - diagonal).mean()),
    }


def measure_families(seeds: range, scale: Scale) -> Iterator[Row]:
    boosting = HistGradientBoostingClassifier(max_iter=30)
    for seed in seeds:
        for family, (matrix, distances) in FAMILIES.items():
            for overlap, distance in distances.items():
                inputs, true, given, exact = simulate(matrix, distance, scale.num_rows or FAMILY_ROWS, seed)
                said = {"family": family, "overlap": overlap, "seed": seed}
                for name, model in (("exact", None), ("logistic", logistic()), ("boosting", boosting)):
                    probs = exact
                    if model is not None:
                        probs = cross_val_predict(model, inputs, given, cv=5, method="predict_proba")
                    yield {**said, "model": name, **beside_cleanlab(given, true, probs)}


def logistic(strength: float = 1.0) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=300))


def measure_people(seeds: range, scale: Scale) -> Iterator[Row]:
    """`lite0` must be installed; the features are kept in the cache."""
    for kind in ("worse", "random1", "aggre"):
        rows = load(f"cifar10n-{kind}")
        rows = rows.subset(np.random.default_rng(0).permutation(len(rows))[: scale.num_rows or 5000])
        views = extract(np.asarray(rows.inputs[np.arange(len(rows))]), load_extractor("lite0", "image"))
        features = views[np.arange(len(rows))].reshape(len(rows), -1, views.shape[-1]).mean(axis=1)
        probs = cross_val_predict(
            logistic(0.001), features, rows.given_labels, cv=5, method="predict_proba"
        )  # as in bench_features.py
        said = {"family": f"people, {kind}", "overlap": "photographs"}
        found = beside_cleanlab(rows.given_labels, rows.true_labels, probs)
        yield {**said, "seed": 0, "model": "logistic", **found}
        for seed in seeds:
            probs = fold_probs(replace(rows, inputs=features, kind="table"), seed, scale)
            found = beside_cleanlab(rows.given_labels, rows.true_labels, probs)
            yield {**said, "seed": seed, "model": "network", **found}


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
    if any("cleanlab" in row for row in rows):
        summary_beside_cleanlab([row for row in rows if "cleanlab" in row])
        return
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


def summary_beside_cleanlab(rows: list[Row]) -> None:
    """`needed`: the width of an interval around the estimate that just holds 95 % of the drawn rates."""
    print(
        "in points: mean error, mean absolute error of the rate and of T's diagonal (cleanlab's beside them),"
    )
    print("how many intervals hold the drawn rate, their mean width, and the width needed")
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["family"], row["overlap"], row["model"]].append(row)
    for (family, overlap, model), own in groups.items():
        drawn = np.array([row["realised"] for row in own])
        error = 100 * (np.array([row["estimate"] for row in own]) - drawn)
        theirs = 100 * (np.array([row["cleanlab"] for row in own]) - drawn)
        diagonal, their_diagonal = (
            100 * np.mean([row[name] for row in own])
            for name in ("diagonal_error", "cleanlab_diagonal_error")
        )
        inside = sum(row["low"] <= row["realised"] <= row["high"] for row in own)
        width = 100 * np.mean([row["high"] - row["low"] for row in own])
        needed = 2 * np.quantile(np.abs(error), 0.95)
        print(
            f"{family:<16} {overlap:<11} {model:<9} {error.mean():+6.1f}  {np.abs(error).mean():5.1f} "
            f"({np.abs(theirs).mean():4.1f})  {diagonal:5.1f} ({their_diagonal:4.1f})  "
            f"{inside}/{len(own)}  {width:5.1f}  {needed:5.1f}"
        )
    print("\nof each family: intervals that hold it, mean width, width needed, and how many times that is")
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        inside = sum(row["low"] <= row["realised"] <= row["high"] for row in own)
        width = np.mean([row["high"] - row["low"] for row in own])
        needed = 2 * np.quantile([abs(row["estimate"] - row["realised"]) for row in own], 0.95)
        both = f"{100 * width:5.1f}  {100 * needed:5.1f}"
        print(f"{family:<16} {inside}/{len(own)}  {both}  {width / needed:4.1f}")


MEASURES = {
    "families": measure_families,
    "people": measure_people,
    "rate": measure_rate,
    "k": measure_k,
    "q": measure_q,
}


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
