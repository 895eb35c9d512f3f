"""L_q on the GPU, forward + backward, against a copy of the bytes it must move and against PyTorch's own.

    python benchmarks/bench_loss_gpu.py --out rows.jsonl          # the comparison, about 2 minutes
    python benchmarks/bench_loss_gpu.py --tune --out tune.jsonl   # which launch plan is best, per shape

Every candidate is one CUDA graph; rounds are interleaved, two input sets take turns, each larger than the
L2 several times over; medians. The copy moves 2NC values: NC read, NC written. It is the faster of two, the
driver's and a kernel that changes the sign.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tolerant.experiment.row import commit
from tolerant.losses import triton_loss
from tolerant.losses.fused import plain_phi_rows
from tolerant.losses.phi import PHI
from tolerant.losses.triton_launch import Call, Plan, launch, plan_for
from tolerant.losses.triton_loss import phi_loss

Q = 0.7
ROWS = {1000: 262144, 4096: 65536, 32000: 8192, 128256: 4096}
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}


def ours(z: Tensor, y: Tensor) -> Tensor:
    return phi_loss(z, y, phi="lq", hyper={"q": Q})


def eager_lq(z: Tensor, y: Tensor) -> Tensor:
    return (torch.expm1(-Q * F.cross_entropy(z, y, reduction="none")) / -Q).mean()


def softmax_lq(z: Tensor, y: Tensor) -> Tensor:
    p = F.softmax(z, 1).gather(1, y.unsqueeze(1)).squeeze(1)
    return ((1 - p.pow(Q)) / Q).mean()


def with_backward(loss: Callable[[Tensor, Tensor], Tensor], z: Tensor, y: Tensor) -> Callable[[], Tensor]:
    ones = {dtype: torch.ones((), device="cuda", dtype=dtype) for dtype in (torch.float32, z.dtype)}

    def step() -> Tensor:
        value = loss(z, y)
        return torch.autograd.grad(value, z, ones[value.dtype])[0]

    return step


def captured(step: Callable[[], object], repeats: int = 1) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # where its tensors were made
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            step()
    graph.step = step  # type: ignore[attr-defined]  # the tensors it reads and writes live as long
    return graph


def interleaved(graphs: dict[str, list[torch.cuda.CUDAGraph]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each candidate; its graphs (one per input set) take turns."""
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in graphs}
    for r in range(rounds + 2):
        for name, turns in graphs.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            turns[r % len(turns)].replay()
            stop.record()
            if r >= 2:
                marks[name].append((start, stop))
    torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in marks.items()}


