"""The tables of benchmarks in the README and the docs, from the rows that the benchmarks stored.

    python benchmarks/tables.py README.md docs/benchmark.md docs/performance.md docs/scaling.md

It writes the blocks between `<!-- report: bench-... -->` and `<!-- end -->`; `tolerant report --docs` writes
those of experiments.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from common import stored
from model_tables import brief, models

from tolerant.experiment import Store
from tolerant.files import write_atomic
from tolerant.markdown import markdown_table
from tolerant.report import rounds
from tolerant.report.comparison import data_set_title, number, summary, unbroken
from tolerant.report.document import fill
from tolerant.report.selection import NO_ROWS, accuracy, select

# Operations to train on one picture, ResNet-34 at 32 x 32 and ResNet-18 at 28 x 28: two for each
# multiplication, three times as many as in the forward pass alone (tests/test_models.py counts them).
GFLOP = {"resnet34": 6.953, "resnet18": 2.734}
# Of rounds: the folder of the rows, and their experiment.
SETTINGS = {
    "all rows, blends to the end": ("bench/rounds", "rounds-before"),
    "sure rows, decided within rounds, too": (".", "rounds-before"),
    "today: sure rows, decided before each round alone": (".", "rounds"),
}
AUDIT_METHODS = {
    "cce": "cross entropy",
    "cleanlab": "cleanlab",
    "tolerant": "tolerant",
    "rounds": "tolerant, rounds",
}
AUDIT_DATA = {
    "digits": "digits, uniform",
    "copies": "the same, a fifth of the rows four times",
    "fashion-mnist": "Fashion-MNIST, class-dependent",
    "trec": "TREC questions, labels by keyword rules",
    "table": "a made-up table",
}


def audit(results: Path) -> str:
    """Ways to find wrong labels, from the rows of `benchmarks/bench_audit.py`."""
    rows = stored(results / "bench" / "audit.jsonl")
    if not rows:
        return NO_ROWS
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["method"]), []).append(row)
    ways = [way for way in AUDIT_METHODS if way in {row["method"] for row in rows}]
    body = []
    for data in dict.fromkeys(row["data"] for row in rows):
        here = {way: groups[data, way] for way in ways if (data, way) in groups}
        some = next(iter(here.values()))
        wrong = summary([100 * row["noise_rate"] for row in some])
        about = f"{AUDIT_DATA.get(data, data)}: {some[0]['rows']:,} rows, {wrong.mean:.0f} % wrong"
        for what, column in (("accuracy", "test_accuracy"), ("ranking", "average_precision")):
            means = {way: summary([100 * row[column] for row in group]) for way, group in here.items()}
            numbers = [number(means.get(way), 1, absent="–") for way in ways]
            body.append([about if what == "accuracy" else "", what, *numbers, str(len(some))])
    # Two lines a data set: in one, GitHub cuts off the last columns, which are those of `tolerant`.
    text = unbroken(
        markdown_table(["data", "measure", *map(AUDIT_METHODS.__getitem__, ways), "seeds"], body, "llr")
    )
    machines = sorted({row["hardware"] for row in rows if "hardware" in row})
    return text + (f"\n\nOn {', '.join(machines)}." if machines else "")


def texts(results: Path) -> str:
    """`tolerant train` on many texts, from the rows of `benchmarks/bench_texts.py`."""
    rows = stored(results / "bench" / "texts_many.jsonl")
    if not rows:
        return NO_ROWS
    body = [
        [
            f"{row['rows']:,}",
            row["models"],
            f"{row['time_s']:.0f}",
            f"{row['processor_s']:.0f}",
            f"{row['peak_mem_mib']:,}",
            *(f"{100 * row[key]:.1f}" for key in ("accuracy", "balanced_accuracy", "ranking")),
        ]
        for row in rows
    ]
    head = ["texts", "models", "clock, s", "processor, s", "peak, MiB"]
    head += ["accuracy", "balanced accuracy", "ranking"]
    machines = sorted({row["hardware"] for row in rows})
    return unbroken(markdown_table(head, body, "rlr")) + f"\n\nOn {', '.join(machines)}."


def prune(results: Path) -> str:
    """Memory and time of `Pruner`, from the rows of `benchmarks/bench_prune.py`."""
    columns = {
        "rows": ("rows", ","),
        "state_bytes_per_row": ("state, bytes a row", ".2f"),
        "resident_bytes_per_row": ("resident, bytes a row", ".2f"),
        "build_s": ("build, s", ".2f"),
        "pass_s": ("all rows once, s", ".2f"),
        "ns_per_row": ("ns a row, in order", ".0f"),
        "shuffled_ns_per_row": ("ns a row, 10⁶ at random", ".0f"),
        "update_128_us": ("128 rows, µs", ".0f"),
    }
    rows = stored(results / "bench" / "prune.jsonl")
    body = [[format(row[name], how) for name, (_, how) in columns.items()] for row in rows]
    return markdown_table([title for title, _ in columns.values()], body, "r") if body else NO_ROWS


def loss_cpu(results: Path) -> str:
    """L_q on a CPU against two common ways to write it (`benchmarks/bench_loss.py`)."""
    found = _read_one(results / "bench" / "loss_cpu.json")
    if found is None:
        return NO_ROWS
    body = []
    for row in found["results"]:
        copies = row["extra_copies"]
        extra = f"{copies['tolerant']:.2f}, {copies['cross_entropy']:.2f}" if copies else ""
        faster = row["faster_than"]
        shape = f"{row['shape'][0]} x {row['shape'][1]}"
        body.append(
            [shape, row["dtype"], f"{faster['cross_entropy']:.2f}x", f"{faster['softmax']:.2f}x", extra]
        )
    head = ["rows x classes", "dtype", "speed relative to L_q written with `F.cross_entropy`"]
    head += ["speed relative to L_q written with softmax and a power"]
    head += ["extra copies of the logits (ours, `F.cross_entropy`)"]
    table = markdown_table(head, body, "llr")
    return f"{table}\n\ntorch {found['torch']}, {found['threads']} threads, {found['rounds']} rounds."


def loss_gpu(results: Path) -> str:
    """L_q on a GPU, time over the time of others (`benchmarks/bench_loss_gpu.py`)."""
    rows = stored(results / "bench" / "loss_h200.jsonl")
    others = ("copy", "compiled cross entropy", "compiled L_q", "eager L_q")
    body = [
        [f"{row['n']} x {row['c']}", row["dtype"], *(_ratio(row.get(f"ours / {name}")) for name in others)]
        for row in rows
        if row["bench"] in ("small", "large")
    ]
    head = ["rows x classes", "dtype", "a copy of 2NC values", *others[1:]]
    return f"{markdown_table(head, body, 'llr')}\n\n{_machine(rows)}" if body else NO_ROWS


def linear(results: Path) -> str:
    """Head and loss in one (`benchmarks/bench_linear.py`)."""
    rows = stored(results / "bench" / "linear_h200.jsonl")
    timed = [row for row in rows if row["bench"] == "linear"]
    eager = next((row["extra MiB"] for row in timed if row["name"] == "eager"), None)
    off = {row["name"]: max(row["hidden"], row["weight"]) for row in rows if row["bench"] == "accuracy"}
    body = []
    for row in timed:
        extra = row.get("extra MiB")
        share = f"1/{eager / extra:.1f}" if eager and extra else ""
        memory = "" if extra is None else f"{extra:,.0f}"
        error = f"{off[row['name']]:.2%}" if row["name"] in off else ""
        body.append([row["name"], f"{row['ms']:.2f}", _ratio(row["/ bare products"]), memory, share, error])
    head = ["", "ms", "time relative to bare products", "extra memory, MiB", "relative to eager"]
    head.append("error of the gradients")
    return f"{markdown_table(head, body, 'lr')}\n\n{_machine(rows)}" if body else NO_ROWS


def training(results: Path) -> str:
    """Images a second by way of training (`benchmarks/bench_train.py`)."""
    found = _read_one(results / "bench" / "train_h200.json")
    if found is None:
        return NO_ROWS
    body = []
    for model in GFLOP:
        rates: dict[str, float] = found.get(model, {})
        base = next(iter(rates.values()), 1.0)
        for name, rate in rates.items():
            share = rate * GFLOP[model] / 1e3 / found["product_tflops"]
            body.append([model, name, f"{rate:,.0f}", f"{rate / base:.2f}x", f"{100 * share:.1f} %"])
    head = ["model", "way of training", "images a second", "speed relative to the first way"]
    head += ["share of the bf16 product's speed"]
    note = f"{_where(found)} Batch 128; in the same run a bf16 product of 8192³ ran at "
    note += f"{found['product_tflops']:.0f} TFLOP/s and a copy at {found['copy_tb_s']:.2f} TB/s."
    return f"{markdown_table(head, body, 'llr')}\n\n{note}"


def rounds_settings(results: Path) -> str:
    """The same columns under each setting that the rounds have had."""
    found: dict[rounds.Column, dict[str, list[float]]] = {}
    for setting, (folder, name) in SETTINGS.items():
        store = Store(results / folder)
        for column, methods in rounds.found(store, select(store, name)).items():
            of_rounds = [accuracy(row, "last_epoch") for row in methods.get("rounds", ())]
            found.setdefault(column, {}).update({setting: of_rounds} if of_rounds else {})
    body = []
    for column, accuracies in found.items():
        cells = [summary(accuracies[name]) if name in accuracies else None for name in SETTINGS]
        body.append([_column(*column), *(number(cell, absent="not yet run") for cell in cells)])
    return unbroken(markdown_table(["column", *SETTINGS], body, "lr")) if body else NO_ROWS


def rounds_course(results: Path) -> str:
    """Round by round: right labels among the rows that train, and their share; then the networks."""
    store, body = Store(results), []
    columns = rounds.found(store, select(store, "rounds-before"))
    runs = [(column, row) for column, methods in columns.items() for row in methods.get("rounds", ())]
    for column, row in runs:
        history = store.history(row)
        ends = [end - 1 for end in accumulate(each["epochs"] for each in row["spec"]["rounds"])]
        right, kept, test = (history[name] for name in ("label_accuracy", "kept_fraction", "test_accuracy"))
        given = f"{100 * (1 - row['result']['realised_noise_rate']):.1f}"
        decided = [f"{100 * right[end]:.1f} of {100 * kept[end]:.0f}" for end in ends[1:]]
        body.append([_column(*column), given, *decided, *(f"{100 * test[end]:.1f}" for end in ends)])
    if not body:
        return NO_ROWS
    numbers = range(1, len(ends) + 1)
    head = ["column", "right as given", *(f"round {n}" for n in numbers[1:])]
    return markdown_table([*head, *(f"network {n}" for n in numbers)], body, "lr")


def _column(dataset: str, noise: str, rate: float) -> str:
    title = data_set_title(dataset)
    return title if noise == "human" else f"{title}, {noise} {rate:g}"


BENCHES = {
    "bench-audit": audit,
    "bench-brief": brief,
    "bench-prune": prune,
    "bench-texts": texts,
    "bench-loss-cpu": loss_cpu,
    "bench-loss-gpu": loss_gpu,
    "bench-linear": linear,
    "bench-train": training,
    "bench-rounds-settings": rounds_settings,
    "bench-rounds-course": rounds_course,
}


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _machine(rows: list[dict[str, Any]]) -> str:
    return _where(next(row for row in rows if row["bench"] == "machine"))


def _where(row: dict[str, Any]) -> str:
    commit = (row["commit"] or "unknown")[:7]
    return f"One {row['gpu']}, torch {row['torch']}, {row['rounds']} rounds, commit {commit}."


def _read_one(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.exists() else None
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+", help="Markdown files to write the tables into")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with the stored rows")
    arguments = parser.parse_args(words)
    for page in arguments.pages:
        write_atomic(page, fill(page.read_text("utf-8"), partial(_block, arguments.results)))


def _block(results: Path, name: str, kind: str) -> str | None:
    if name == "bench-models":
        return models(results, kind)
    return BENCHES[name](results) if name.startswith("bench-") else None


if __name__ == "__main__":
    main()
