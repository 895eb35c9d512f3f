"""Test accuracy and suspect ranking on five noisy data sets: this package, cross entropy, cleanlab.

    TOLERANT_DATA=... python benchmarks/bench_audit.py                  # all five
    python benchmarks/bench_audit.py --only digits,copies,table         # no data to fetch

All use the same network, optimiser, number of epochs and noisy validation (`NoisyLabelClassifier`'s
defaults for networks), and five folds. CCE: trained on all rows, ranked by out-of-fold p_y. cleanlab:
`CleanLearning` around the CCE network, ranked by its self-confidence scores. Average precision: of the
ranking of all rows, wrong labels first, against the true labels, which nothing else has seen. Times are
processor time. "rounds" is this package with method="rounds", which trains longer.
"""

from __future__ import annotations

import json
import os
import resource
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import TINY_FIT, TINY_ROWS, append, make_parser

from tolerant import NoisyLabelClassifier
from tolerant.data import TableEncoder, load
from tolerant.experiment.row import hardware
from tolerant.noise import corrupt, make_transition, symmetric, uniform
from tolerant.train.engine.device import pick_device

FIT = {"folds": 5, "model": "network"}  # by default several models are tried on tables
FETCHED = ("fashion-mnist", "trec")


@dataclass(frozen=True)
class Problem:
    inputs: Any
    given_labels: np.ndarray
    true_labels: np.ndarray
    test_inputs: Any
    test_labels: np.ndarray

    def first(self, rows: int) -> Problem:
        own = (self.inputs[:rows], self.given_labels[:rows], self.true_labels[:rows])
        return Problem(*own, self.test_inputs[:rows], self.test_labels[:rows])


def digits(seed: int) -> Problem:
    """1,438 pictures of 8 x 8, 40 % uniform."""
    train, test = load("digits"), load("digits", split="test")
    noise = corrupt(train.given_labels, uniform(10, 0.4), seed=seed, kind="uniform", rate=0.4)
    return Problem(train.inputs, noise.given_labels, train.true_labels, test.inputs, test.true_labels)


