"""The tables of docs/performance.md, from the rows the benchmarks stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tolerant.report.brief import markdown, read_rows
from tolerant.report.rows import NO_ROWS

# Operations to train on one picture, ResNet-34 at 32 x 32 and ResNet-18 at 28 x 28: two for each
# multiplication, three times as many as in the forward pass alone (tests/test_models.py counts them).
GFLOP = {"resnet34": 6.953, "resnet18": 2.734}


def loss_cpu(results: Path) -> str:
    """L_q on a CPU against two common ways to write it (`benchmarks/bench_loss.py`)."""
    path = results / "bench" / "loss_cpu.json"
    if not path.exists():
        return NO_ROWS
    found = json.loads(path.read_text("utf-8"))
    body = []
    for row in found["results"]:
        copies = row["extra_copies"]
        extra = f"{copies['tolerant']:.2f}, {copies['cross_entropy']:.2f}" if copies else ""
        faster = row["faster_than"]
        shape = f"{row['shape'][0]} x {row['shape'][1]}"
        body.append(
            [shape, row["dtype"], f"{faster['cross_entropy']:.2f}x", f"{faster['softmax']:.2f}x", extra]
        )
    head = [
        "rows x classes",
        "dtype",
        "speed relative to L_q written with `F.cross_entropy`",
        "speed relative to L_q written with softmax and a power",
    ]
    table = markdown([*head, "extra copies of the logits (ours, `F.cross_entropy`)"], body, 2)
    return f"{table}\n\ntorch {found['torch']}, {found['threads']} threads, {found['rounds']} rounds."


def loss_gpu(results: Path) -> str:
    """L_q on a GPU, time over the time of others (`benchmarks/bench_loss_gpu.py`)."""
    rows = read_rows(results / "bench" / "loss_h200.jsonl")
    others = ("copy", "compiled cross entropy", "compiled L_q", "eager L_q")
    body = [
        [f"{row['n']} x {row['c']}", row["dtype"], *(_ratio(row.get(f"ours / {name}")) for name in others)]
        for row in rows
        if row["bench"] in ("small", "large")
    ]
    head = ["rows x classes", "dtype", "a copy of 2NC values", *others[1:]]
    return f"{markdown(head, body, 2)}\n\n{_machine(rows)}" if body else NO_ROWS


def linear(results: Path) -> str:
    """Head and loss in one (`benchmarks/bench_linear.py`)."""
    rows = read_rows(results / "bench" / "linear_h200.jsonl")
    timed = [row for row in rows if row["bench"] == "linear"]
    eager = next((row["extra MiB"] for row in timed if row["name"] == "eager"), None)
    body = []
    for row in timed:
        extra = row.get("extra MiB")
        share = f"1/{eager / extra:.1f}" if eager and extra else ""
        memory = "" if extra is None else f"{extra:,.0f}"
        body.append([row["name"], f"{row['ms']:.2f}", _ratio(row["/ bare products"]), memory, share])
    head = ["", "ms", "time relative to bare products", "extra memory, MiB", "relative to eager"]
    return f"{markdown(head, body, 1)}\n\n{_machine(rows)}" if body else NO_ROWS


def training(results: Path) -> str:
    """Images a second by way of training (`benchmarks/bench_train.py`)."""
    path = results / "bench" / "train_h200.json"
    if not path.exists():
        return NO_ROWS
    found = json.loads(path.read_text("utf-8"))
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
    return f"{markdown(head, body, 2)}\n\n{note}"


BENCHES = {
    "bench-loss-cpu": loss_cpu,
    "bench-loss-gpu": loss_gpu,
    "bench-linear": linear,
    "bench-train": training,
}


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _machine(rows: list[dict[str, Any]]) -> str:
    return _where(next(row for row in rows if row["bench"] == "machine"))


def _where(row: dict[str, Any]) -> str:
    commit = (row["commit"] or "unknown")[:7]
    return f"One {row['gpu']}, torch {row['torch']}, {row['rounds']} rounds, commit {commit}."