def inputs(n: int, c: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    z = torch.randn(n, c, device="cuda", dtype=dtype)
    return z.requires_grad_(), torch.randint(c, (n,), device="cuda")


def copies(sets: list[tuple[Tensor, Tensor]]) -> dict[str, list[torch.cuda.CUDAGraph]]:
    """A copy by the driver, and by a kernel that changes the sign: at some sizes one is 1.6x the other."""
    targets = [torch.empty_like(z, requires_grad=False) for z, _ in sets]
    pairs = list(zip(sets, targets, strict=True))
    return {
        "copy": [captured(lambda z=z, t=t: t.copy_(z.detach())) for (z, _), t in pairs],
        "negative": [captured(lambda z=z, t=t: torch.neg(z.detach(), out=t)) for (z, _), t in pairs],
    }


def best_copy(times: dict[str, float]) -> None:
    times["copy"] = min(times["copy"], times.pop("negative"))


def large(rows: list[dict[str, object]], rounds: int) -> None:
    for c, dtype in product(ROWS, (torch.bfloat16, torch.float32)):
        torch.cuda.empty_cache()
        began = time.perf_counter()
        n = ROWS[c]
        sets = [inputs(n, c, dtype) for _ in range(2)]
        candidates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"ours": ours}
        candidates["compiled cross entropy"] = torch.compile(F.cross_entropy, dynamic=False)
        if c in (1000, 128256):
            candidates["compiled L_q"] = torch.compile(eager_lq, dynamic=False)
        if dtype == torch.float32 and c == 32000:
            candidates |= {"eager L_q": eager_lq, "eager softmax L_q": softmax_lq}
        graphs = copies(sets)
        for name, loss in candidates.items():
            try:
                graphs[name] = [captured(with_backward(loss, z, y)) for z, y in sets]
            except Exception as error:
                print(f"SKIPPED {name} at C={c}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        times = interleaved(graphs, rounds)
        best_copy(times)
        row: dict[str, object] = {"bench": "large", "n": n, "c": c, "dtype": NAMES[dtype]}
        row |= {f"{name} ms": round(ms, 4) for name, ms in times.items()}
        row["copy TB/s"] = round(2 * n * c * dtype.itemsize / times["copy"] / 1e9, 3)
        for name in times:
            if name != "ours":
                row[f"ours / {name}"] = round(times["ours"] / times[name], 3)
        rows.append(row)
        print(json.dumps(row), f"# {time.perf_counter() - began:.0f} s", flush=True)
        torch._dynamo.reset()
        del graphs, sets, candidates


def small(rows: list[dict[str, object]], rounds: int) -> None:
    repeats = 50
    for n, c in ((128, 10), (128, 100)):
        z, y = inputs(n, c, torch.float32)
        losses = {"ours": ours, "eager L_q": eager_lq, "eager softmax L_q": softmax_lq}
        steps = {name: with_backward(loss, z, y) for name, loss in losses.items()}
        row: dict[str, object] = {"bench": "small", "n": n, "c": c, "dtype": "fp32"}
        for name, step in steps.items():
            step()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                step()
            cuda = torch.autograd.DeviceType.CUDA
            row[f"{name} kernels"] = sum(e.device_type == cuda for e in profile.events())
        times = interleaved({name: [captured(step, repeats)] for name, step in steps.items()}, rounds)
        row |= {f"{name} us": round(1e3 * ms / repeats, 2) for name, ms in times.items()}
        row["ours / eager L_q"] = round(times["ours"] / times["eager L_q"], 3)
        rows.append(row)
        print(json.dumps(row), flush=True)


def accuracy(rows: list[dict[str, object]]) -> None:
    """Largest error of a row's gradient over the row's largest entry, against float64."""
    c = 4096
    y = torch.randint(c, (256,), device="cuda")
    random = torch.randn(256, c, device="cuda") * 3
    peaked = random.scatter(1, y.unsqueeze(1), 25.0)
    hostile = random.clone()
    hostile[:64] = 0  # ties
    hostile[64:128] = hostile[64:128].sign() * 1e4
    hostile[128:192] = float("-inf")  # one class left
    hostile[192:, 1::2] = float("-inf")
    hostile.scatter_(1, y.unsqueeze(1), hostile.gather(1, y.unsqueeze(1)).clamp(min=-1e4))
    kinds = {"random": random, "peaked": peaked, "hostile": hostile}
    for (kind, logits), dtype in product(kinds.items(), (torch.float32, torch.bfloat16)):
        z = logits.to(dtype).requires_grad_()
        exact = z.detach().double().requires_grad_()
        ones = torch.ones(256, device="cuda")

        def plain(t: Tensor, weight: Tensor) -> Tensor:
            return plain_phi_rows(t, y, weight, PHI["lq"], {"q": Q})

        truth = torch.autograd.grad(plain(exact, ones.double()).sum(), exact)[0]
        got = torch.autograd.grad(phi_loss(z, y, phi="lq", hyper={"q": Q}, reduction="none"), z, ones)[0]
        near = torch.autograd.grad(plain(z, ones).sum(), z)[0]
        size = truth.abs().amax(1).clamp(min=1e-37)
        errors = [((g.double() - truth).abs().amax(1) / size).max().item() for g in (got, near)]
        row = {
            "bench": "accuracy", "kind": kind, "dtype": NAMES[dtype], "ours": errors[0],
            "plain": errors[1], "ulp": torch.finfo(dtype).eps,
        }  # fmt: skip
        rows.append(row)
        print(json.dumps(row), flush=True)


def memory(rows: list[dict[str, object]]) -> None:
    n, c = 8192, 32000
    for name, loss in (("ours", ours), ("eager L_q", eager_lq), ("eager softmax L_q", softmax_lq)):
        z, y = inputs(n, c, torch.bfloat16)
        step = with_backward(loss, z, y)
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        step()
        extra = (torch.cuda.max_memory_allocated() - base) / (n * c * 2)
        rows.append({"bench": "memory", "loss": name, "extra copies of the logits": round(extra, 3)})
        print(json.dumps(rows[-1]), flush=True)


def plans(c: int) -> list[Plan]:
    if c == 1000:
        return [Plan("row", 1024, w, p) for w, p in ((1, 16), (1, 24), (1, 32), (2, 12), (2, 16), (4, 8))]
    if c == 4096:
        return [Plan("row", 4096, w, p) for w, p in ((1, 12), (2, 8), (4, 4), (4, 8), (8, 4), (16, 2))]
    whole = [Plan("row", 32768, w, 1) for w in (16, 32)] if c == 32000 else []
    cuts = [(8192, 4, 4), (8192, 4, 5), (8192, 8, 3), (16384, 4, 2), (16384, 4, 3), (16384, 8, 2)]
    return whole + [Plan("row", *cut) for cut in cuts]


def tune(rows: list[dict[str, object]], rounds: int) -> None:
    call = Call("lq", (("q", Q),), -100, "mean")
    for c, dtype in product(ROWS, (torch.bfloat16, torch.float32)):
        sets = [inputs(ROWS[c], c, dtype) for _ in range(2)]
        grads = [torch.empty_like(z, requires_grad=False) for z, _ in sets]
        graphs = copies(sets)
        for plan in dict.fromkeys([plan_for(c, dtype.itemsize), *plans(c)]):
            try:
                graphs[str(plan)] = [
                    captured(lambda z=z, y=y, g=g, plan=plan: launch(call, z.detach(), y, grad=g, plan=plan))
                    for g, (z, y) in zip(grads, sets, strict=True)
                ]
            except Exception as error:
                print(f"SKIPPED {plan}: {type(error).__name__}: {str(error)[:160]}", flush=True)
        times = interleaved(graphs, rounds)
        best_copy(times)
        copy = times.pop("copy")
        default = times[str(plan_for(c, dtype.itemsize))]
        print(f"C={c} {NAMES[dtype]} copy {copy:.4f} ms, default {default / copy:.3f}")
        for name, ms in sorted(times.items(), key=lambda item: item[1])[:5]:
            print(f"   {ms / copy:.3f}  {name}", flush=True)
        rows += [
            {"bench": "tune", "c": c, "dtype": NAMES[dtype], "plan": name, "of copy": round(ms / copy, 4)}
            for name, ms in times.items()
        ]
        del graphs, sets, grads
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the rows here, a JSON line each")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tune", action="store_true", help="compare launch plans instead")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or not triton_loss.available(torch.zeros(1, 2, device="cuda")):
        raise SystemExit("needs a CUDA GPU of compute capability 8.0 or newer, and Triton")
    torch.manual_seed(0)
    rows: list[dict[str, object]] = [
        {
            "bench": "machine",
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "rounds": arguments.rounds,
            "commit": commit(),
        }
    ]
    try:
        if arguments.tune:
            tune(rows, arguments.rounds)
        else:
            accuracy(rows)
            memory(rows)
            small(rows, arguments.rounds)
            large(rows, arguments.rounds)
    finally:
        if arguments.out:
            arguments.out.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    if not arguments.tune:
        table(rows)


def table(rows: list[dict[str, object]]) -> None:
    columns = ("copy", "compiled L_q", "compiled cross entropy", "eager L_q")
    print(f"\n{'rows':>7} {'classes':>7} dtype " + " ".join(f"{'/ ' + name:>25}" for name in columns))
    for row in rows:
        if row["bench"] in ("large", "small"):
            cells = " ".join(f"{row.get(f'ours / {name}', '-')!s:>25}" for name in columns)
            print(f"{row['n']:>7} {row['c']:>7} {row['dtype']}  {cells}")


if __name__ == "__main__":
    main()