def copies(seed: int) -> Problem:
    """The digits above, a fifth of them four times with the same label, as oversampling would have it."""
    once = digits(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(once.given_labels))
    rows = rng.permutation(np.concatenate([order, np.repeat(order[: len(order) // 5], 3)]))
    return replace(
        once,
        inputs=once.inputs[rows],
        given_labels=once.given_labels[rows],
        true_labels=once.true_labels[rows],
    )


def fashion(seed: int) -> Problem:
    """10,000 Fashion-MNIST pictures, 40 % of five classes given the class they are mistaken for."""
    train, test = load("fashion-mnist"), load("fashion-mnist", split="test")
    rows = np.random.default_rng(seed).permutation(len(train))[:10_000]
    train = train.subset(rows)
    transition = make_transition("class-map", 0.4, train.class_names)
    noise = corrupt(train.true_labels, transition, seed=seed, kind="class-map", rate=0.4)
    return Problem(train.inputs, noise.given_labels, train.true_labels, test.inputs, test.true_labels)


def trec(seed: int) -> Problem:
    """Questions labelled by the majority of keyword rules (those that any rule labels), TF-IDF features."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    data = json.loads((Path(os.environ["TOLERANT_DATA"]) / "text" / "trec.json").read_text())
    votes = [np.bincount([v for _, v in row], minlength=6) if row else None for row in data["train"]["votes"]]
    voted = np.array([row for row, vote in enumerate(votes) if vote is not None])
    given = np.array([votes[row].argmax() for row in voted])
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    inputs = vectorizer.fit_transform(np.array(data["train"]["text"], object)[voted])
    true = np.array(data["train"]["y_clean"])[voted]
    test = vectorizer.transform(data["test"]["text"])
    return Problem(inputs, given, true, test, np.array(data["test"]["y_clean"]))


def table(seed: int) -> Problem:
    """4,000 made-up customers, numbers and categories, three classes, 30 % symmetric; missing cells too."""
    import pandas

    rng = np.random.default_rng(1000 + seed)
    num_rows = 6_000
    age, income = rng.uniform(18, 80, num_rows), rng.lognormal(10, 0.6, num_rows)
    visits = rng.poisson(4, num_rows)
    town, plan = rng.integers(0, 6, num_rows), rng.integers(0, 4, num_rows)
    town_value, plan_value = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    features = np.column_stack([(age - 49) / 18, np.log(income) - 10, (visits - 4) / 2])
    scores = features @ rng.normal(size=(3, 3)) + np.tanh(2 * features) @ rng.normal(size=(3, 3))
    scores += 1.5 * town_value[town] + 1.5 * plan_value[plan] * features[:, :1]
    true = (2 * scores + rng.gumbel(size=scores.shape) * 0.3).argmax(1)
    frame = pandas.DataFrame(
        {
            "age": np.where(rng.random(num_rows) < 0.05, np.nan, age),
            "income": income,
            "visits": visits,
            "town": np.array(["Bonn", "Ulm", "Jena", "Kiel", "Trier", "Hof"])[town],
            "plan": np.array(["free", "basic", "plus", "pro"])[plan],
        }
    )
    train, test = np.arange(4_000), np.arange(4_000, num_rows)
    encoder = TableEncoder.fit(frame.iloc[train])
    inputs = encoder.transform(frame)
    noise = corrupt(true[train], symmetric(3, 0.3), seed=seed, kind="symmetric", rate=0.3)
    return Problem(inputs[train], noise.given_labels, true[train], inputs[test], true[test])


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "digits": digits,
    "copies": copies,
    "fashion-mnist": fashion,
    "trec": trec,
    "table": table,
}


def run_ours(problem: Problem, seed: int, fit: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    model = NoisyLabelClassifier(**fit, random_state=seed)
    model.fit(problem.inputs, problem.given_labels)
    return model.score(problem.test_inputs, problem.test_labels), model.suspects_.p_right


def run_rounds(problem: Problem, seed: int, fit: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    return run_ours(problem, seed, {**fit, "method": "rounds"})


def run_cce(problem: Problem, seed: int, fit: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    model = NoisyLabelClassifier(loss="cce", **fit, random_state=seed)
    model.fit(problem.inputs, problem.given_labels)
    return model.score(problem.test_inputs, problem.test_labels), model.p_y_


def run_cleanlab(problem: Problem, seed: int, fit: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    from cleanlab.classification import CleanLearning

    base = NoisyLabelClassifier(loss="cce", **{**fit, "folds": 0}, random_state=seed)
    model = CleanLearning(base, cv_n_folds=fit["folds"], seed=seed).fit(problem.inputs, problem.given_labels)
    quality = model.get_label_issues()["label_quality"].to_numpy()
    predicted = model.predict(problem.test_inputs)
    return float((predicted == problem.test_labels).mean()), quality


METHODS = {"cce": run_cce, "cleanlab": run_cleanlab, "tolerant": run_ours, "rounds": run_rounds}


def main(words: Sequence[str] | None = None) -> None:
    from sklearn.metrics import average_precision_score

    parser = make_parser(__doc__)
    parser.add_argument("--only", default=",".join(PROBLEMS), help="data sets, with commas between")
    parser.add_argument("--methods", default=",".join(METHODS), help="of these four, with commas between")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    fit, names = FIT, arguments.only.split(",")
    if arguments.tiny:
        fit, names = {**FIT, **TINY_FIT}, [name for name in names if name not in FETCHED]
    warnings.simplefilter("ignore")
    print("data set       method     test accuracy  average precision  processor s")
    for name in names:
        problem = PROBLEMS[name](arguments.seed)
        if arguments.tiny:
            problem = problem.first(TINY_ROWS)
        wrong = problem.given_labels != problem.true_labels
        for method in arguments.methods.split(","):
            run = METHODS[method]
            start = time.process_time()
            accuracy, right = run(problem, arguments.seed, fit)
            row = {
                "data": name,
                "method": method,
                "seed": arguments.seed,
                "rows": len(wrong),
                "noise_rate": round(float(wrong.mean()), 4),
                "test_accuracy": round(float(accuracy), 4),
                "average_precision": round(float(average_precision_score(wrong, -right)), 4),
                "processor_s": round(time.process_time() - start, 1),
                "peak_mem_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "hardware": hardware(pick_device("auto")),
            }
            print(
                f"{name:<14} {method:<10} {row['test_accuracy']:>13.4f}  {row['average_precision']:>17.4f}"
                f"  {row['processor_s']:>11.1f}",
                flush=True,
            )
            append(arguments.out, row)


if __name__ == "__main__":
    main()
