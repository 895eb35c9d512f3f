"""`tolerant train` on many texts: time, memory, and how right its model is.

    python benchmarks/bench_texts.py --texts packages.json --rows 10000,100000,1000000 --out FILE

A row is 10 to 40 words in a row of one of the texts of FILE, the longer the text the more often; a fifth of
the labels is drawn from the other classes. FILE is as for bench_models.py: `train` and `test`, each with
`text` and `y_clean`. Accuracy and balanced accuracy are those of 20,000 clean rows from the `test` texts,
ranking is the average precision of the written list. Each size has a process of its own, by the command line;
`said_s` is how long it says beforehand that its models take.

The rows in results/bench/texts_many.jsonl: descriptions of Debian 12's packages (`Packages` and
`Translation-en` of main, amd64), of ten words or more; the class is the section, of those with 1,000 packages
or more; `test` has the packages whose source package has a name with a SHA-256 divisible by ten.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import TINY_ROWS, Row, append, make_parser

from tolerant.experiment.row import commit, hardware
from tolerant.train.engine.device import pick_device

WRONG, TEST_ROWS = 0.2, 20_000


def draw(texts: Sequence[str], labels: Sequence[int], rows: int, seed: int) -> tuple[list[str], np.ndarray]:
    """(rows of 10 to 40 words, the class of each)."""
    rng = np.random.default_rng(seed)
    words = [text.split() for text in texts]
    lengths = np.array([len(each) for each in words])
    found = rng.choice(len(words), rows, p=lengths / lengths.sum())
    long = np.minimum(lengths[found], rng.integers(10, 41, rows))
    start = (rng.random(rows) * (lengths[found] - long + 1)).astype(np.int64)
    cut = zip(found, start, start + long, strict=True)
    return [" ".join(words[text][begin:end]) for text, begin, end in cut], np.array(labels)[found]


def made_up() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    classes = [[f"word{label}{number}" for number in range(30)] for label in range(3)]
    texts = [" ".join(rng.choice(classes[row % 3], 60)) for row in range(30)]
    return {part: {"text": texts, "y_clean": [row % 3 for row in range(30)]} for part in ("train", "test")}


def tolerant(*words: object) -> tuple[str, float, float, float]:
    """(what the command prints, seconds, seconds of the processor, the most memory so far in MiB)."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tolerant", *map(str, words)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return printed, time.perf_counter() - start, processor_s, after.ru_maxrss / 1024


def measure(data: dict[str, Any], rows: int, test_rows: int, folder: Path) -> Row:
    import pandas
    from sklearn.metrics import average_precision_score, balanced_accuracy_score

    texts, true = draw(data["train"]["text"], data["train"]["y_clean"], rows, 0)
    rng, num_classes = np.random.default_rng(1), int(true.max()) + 1
    other = (true + rng.integers(1, num_classes, rows)) % num_classes
    given = np.where(rng.random(rows) < WRONG, other, true)
    new, new_true = draw(data["test"]["text"], data["test"]["y_clean"], test_rows, 2)
    pandas.DataFrame({"text": texts, "label": [f"c{label}" for label in given]}).to_csv(folder / "rows.csv")
    pandas.DataFrame({"text": new}).to_csv(folder / "new.csv")
    characters = sum(map(len, texts))
    del texts, new
    run = folder / "run"
    options = ("--text", "text", "--features", "none")
    said, time_s, processor_s, peak = tolerant("train", folder / "rows.csv", "--out", run, *options)
    tolerant("predict", run, folder / "new.csv", "--text", "text", "--out", folder / "p.csv")
    predicted = pandas.read_csv(folder / "p.csv").label.str[1:].astype(int).to_numpy()
    listed = pandas.read_csv(run / "suspects.csv")["index"].to_numpy()
    rank = np.full(rows, -float(rows))  # those that are not listed are the least doubtful
    rank[listed] = -np.arange(len(listed), dtype=float)
    seconds = re.findall(r"folds; at most about (\d+) s", said)
    models = re.findall(r"^Trained (.+?) on [\d,]+ of", said, re.MULTILINE)
    return {
        "rows": rows,
        "classes": num_classes,
        "characters": characters,
        "noise_rate": round(float((given != true).mean()), 4),
        "models": models[0] if models else "",
        "said_s": int(seconds[0]) if seconds else None,
        "time_s": round(time_s, 1),
        "processor_s": round(processor_s, 1),
        "peak_mem_mib": round(peak),
        "accuracy": round(float((predicted == new_true).mean()), 4),
        "balanced_accuracy": round(float(balanced_accuracy_score(new_true, predicted)), 4),
        "ranking": round(float(average_precision_score(given != true, rank)), 4),
        **{"hardware": hardware(pick_device("cpu")), "commit": commit()},
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--rows", default="10000,100000,1000000", help="sizes, with commas between")
    arguments = parser.parse_args(words)
    if arguments.texts is None and not arguments.tiny:
        parser.error("--texts FILE is needed; --tiny makes some up")
    data = made_up() if arguments.tiny else json.loads(arguments.texts.read_text())
    for rows in [TINY_ROWS] if arguments.tiny else map(int, arguments.rows.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            row = measure(data, rows, TINY_ROWS if arguments.tiny else TEST_ROWS, Path(folder))
        append(arguments.out, row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
