"""Pretrained features: photographs and texts with labels by people, beside logistic regression and cleanlab.

    python benchmarks/bench_features.py pictures --out results/bench/features.jsonl
    python benchmarks/bench_features.py texts --texts FOLDER --out results/bench/features.jsonl
    python benchmarks/bench_features.py rounds --out results/bench/features_rounds.jsonl
    python benchmarks/bench_features.py tune --only tuned --out results/bench/features_tune.jsonl
    python benchmarks/bench_features.py large --folds 0 --seeds 1 --out results/bench/features_large.jsonl
    python benchmarks/bench_features.py many --seeds 1 --out results/bench/features_many.jsonl
    python benchmarks/bench_features.py many --seeds 1 --features lite0 --out ...
    python benchmarks/bench_features.py sides --pictures FOLDER --out results/bench/features_sides.jsonl

pictures: 5,000 rows of CIFAR-10N "worse" (about 40 % of the labels wrong), the same for each seed, and
2,000 of the test set, whose labels are clean and choose nothing. texts: TREC questions and YouTube
comments (FOLDER/trec.json, FOLDER/youtube.json) with the labels that keyword rules vote for, with true ones,
and with 40 % drawn at random; "tolerant" is what `tolerant train` chooses of TF-IDF, features and both. All
methods see the same features; "average_precision" is that of the wrong labels, ranked by how right the given
ones seem: in the written list, by cleanlab's label quality, or for a plain model by the out-of-fold p_y.
rounds: what `tolerant train` does with photographs by itself beside --method rounds, on 10,000 of them.
tune: the network itself is trained (--tune), on the photographs of "pictures", beside the features as they
are. --rows takes pictures from an .npz file (inputs, given, true, test, test_true), for a machine with a GPU
that has neither data nor network.
large: a million rows of 1,280 made-up features in a memory map (5 GB in the folder for temporary files), 40 %
of their labels drawn at random, and the memory that training on them takes: "own_mib" is what the process has
allocated beyond what it had before, at most, looked at every 50 ms; "peak_mib" has the pages of the map, too,
which are given back when somebody needs them.
many: the memory that training on 100,000 picture files takes (those of CIFAR-10N "worse" and their mirror
images, in a folder for temporary files), from reading the folder over the features in the cache and the folds
to the suspects with their neighbours. The extractor is a single layer with as many views and numbers as
`lite0`, which would take a quarter of an hour; --features lite0 takes 2,000 of the files, for what the
network itself needs. "allocated_mib" is all of the process without the pages of files, "peak_mib" with them.
sides: what larger pictures are worth: for each size at which an extractor takes them, trained on 70 % of
FOLDER, which has a folder for each class, with 40 % of their labels drawn from the other classes, or 30 %
turned into the next class, and tested on the rest. A seed draws parts and labels, the same for every size.
The features are scaled and projected at random to 400 numbers, which make a fit a hundred times faster.
"milliseconds" are those of a processor for the features of a picture, without reading it.
"processor_s" is of training and of the features, which are computed anew unless TOLERANT_CACHE names a folder
that has them; "cached" says so.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import threading
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import TINY_FIT, TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tolerant import NoisyLabelClassifier
from tolerant.data import Source, load
from tolerant.data.dataset import NoisyDataset
from tolerant.data.features import Extractor, extract, load_extractor
from tolerant.data.features.bundled import BUNDLED, LITE_SIZE
from tolerant.data.features.picture_networks import Body, Frame
from tolerant.data.readers.folder import load_folder
from tolerant.experiment.row import commit, hardware, source, versions
from tolerant.noise import corrupt, uniform
from tolerant.own_data import Settings
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant
from tolerant.own_data.learn import learn
from tolerant.own_data.run_folder import load_run
from tolerant.own_data.train_source import train_source
from tolerant.train import pick_device

FOLDS = 5
TINY_TEXTS = {
    "classes": ["a", "b"],
    "train": {
        "text": ["a red car", "a small cat"] * 40,
        "y_clean": [0, 1] * 40,
        "votes": [[[0, 0]], [[1, 1]]] * 40,
    },
    "test": {"text": ["the car", "the cat"], "y_clean": [0, 1]},
}
Rows = tuple[Any, np.ndarray, np.ndarray, Any, np.ndarray]  # inputs, given and true labels; those of the test


def photographs(seed: int, *, tiny: bool, num_rows: int = 5000, test_rows: int = 2000) -> Rows:
    if tiny:
        rng = np.random.default_rng(seed)
        images, labels = rng.integers(0, 256, (TINY_ROWS, 32, 32, 3), np.uint8), np.arange(TINY_ROWS) % 10
        return images, rng.permutation(labels), labels, images[:20], labels[:20]
    rows, test = load("cifar10n-worse"), load("cifar10", split="test")
    index = np.random.default_rng(0).permutation(len(rows))[:num_rows]
    inputs, true = np.asarray(rows.inputs[index]), rows.true_labels
    assert true is not None
    other = np.random.default_rng(0).permutation(len(test))[:test_rows]
    return (
        inputs,
        rows.given_labels[index],
        true[index],
        np.asarray(test.inputs[other]),
        test.given_labels[other],
    )


def texts(path: Path | None, noise: str, seed: int) -> Rows:
    """Labels are what most rules vote for, the true ones, or those with so many drawn at random."""
    data = json.loads(path.read_text()) if path else TINY_TEXTS
    train, test = data["train"], data["test"]
    inputs, true = np.array(train["text"], object), np.array(train["y_clean"])
    given, kept = true, np.arange(len(true))
    if noise == "rules":
        votes = [np.bincount([label for _, label in found] or [0]) for found in train["votes"]]
        given = np.array([int(count.argmax()) for count in votes])
        kept = np.flatnonzero([bool(found) for found in train["votes"]])  # others have no label
    elif noise != "true":
        rate = float(noise.split("-")[1])
        transition = uniform(len(data["classes"]), rate)
        given = corrupt(true, transition, seed=seed, kind="uniform", rate=rate).given_labels
    counts = np.bincount(given[kept])
    kept = kept[counts[given[kept]] >= FOLDS]  # rules name one class of TREC once: no fold could learn it
    return inputs[kept], given[kept], true[kept], np.array(test["text"], object), np.array(test["y_clean"])


def features(inputs: Any, name: str) -> np.ndarray:
    found = extract(inputs, load_extractor(name, "text" if inputs.ndim == 1 else "image"))
    return found[np.arange(len(found))]


def scores(seems_right: np.ndarray, given: np.ndarray, true: np.ndarray) -> float | None:
    wrong = given != true
    return round(float(average_precision_score(wrong, -seems_right)), 4) if wrong.any() else None


def accuracy(predicted: np.ndarray, true: np.ndarray) -> float:
    return round(float((predicted == true).mean()), 4)


def regression(x: Any, rows: Rows, x_test: Any) -> dict[str, Row]:
    """Logistic regression and cleanlab around it, on features or words."""
    from cleanlab.classification import CleanLearning  # not needed by `tune`

    _, given, true, _, test_true = rows
    scaled = [] if hasattr(x, "tocsr") else [StandardScaler()]
    # Of 0.001 to 1 that which agreed best with the given labels out of fold, for the features of pictures.
    model = make_pipeline(
        *scaled, LogisticRegression(C=0.001 if x.shape[1] > 1000 and scaled else 1.0, max_iter=300)
    )
    probs = cross_val_predict(model, x, given, cv=FOLDS, method="predict_proba")
    p_y = probs[np.arange(len(given)), np.searchsorted(np.unique(given), given)]
    agree = {
        "agreement": round(float((probs.argmax(1) == np.searchsorted(np.unique(given), given)).mean()), 4)
    }
    plain = {"test_accuracy": accuracy(model.fit(x, given).predict(x_test), test_true), **agree}
    cleaned = CleanLearning(model, cv_n_folds=FOLDS, verbose=False, seed=0)
    words, labels = np.unique(given, return_inverse=True)
    cleaned.fit(x, labels)
    quality = cleaned.get_label_issues()["label_quality"].to_numpy()
    return {
        "logistic regression": {**plain, "average_precision": scores(p_y, given, true)},
        "cleanlab": {
            "test_accuracy": accuracy(words[cleaned.predict(x_test)], test_true),
            "average_precision": scores(quality, given, true),
        },
    }


def ours(rows: Rows, seed: int, tiny: bool, **options: Any) -> Row:
    inputs, given, true, test, test_true = rows
    start, processor = time.perf_counter(), time.process_time()
    fit: dict[str, Any] = dict(TINY_FIT) if tiny else {"folds": FOLDS}
    model = NoisyLabelClassifier(random_state=seed, **{"device": "cpu"} | fit | options).fit(inputs, given)
    low, high = model.noise_rate_interval_
    chosen = [record["validation_accuracy"] for record in model.history_ if "validation_accuracy" in record]
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor_s": round(time.process_time() - processor, 1),
        "test_accuracy": accuracy(model.predict(test), test_true),
        **({"validation_accuracy": round(max(chosen), 4)} if chosen else {}),
        "average_precision": scores(model.suspects_.p_right, given, true),
        "noise_rate": round(float((given != true).mean()), 4),
        "estimated_rate": round(model.noise_rate_, 4),
        "rate_low": round(low, 4),
        "rate_high": round(high, 4),
    }


def side_by_side(rows: Rows, seed: int, tiny: bool) -> Row:
    """What `tolerant train` does with texts: words, the features, or both, as the given labels say."""
    import pandas as pd  # not needed by `tune`, on machines that have less

    inputs, given, true, test, test_true = rows
    processor = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, texts in (("train", inputs), ("test", test)):
            frame = pd.DataFrame({"text": texts} | ({"label": given} if file == "train" else {}))
            frame.to_csv(folder / f"{file}.csv", index=False)
        source = Source(str(folder / "train.csv"), {"text": "text", "label": "label"})
        settings, folds = Settings(seed=seed), TINY_FIT["folds"] if tiny else FOLDS
        learned = train_source(
            source, folder / "run", settings, folds=folds, device="cpu", features="auto", say=print
        )
        run, new = load_run(folder / "run"), Source(str(folder / "test.csv"), {"text": "text"})
        probs = run.probs(new.read(run.encoder, run.source, "cpu"), device="cpu")
    names = np.array(run.encoder.class_names).astype(int)
    rate = learned.suspects.noise_rate
    return {
        "processor_s": round(time.process_time() - processor, 1),
        "test_accuracy": accuracy(names[probs.argmax(1)], test_true),
        "average_precision": scores(learned.suspects.p_right, given, true),
        "chosen": learned.name,
        "noise_rate": round(float((given != true).mean()), 4),
        "estimated_rate": round(rate.estimate, 4),
    }


def made_with(device: torch.device) -> Row:
    return {"hardware": hardware(device), "versions": versions()}


def measure(
    data: str, noise: str, seed: int, rows: Rows, name: str, tiny: bool, only: str | None
) -> list[Row]:
    said = {"data": data, "noise": noise, "seed": seed, "rows": len(rows[1]), "test_rows": len(rows[4])}
    made = made_with(torch.device("cpu")) | {"threads": torch.get_num_threads()}
    is_text = rows[0].ndim == 1
    own = side_by_side(rows, seed, tiny) if is_text else ours(rows, seed, tiny, features=name)
    seen = f"tf-idf, {name} or both" if is_text else name
    found: list[Row] = [{**said, "features": seen, "method": "tolerant", **own, **made}]
    if only == "tolerant":
        return found
    x, x_test = features(rows[0], name), features(rows[3], name)
    compared = {name: (x, x_test)}
    if is_text:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
        compared["tf-idf"] = vectorizer.fit_transform(rows[0]), vectorizer.transform(rows[3])
    for kind, (train, test) in compared.items():
        for method, row in regression(train, rows, test).items():
            found.append({**said, "features": kind, "method": method, **row, **made})
    return found


def tune(rows: Rows, seed: int, arguments: Namespace, options: dict[str, Any]) -> Iterator[Row]:
    """Features as they are, and the network trained further."""
    name, device, tiny = arguments.features or "lite0", arguments.device, arguments.tiny
    for method in ("features", "tuned"):
        if arguments.only in (None, method):
            tuned = method == "tuned"
            own = options if tuned else {"folds": options["folds"]}
            found = ours(rows, seed, tiny, features=name, tune=tuned, device=device, verbose=1, **own)
            said = {"data": "cifar10n-worse", "noise": "people", "seed": seed}
            said |= {"rows": len(rows[1]), "test_rows": len(rows[4])}
            made = made_with(pick_device(device)) | {"commit": commit(), "source": source()}
            yield {**said, "features": name, "method": method, **options, **found, **made}


def rounds(seed: int, name: str, tiny: bool) -> Iterator[Row]:
    """The discriminant, and a linear layer on the same features that is taught in rounds."""
    rows = photographs(seed, tiny=tiny, num_rows=10_000)
    options: dict[str, dict[str, str]] = {"tolerant": {}, "rounds": {"method": "rounds"}}
    for method, own in options.items():
        found = ours(rows, seed, tiny, features=name, **own)
        said = {"data": "cifar10n-worse", "noise": "people", "seed": seed, "rows": len(rows[1])}
        made = made_with(torch.device("cpu")) | {"commit": commit(), "source": source()}
        yield {**said, "test_rows": len(rows[4]), "features": name, "method": method, **found, **made}


def large(seed: int, folder: Path, tiny: bool, folds: int) -> Row:
    """Features of ten classes whose means differ a little, trained on as those of pictures are."""
    num_rows, dim = (TINY_ROWS, 32) if tiny else (1_000_000, 1280)
    rng = np.random.default_rng(seed)
    centres, true = rng.normal(size=(10, dim)).astype(np.float32) / 8, rng.integers(0, 10, num_rows)
    path = folder / "features.npy"
    made = np.lib.format.open_memmap(path, "w+", np.float32, (num_rows, dim))
    for first in range(0, num_rows, 4096):
        label = true[first : first + 4096]
        made[first : first + 4096] = rng.standard_normal((len(label), dim), np.float32) + centres[label]
    made.flush()
    del made
    given = np.where(rng.random(num_rows) < 0.4, rng.integers(0, 10, num_rows), true)
    rows = NoisyDataset(np.load(path, mmap_mode="r"), given, None, tuple("abcdefghij"))
    before, start, processor = allocated_mib(), time.perf_counter(), time.process_time()
    with most_allocated() as most:
        learned = learn(
            rows, Settings(pretrained=True, seed=seed), folds=folds, device="cpu", progress="quiet"
        )
    return {
        "rows": num_rows,
        "columns": dim,
        "folds": folds,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_s": round(time.process_time() - processor, 1),
        "own_mib": round(max(most) - before),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "accuracy": accuracy(learned.probs.argmax(1), true),
        "average_precision": scores(learned.suspects.p_right, given, true),
    }


def sides(folder: Path | None, name: str, seeds: Sequence[int], only: str | None) -> Iterator[Row]:
    """The discriminant on features of the same pictures at several sizes."""
    card = BUNDLED[name]
    for side in card.sides if only is None else map(int, only.split(",")):
        extractor = load_extractor(f"{name}@{side}", "image")
        if folder is None:
            rng = np.random.default_rng(0)
            true, names = np.arange(TINY_ROWS) % 3, ("a", "b", "c")
            inputs: Any = rng.integers(0, 256, (TINY_ROWS, 40, 50, 3), np.uint8)
        else:
            rows = load_folder(folder, at_most=side)
            inputs, true, names = rows.inputs, rows.given_labels, rows.class_names
        first = np.asarray(inputs[np.arange(min(len(true), 4 * extractor.batch_size))])
        processor = time.process_time()
        for start in range(0, len(first), extractor.batch_size):
            extractor(first[start : start + extractor.batch_size])
        milliseconds = 1000 * (time.process_time() - processor) / len(first)
        found = extract(inputs, extractor)
        x = StandardScaler().fit_transform(found[np.arange(len(found))])
        x = x @ np.random.default_rng(0).normal(0, 1 / 20, (x.shape[1], 400)).astype(np.float32)
        for noise, rate in (("uniform", 0.4), ("next class", 0.3)):
            for seed in seeds:
                rng = np.random.default_rng(seed)
                order = rng.permutation(len(true))
                train, test = np.split(order, [int(0.7 * len(order))])
                more = rng.integers(1, len(names), len(train)) if noise == "uniform" else 1
                wrong = (true[train] + more) % len(names)
                given = np.where(rng.random(len(train)) < rate, wrong, true[train])
                fitted = RoundDiscriminant().fit(x[train], given)
                told = fitted.classes_[fitted.predict_proba(x[test]).argmax(1)]
                yield {
                    "data": "made up" if folder is None else folder.name,
                    "noise": f"{noise}-{rate}",
                    "seed": seed,
                    "rows": len(train),
                    "test_rows": len(test),
                    "classes": len(names),
                    "features": name,
                    "side": side,
                    "milliseconds": round(milliseconds, 1),
                    "test_accuracy": accuracy(told, true[test]),
                    **made_with(torch.device("cpu")),
                    "commit": commit(),
                    "source": source(),
                }


def many(folder: Path, tiny: bool, name: str | None, folds: int) -> Row:
    """Training on a folder of pictures, as `tolerant train` does it."""
    pictures, labels, *_ = photographs(0, tiny=tiny, num_rows=50_000)
    most = 2000 if name else 100_000
    written = 0
    for mirrored in (False, True):
        for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            if written < most:
                path = folder / "pictures" / f"class{label}" / f"{number:05}-{mirrored:d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = picture[:, ::-1] if mirrored else picture
                Image.fromarray(np.ascontiguousarray(pixels)).save(path, compress_level=1)
                written += 1
    del pictures
    start, processor = time.perf_counter(), time.process_time()
    with most_allocated() as allocated:
        extractor = load_extractor(name, "image") if name else one_layer()
        rows = load_folder(folder / "pictures", at_most=LITE_SIZE)
        found = extract(rows.inputs, extractor)
        extracted = time.perf_counter()
        rows = replace(rows, inputs=found, kind="table")
        learned = learn(rows, Settings(pretrained=True), folds=folds, device="cpu", progress="quiet")
    return {
        "data": "made up" if tiny else "cifar10n-worse",
        "rows": len(found),
        "features": name or "one layer",
        "columns": found.shape[1],
        "folds": folds,
        "suspects": len(learned.suspects),
        "extract_s": round(extracted - start, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "processor_s": round(time.process_time() - processor, 1),
        "allocated_mib": round(max(allocated)),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def one_layer() -> Extractor:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(192, BUNDLED["lite0"].dim)
    )
    return Body("one layer", "1", net, Frame(size=32, mean=(0.5,) * 3, std=(0.5,) * 3)).extractor(
        torch.device("cpu")
    )


def allocated_mib() -> float:
    """Without the pages of files, on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


