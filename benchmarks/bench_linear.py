"""Head and L_q in one, forward + backward, against its three bare products and against its peers.

    python benchmarks/bench_linear.py --out rows.jsonl [--peers FOLDER]

FOLDER holds unpacked wheels of cut-cross-entropy and liger-kernel; a missing one prints SKIPPED.
Interleaved rounds, medians, one H200-sized problem: 4096 rows, 4096 hidden, 128256 classes, bf16.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import Row, interleaved, machine, make_parser, peak_bytes, pick_gpu, timed, write_lines
from torch import Tensor

from tolerant.functional import linear_lq_loss

Q, K = 0.7, 0.5
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def lq_of(cross_entropy: Tensor) -> Tensor:
    return (torch.expm1(-Q * cross_entropy.float()) / -Q).mean()


def eager(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return lq_of(F.cross_entropy(F.linear(h, w), y, reduction="none"))


def eager_upcast(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return lq_of(F.cross_entropy(F.linear(h, w).float(), y, reduction="none"))


def ours(**options: Any) -> Loss:
    return lambda h, w, y: linear_lq_loss(h, w, y, q=Q, **options)


def peers(folder: Path | None) -> dict[str, Loss]:
    if folder is not None:
        sys.path.insert(0, str(folder))
    found: dict[str, Loss] = {}
    try:
        from cut_cross_entropy import linear_cross_entropy

        found["cut-cross-entropy"] = lambda h, w, y: lq_of(linear_cross_entropy(h, w, y, reduction="none"))
    except ImportError as error:
        print(f"SKIPPED cut-cross-entropy: {error}", flush=True)
    try:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        liger = LigerFusedLinearCrossEntropyLoss(reduction="none")
        found["liger-kernel"] = lambda h, w, y: lq_of(liger(w, h, y))
    except ImportError as error:
        print(f"SKIPPED liger-kernel: {error}", flush=True)
    return found


def problem(
    device: torch.device, n: int, hidden: int, classes: int, live: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A share `live` of the rows points at its class, with p_y near 1; the others point nowhere."""
    torch.manual_seed(0)
    w = (0.02 * torch.randn(classes, hidden, device=device)).bfloat16()
    y = torch.randint(classes, (n,), device=device)
    h = 0.1 * torch.randn(n, hidden, device=device)
    pointed = (torch.rand(n, device=device) < live).unsqueeze(1)
    own = w[y].float()
    h += torch.where(pointed, 20 * own / own.pow(2).sum(1, keepdim=True), 0.0)
    return h.bfloat16().requires_grad_(), w.requires_grad_(), y


