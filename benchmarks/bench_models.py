"""What `tolerant train` does with tables and texts by default, against what people use, on noisy labels.

    python benchmarks/bench_models.py --tables FOLDER --texts FOLDER --only wine,attrition,trec --seeds 1

Wine, cancer and digits need nothing. FOLDER of tables: CSV files (.csv, .csv.xz) with the true class in the
column `target`. FOLDER of texts: JSON files (.json, .json.xz) with `train` and `test`, each with `text` and
`y_clean`, and in `train` the `votes` of rules, a list of [rule, class] for each text. Of a table 4,000 rows
at random are used, seven tenths to train.

Noise: uniform (20 %), class-dependent (20 % in all, each class to another one), one-way (40 % of the rarest
class given the most frequent one; tables), rules (the rules' majority; texts).

Others: logistic regression (scaled and one-hot columns; TF-IDF of words), plain and with balanced classes;
scikit-learn's gradient boosting and random forest (tables); cleanlab's `CleanLearning` around each. Accuracy
and balanced accuracy are those of clean test rows, ranking is the average precision of all rows by how wrong
the label seems: out-of-fold p_y of a plain model, cleanlab's label quality, ours as in the written list. Ours
goes by the command line's own way: rows from a file, the run folder written and read back. It runs by default
(`tolerant`), with a class weight that is set, and with each of its models alone. Times are of the processor,
so that others at work do not count; the machine is in the rows.
"""

from __future__ import annotations

import json
import lzma
import os
import resource
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import TINY_ROWS, add_seeds, append, make_parser, seeds_of

from tolerant.experiment.row import commit, hardware
from tolerant.noise import corrupt
from tolerant.train.engine.device import pick_device

OWN_TABLES = ("wine", "cancer", "digits")
TABLE_NOISES, TEXT_NOISES = ("uniform", "class-dependent", "one-way"), ("rules", "uniform", "class-dependent")
MOST_ROWS, FOLDS = 4000, 5


@dataclass(frozen=True)
class Problem:
    """Rows are a frame, or texts (n,)."""

    inputs: Any
    given_labels: np.ndarray
    true_labels: np.ndarray
    test_inputs: Any
    test_labels: np.ndarray

    @property
    def num_classes(self) -> int:
        return int(self.true_labels.max()) + 1


def with_noise(true: np.ndarray, kind: str, seed: int) -> np.ndarray:
    rng, counts = np.random.default_rng(seed + 1000), np.bincount(true)
    num_classes = len(counts)
    transition = np.eye(num_classes)
    if kind == "uniform":
        transition = np.full((num_classes, num_classes), 0.2 / (num_classes - 1))
        np.fill_diagonal(transition, 0.8)
    elif kind == "one-way":
        rare, frequent = counts.argmin(), counts.argmax()
        transition[rare, rare], transition[rare, frequent] = 0.6, 0.4
    else:
        rates = rng.uniform(0.05, 0.45, num_classes)
        rates = np.minimum(rates * 0.2 / (counts / counts.sum() @ rates), 0.49)
        for label, rate in enumerate(rates):
            other = rng.choice([each for each in range(num_classes) if each != label])
            transition[label, label] -= rate
            transition[label, other] += rate
    return corrupt(true, transition, seed=seed).given_labels


def read_table(name: str, folder: Path | None) -> tuple[Any, np.ndarray]:
    import pandas
    from sklearn import datasets

    if name in OWN_TABLES:
        load = {"wine": datasets.load_wine, "cancer": datasets.load_breast_cancer}
        found = load.get(name, datasets.load_digits)()
        frame = pandas.DataFrame(found.data, columns=[f"c{number}" for number in range(found.data.shape[1])])
        return frame, found.target
    if folder is None:
        raise SystemExit(f"{name}: name the folder that holds it, with --tables or TOLERANT_TABLES")
    frame = pandas.read_csv(next(folder.glob(f"{name}.csv*")))
    return frame, pandas.factorize(frame.pop("target"))[0]