@contextmanager
def most_allocated() -> Iterator[list[float]]:
    found, done = [allocated_mib()], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            found[0] = max(found[0], allocated_mib())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()


@contextmanager
def own_cache() -> Iterator[bool]:
    """Whether features were kept before; else they are computed anew, and kept until the end."""
    if os.environ.get("TOLERANT_CACHE"):
        yield True
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TOLERANT_CACHE"] = folder
        try:
            yield False
        finally:
            del os.environ["TOLERANT_CACHE"]


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add_seeds(parser, 3)
    parser.add_argument("what", choices=("pictures", "texts", "rounds", "tune", "large", "many", "sides"))
    parser.add_argument("--pictures", type=Path, help="of sides: a folder of class folders")
    parser.add_argument("--texts", type=Path, help="folder of trec.json and youtube.json")
    parser.add_argument("--features", help="default: lite0 for pictures, minilm for texts")
    parser.add_argument(
        "--only", help="this method alone: the others do not depend on the seed of pictures; sizes, of sides"
    )
    parser.add_argument("--folds", type=int, default=FOLDS, help="of tune, large and many")
    parser.add_argument("--epochs", type=int, help="of tune")
    parser.add_argument("--lr", type=float, help="of tune")
    parser.add_argument("--device", default="auto", help="of tune")
    parser.add_argument("--rows", type=Path, help="of tune: the pictures, instead of CIFAR-10N's own files")
    parser.add_argument("--noise", default="rules,true,uniform-0.4")
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore")
    tiny = arguments.tiny
    if arguments.what == "sides":
        if arguments.pictures is None and not tiny:
            parser.error("sides needs --pictures FOLDER, with a folder for each class")
        with own_cache():
            for row in sides(
                arguments.pictures, arguments.features or "lite0", seeds_of(arguments), arguments.only
            ):
                append(arguments.out, row)
                print(row, flush=True)
        return
    for seed in seeds_of(arguments):
        with own_cache() as cached:
            if arguments.what in ("large", "many"):
                with tempfile.TemporaryDirectory() as name:
                    if arguments.what == "many":
                        folds = TINY_FIT["folds"] if tiny else arguments.folds
                        row = {"seed": seed, **many(Path(name), tiny, arguments.features, folds)}
                    else:
                        row = large(seed, Path(name), tiny, arguments.folds)
                        row = {"data": "made up", "seed": seed, "method": "tolerant", **row}
                row |= made_with(torch.device("cpu"))
                append(arguments.out, row)
                print(row, flush=True)
                continue
            if arguments.what == "rounds":
                for row in rounds(seed, arguments.features or "lite0", tiny):
                    row["cached"] = cached
                    append(arguments.out, row)
                    print(row, flush=True)
                continue
            if arguments.what == "tune":
                options = {name: getattr(arguments, name) for name in ("folds", "epochs", "lr")}
                options = {"folds": TINY_FIT["folds"], "epochs": 1, "lr": None} if tiny else options
                if arguments.rows:
                    stored = np.load(arguments.rows)
                    rows = tuple(stored[name] for name in ("inputs", "given", "true", "test", "test_true"))
                else:
                    rows = photographs(seed, tiny=tiny)
                for row in tune(rows, seed, arguments, options):
                    append(arguments.out, row)
                    print(row, flush=True)
                continue
            if arguments.what == "pictures":
                rows = photographs(seed, tiny=tiny)
                todo = [("cifar10n-worse", "people", rows, arguments.features or "lite0")]
            else:
                files = [None] if tiny else sorted(arguments.texts.glob("*.json"))
                named = [(path.stem if path else "tiny", noise, path) for path in files
                         for noise in arguments.noise.split(",")]  # fmt: skip
                todo = [
                    (data, noise, texts(path, noise, seed), arguments.features or "minilm")
                    for data, noise, path in named
                ]
            for data, noise, rows, name in todo:
                for row in measure(data, noise, seed, rows, name, tiny, arguments.only):
                    row["cached"] = cached
                    append(arguments.out, row)
                    print(row, flush=True)


if __name__ == "__main__":
    main()
