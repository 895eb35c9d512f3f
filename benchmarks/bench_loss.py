"""L_q on the CPU: forward and backward against the two ways people write it, in one run.

    python benchmarks/bench_loss.py [--rounds 15] [--out results/bench/loss_cpu.json]

Peers, each with the same mean and backward pass: `F.cross_entropy` and then L_q by autograd, and softmax
and then a power. Rounds are interleaved, so that a busy machine slows all of them alike; ratios are of
medians. Peak memory is what the process grew by during one step, beyond the logits. On a GPU see
`bench_loss_gpu.py`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from common import in_fresh_process, interleaved, make_parser
from torch import Tensor

from tolerant.functional import lq_loss

Q = 0.7
SHAPES = [(128, 10), (8192, 1000), (512, 32000)]
TINY_SHAPES = [(8, 10), (70, 1000)]
MANY = 50_000  # logits whose memory shows in that of the process
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def ours(logits: Tensor, labels: Tensor) -> Tensor:
    return lq_loss(logits, labels, q=Q)


def through_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return ((1 - torch.exp(-Q * F.cross_entropy(logits, labels, reduction="none"))) / Q).mean()


def through_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    p_y = F.softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1)
    return ((1 - p_y**Q) / Q).mean()


Way = Callable[[Tensor, Tensor], Tensor]
WAYS: dict[str, Way] = {
    "tolerant": ours,
    "cross_entropy": through_cross_entropy,
    "softmax": through_softmax,
}


def make(shape: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(shape, generator=generator)).to(dtype).requires_grad_()
    return logits, torch.randint(shape[1], shape[:1], generator=generator)


def step(way: Way, logits: Tensor, labels: Tensor) -> None:
    logits.grad = None
    way(logits, labels).backward()


def medians(shape: tuple[int, int], dtype: torch.dtype, rounds: int, *, tiny: bool) -> dict[str, float]:
    """Seconds a step; small shapes are repeated within a round, or the clock would be measured."""
    logits, labels = make(shape, dtype)
    repeats = 1 if tiny else max(1, 200_000 // logits.numel())

    def spent(way: Way) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            step(way, logits, labels)
        return (time.perf_counter() - started) / repeats

    times = interleaved({name: partial(spent, way) for name, way in WAYS.items()}, rounds, warm_up=2)
    return {name: statistics.median(values) for name, values in times.items()}


def extra_copies(way: str, shape: tuple[int, int], dtype: str, *, tiny: bool) -> float:
    """Peak growth of a fresh process in one step, in copies of the logits."""
    return float(in_fresh_process(__file__, main, "--peak", way, *map(str, shape), dtype, tiny=tiny))


def print_peak(way: str, rows: int, classes: int, dtype: str) -> None:
    step(WAYS[way], *make((64, 1024), DTYPES[dtype]))  # libraries loaded
    logits, labels = make((rows, classes), DTYPES[dtype])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident (Linux)
    before = peak_kib()
    step(WAYS[way], logits, labels)
    print(1024 * (peak_kib() - before) / (logits.numel() * logits.element_size()))


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out="write the rows here as JSON")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.peak:
        way, rows, classes, dtype = options.peak
        print_peak(way, int(rows), int(classes), dtype)
        return
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {platform.processor() or platform.machine()}, {threads} threads")
    print(f"{'shape':>14} {'dtype':>5}  times faster than through      extra memory, in copies of the logits")
    print(
        f"{'':>14} {'':>5}  {'cross_entropy':>13} {'softmax':>8}      {'tolerant':>8} {'cross_entropy':>13}"
    )
    results = []
    rounds = 1 if options.tiny else options.rounds
    for shape in TINY_SHAPES if options.tiny else SHAPES:
        for name, dtype in DTYPES.items():
            spent = medians(shape, dtype, rounds, tiny=options.tiny)
            ratios = {way: spent[way] / spent["tolerant"] for way in ("cross_entropy", "softmax")}
            copies = (
                {
                    way: extra_copies(way, shape, name, tiny=options.tiny)
                    for way in ("tolerant", "cross_entropy")
                }
                if shape[0] * shape[1] > MANY
                else {}
            )
            memory = " ".join(f"{value:>10.2f}" for value in copies.values())
            print(
                f"{shape[0]:>6} x {shape[1]:<5} {name:>5}  "
                f"{ratios['cross_entropy']:>12.2f}x {ratios['softmax']:>7.2f}x      {memory}",
                flush=True,
            )
            results.append({"shape": shape, "dtype": name, "faster_than": ratios, "extra_copies": copies})
    if options.out:
        row = {"torch": torch.__version__, "threads": threads, "rounds": rounds, "results": results}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