def step(loss: Loss, h: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    wanted = [t for t in (h, w) if t.requires_grad]
    return torch.autograd.grad(loss(h, w, y), wanted)


def bare_products(h: Tensor, w: Tensor) -> Callable[[], None]:
    h, w = h.detach(), w.detach()
    logits = torch.randn(len(h), len(w), device=h.device, dtype=h.dtype)
    grad_h, grad_w = torch.empty_like(h), torch.empty_like(w)
    out = torch.empty_like(logits)

    def run() -> None:
        torch.mm(h, w.t(), out=out)
        torch.mm(logits, w, out=grad_h)
        torch.mm(logits.t(), h, out=grad_w)

    return run


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda._sleep(10_000_000)  # 5 ms in which the host gets ahead, as in training
    return timed(run, device)()


def extra_mib(loss: Loss, h: Tensor, w: Tensor, y: Tensor) -> float:
    """Peak beyond the inputs and the gradients that are handed out: with the layer frozen, and without."""
    most = 0.0
    for frozen in (True, False):
        w.requires_grad_(not frozen)
        step(loss, h, w, y)
        gradients = h.numel() * h.element_size() + (0 if frozen else w.numel() * w.element_size())
        most = max(most, peak_bytes(partial(step, loss, h, w, y), h.device) - gradients)
    return most / 2**20


def accuracy(rows: list[Row], losses: dict[str, Loss], device: torch.device, *, tiny: bool) -> None:
    """Against float64 on a size that fits it: relative error of the two gradients."""
    n, *size = (64, 16, 50) if tiny else (1024, 256, 8192)
    h, w, y = problem(device, n, *size, live=0.5)
    exact = [t.detach().double().requires_grad_() for t in (h, w)]
    of_float64 = F.cross_entropy(F.linear(*exact), y, reduction="none")
    truth = torch.autograd.grad((torch.expm1(-Q * of_float64) / -Q).mean(), exact)
    bias = torch.randn(size[1], device=device).bfloat16()
    chunks = {
        f"{name}, {count} chunks": ours(chunk_rows=n // count, **options)
        for count in (4, 16, 64)
        for name, options in (("ours", {}), ("bf16 sum", {"accumulate_fp32": False}))
    }
    for name, loss in {**losses, **chunks}.items():
        try:
            got = step(loss, h, w, y)
        except Exception as error:
            print(f"FAILED {name}: {str(error)[:300]}", flush=True)
            continue
        rows.append({"bench": "accuracy", "name": name, **errors(got, truth)})
        print(json.dumps(rows[-1]), flush=True)
    of_float64 = F.cross_entropy(F.linear(*exact, bias.double()), y, reduction="none")
    truth = torch.autograd.grad((torch.expm1(-Q * of_float64) / -Q).mean(), exact)
    got = step(ours(bias=bias), h, w, y)
    rows.append({"bench": "accuracy", "name": "ours, with a bias", **errors(got, truth)})
    print(json.dumps(rows[-1]), flush=True)


def errors(got: Sequence[Tensor], truth: Sequence[Tensor]) -> dict[str, float]:
    of_each = [((g.double() - t).norm() / t.norm()).item() for g, t in zip(got, truth, strict=True)]
    return {"hidden": of_each[0], "weight": of_each[1]}


def print_table(rows: list[Row]) -> None:
    print(f"\n{'':34} {'ms':>8} {'/ bare':>7} {'extra MiB':>10} {'eager / it':>10}")
    memory = {str(row["name"]): row.get("extra MiB") for row in rows if row["bench"] == "linear"}
    for row in rows:
        if row["bench"] == "linear":
            own, theirs = row.get("extra MiB"), memory.get("eager")
            ratio = f"{theirs / own:.1f}" if own and theirs else "-"
            print(f"{row['name']!s:34} {row['ms']:>8} {row['/ bare products']:>7} {own!s:>10} {ratio:>10}")
    ms = {row["name"]: row["ms"] for row in rows if row["bench"] == "linear"}
    ratio = ms["ours, truncated, 40 % dead rows"] / ms["ours on 40 % dead rows"]
    print(f"truncated / plain on 40 % dead rows: {ratio:.3f}")


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out="write the rows here, a JSON line each")
    parser.add_argument("--peers", type=Path, help="folder with the peers' packages")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=128256)
    options = parser.parse_args(words)
    device = pick_gpu(parser, options.tiny)
    if options.tiny:
        options.rounds, options.rows, options.hidden, options.classes = 1, 32, 16, 50
    rows: list[Row] = [{"bench": "machine", **machine(device, options.rounds)}]
    size = (options.rows, options.hidden, options.classes)
    h, w, y = problem(device, *size, live=1.0)
    half_h, half_w, half_y = problem(device, *size, live=0.6)
    losses: dict[str, Loss] = {
        "ours": ours(),
        "ours, 512 rows a chunk": ours(chunk_rows=512),
        "ours, 1024 rows a chunk": ours(chunk_rows=1024),
        "ours, one chunk": ours(chunk_rows=options.rows),
        "ours, fp32 sum": ours(accumulate_fp32=True),
        "eager": eager,
        "eager, logits.float()": eager_upcast,
        **peers(options.peers),
    }
    accuracy(rows, losses, device, tiny=options.tiny)
    runs: dict[str, Callable[[], object]] = {"bare products": bare_products(h, w)}
    for name, loss in losses.items():
        try:
            step(loss, h, w, y)
            runs[name] = partial(step, loss, h, w, y)
        except Exception as error:
            print(f"SKIPPED {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    truncated = ours(k=K)
    runs["ours on 40 % dead rows"] = partial(step, losses["ours"], half_h, half_w, half_y)
    runs["ours, truncated, 40 % dead rows"] = partial(step, truncated, half_h, half_w, half_y)
    timers = {name: partial(milliseconds, run, device) for name, run in runs.items()}
    measured = interleaved(timers, options.rounds, warm_up=1)
    times = {name: statistics.median(values) for name, values in measured.items()}
    runs.clear()  # the buffers of the bare products make room
    timers.clear()
    bare = times["bare products"]
    flops = 6 * math.prod(size)
    for name, ms in times.items():
        row: Row = {"bench": "linear", "name": name, "ms": round(ms, 3)}
        row |= {"/ bare products": round(ms / bare, 3), "TFLOP/s": round(flops / ms / 1e9, 1)}
        if name in losses:
            torch.cuda.empty_cache()
            try:
                row["extra MiB"] = round(extra_mib(losses[name], h, w, y), 1)
            except Exception as error:  # a peer may refuse a frozen layer
                print(f"SKIPPED memory of {name}: {type(error).__name__}: {str(error)[:200]}")
        rows.append(row)
        write_lines(options.out, rows)
    print_table(rows)


if __name__ == "__main__":
    main()