def table_problem(name: str, kind: str, seed: int, folder: Path | None, most_rows: int) -> Problem:
    frame, true = read_table(name, folder)
    order = np.random.default_rng(seed).permutation(len(true))[:most_rows]
    train, test = np.split(order, [int(0.7 * len(order))])
    given = with_noise(true[train], kind, seed)
    return Problem(frame.iloc[train], given, true[train], frame.iloc[test], true[test])


def text_problem(path: Path, kind: str, seed: int) -> Problem:
    data = json.loads(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_text())
    texts, true = np.array(data["train"]["text"], object), np.array(data["train"]["y_clean"])
    test = np.array(data["test"]["text"], object), np.array(data["test"]["y_clean"])
    if kind != "rules":
        return Problem(texts, with_noise(true, kind, seed), true, *test)
    rng = np.random.default_rng(seed)
    voted = np.array([row for row, votes in enumerate(data["train"]["votes"]) if votes])
    counts = [
        np.bincount([v for _, v in data["train"]["votes"][row]], minlength=true.max() + 1) for row in voted
    ]
    given = (np.array(counts) + 1e-3 * rng.random((len(voted), true.max() + 1))).argmax(1)
    return Problem(texts[voted], given, true[voted], *test)


def ours(problem: Problem, seed: int, folds: int, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """(predicted labels of the test rows, how right each given label seems)."""
    import pandas

    from tolerant.data import Source
    from tolerant.own_data import Settings, load_run
    from tolerant.own_data.train_source import train_source

    def write(path: Path, inputs: Any, labels: np.ndarray | None) -> None:
        frame = inputs.copy() if hasattr(inputs, "columns") else pandas.DataFrame({"text": inputs})
        if labels is not None:
            frame["label"] = [f"class {label}" for label in labels]
        frame.to_csv(path, index=False)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "train.csv", problem.inputs, problem.given_labels)
        write(folder / "test.csv", problem.test_inputs, None)
        source = Source(str(folder / "train.csv"), {})
        chosen = Settings(seed=seed, **settings)
        learned = train_source(source, folder / "run", chosen, folds=folds, device="cpu")
        run = load_run(folder / "run")
        rows = Source(str(folder / "test.csv"), {}).read(run.encoder, like=run.source)
        names = [int(name.removeprefix("class ")) for name in run.encoder.class_names]
        return np.array(names)[run.probs(rows, device="cpu").argmax(1)], learned.suspects.p_right


def alternatives(problem: Problem, seed: int) -> tuple[dict[str, Any], Any, Any]:
    """Unfitted models, the rows as they take them, and the test rows."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    linear = {
        "logistic": LogisticRegression(max_iter=300),
        "balanced logistic": LogisticRegression(max_iter=300, class_weight="balanced"),
    }
    if not hasattr(problem.inputs, "columns"):
        words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
        train = words.fit_transform(problem.inputs)
        return linear, train, words.transform(problem.test_inputs)
    numbers, others = (
        make_column_selector(dtype_include=np.number),
        make_column_selector(dtype_exclude=np.number),
    )
    filled = SimpleImputer(strategy="median", add_indicator=True)
    one_hot = OneHotEncoder(handle_unknown="ignore", min_frequency=3, sparse_output=False)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=200)
    models = {
        name: make_pipeline(
            make_column_transformer((make_pipeline(filled, StandardScaler()), numbers), (one_hot, others)),
            model,
        )
        for name, model in linear.items()
    }
    models["boosting"] = make_pipeline(
        make_column_transformer((codes, others), remainder="passthrough"),
        HistGradientBoostingClassifier(random_state=seed),
    )
    models["forest"] = make_pipeline(
        make_column_transformer((filled, numbers), (one_hot, others)),
        RandomForestClassifier(random_state=seed),
    )
    return models, problem.inputs, problem.test_inputs


def plain(model: Any, X: Any, given: np.ndarray, test: Any, seed: int, folds: int) -> tuple[Any, np.ndarray]:
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    probs = cross_val_predict(model, X, given, cv=split, method="predict_proba")
    p_y = probs[np.arange(len(given)), np.unique(given, return_inverse=True)[1]]
    return model.fit(X, given).predict(test), p_y


def in_cleanlab(
    model: Any, X: Any, given: np.ndarray, test: Any, seed: int, folds: int
) -> tuple[Any, np.ndarray]:
    from cleanlab.classification import CleanLearning

    found = CleanLearning(model, cv_n_folds=folds, seed=seed).fit(X, given)
    return found.predict(test), found.get_label_issues()["label_quality"].to_numpy()


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def measure(problem: Problem, seed: int, folds: int) -> dict[str, dict[str, float]]:
    """By method."""
    from sklearn.metrics import average_precision_score, balanced_accuracy_score

    models, X, test = alternatives(problem, seed)
    methods: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "tolerant": lambda: ours(problem, seed, folds)
    }
    for class_weight in ("none", "balanced"):
        methods[f"tolerant, class weight {class_weight}"] = lambda weight=class_weight: ours(
            problem, seed, folds, class_weight=weight
        )
    for name in ("linear", "trees", "forest") if hasattr(problem.inputs, "columns") else ("words",):
        methods[f"tolerant, {name}"] = lambda name=name: ours(problem, seed, folds, model=name)
    for name, model in models.items():
        for title, way in ((name, plain), (f"cleanlab, {name}", in_cleanlab)):
            methods[title] = lambda model=model, way=way: way(
                model, X, problem.given_labels, test, seed, folds
            )
    wrong, found = problem.given_labels != problem.true_labels, {}
    for name, method in methods.items():
        start = processor_seconds()
        predicted, right = method()
        found[name] = {
            "accuracy": float((predicted == problem.test_labels).mean()),
            "balanced_accuracy": float(balanced_accuracy_score(problem.test_labels, predicted)),
            "ranking": float(average_precision_score(wrong, -right)),
            "time_s": processor_seconds() - start,
            "peak_mem_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--tables", type=Path, default=os.environ.get("TOLERANT_TABLES"))
    parser.add_argument("--texts", type=Path, default=os.environ.get("TOLERANT_TEXTS"))
    parser.add_argument("--only", help="names, with commas between; default: all that are there")
    add_seeds(parser, 3)
    arguments = parser.parse_args(words)
    tables = None if arguments.tiny or arguments.tables is None else Path(arguments.tables)
    texts = None if arguments.tiny or arguments.texts is None else Path(arguments.texts)
    text_files = {p.name.split(".")[0]: p for p in sorted(texts.glob("*.json*"))} if texts else {}
    others = [path.name.split(".")[0] for path in sorted(tables.glob("*.csv*"))] if tables else []
    names = ["wine"] if arguments.tiny else [*OWN_TABLES, *others, *text_files]
    if arguments.only and not arguments.tiny:
        names = arguments.only.split(",")
    warnings.simplefilter("ignore")
    print(f"{'data':<15} {'noise':<16} seed  {'method':<27} accuracy  balanced   ranking  seconds")
    for name in names:
        noises = TEXT_NOISES if name in text_files else TABLE_NOISES
        for kind in noises[:1] if arguments.tiny else noises:
            for seed in seeds_of(arguments):
                if name in text_files:
                    problem = text_problem(text_files[name], kind, seed)
                else:
                    most = TINY_ROWS if arguments.tiny else MOST_ROWS
                    problem = table_problem(name, kind, seed, tables, most)
                about = {"data": name, "noise": kind, "seed": seed, "rows": len(problem.given_labels)}
                about["noise_rate"] = round(float((problem.given_labels != problem.true_labels).mean()), 4)
                for method, found in measure(problem, seed, 2 if arguments.tiny else FOLDS).items():
                    rounded = {key: round(value, 4) for key, value in found.items()}
                    row = {**about, "method": method, **rounded, "hardware": hardware(pick_device("cpu"))}
                    append(arguments.out, {**row, "commit": commit()})
                    percent = "  ".join(
                        f"{100 * found[key]:8.1f}" for key in ("accuracy", "balanced_accuracy", "ranking")
                    )
                    print(
                        f"{name:<15} {kind:<16} {seed:<5} {method:<27} {percent} {found['time_s']:8.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
