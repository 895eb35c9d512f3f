"""L_q on the GPU, forward + backward, against a copy of the bytes it must move and against PyTorch's own.

    python benchmarks/bench_loss_gpu.py --out rows.jsonl          # the comparison, about 2 minutes
    python benchmarks/bench_loss_gpu.py --tune --out tune.jsonl   # which launch plan is best, per shape

Every candidate is one CUDA graph; rounds are interleaved, two input sets take turns, each larger than the
L2 several times over; medians. The copy moves 2NC values: NC read, NC written. It is the faster of two, the
driver's and a kernel that changes the sign.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, product

import torch
import torch.nn.functional as F
from common import (
    Row,
    captured,
    interleaved,
    machine,
    make_parser,
    peak_bytes,
    pick_gpu,
    profiled,
    timed,
    write_lines,
)
from torch import Tensor

from tolerant.functional import lq_loss
from tolerant.kernels.triton.launch import Call, Plan, launch, plan_for

Q = 0.7
ROWS = {1000: 262144, 4096: 65536, 32000: 8192, 128256: 4096}
TINY_ROWS = {1000: 4, 32000: 2}
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}

Step = Callable[[], object]


@dataclass(frozen=True)
class Bench:
    """Where and how much is measured; what was, is in `rows`."""

    device: torch.device
    rounds: int
    rows: list[Row]
    tiny: bool

    def ours(self, z: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        impl = "auto" if self.tiny else "triton"  # which says what it needs
        return lq_loss(z, y, q=Q, reduction=reduction, impl=impl)

    def inputs(self, n: int, c: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        z = torch.randn(n, c, device=self.device, dtype=dtype)
        return z.requires_grad_(), torch.randint(c, (n,), device=self.device)

    def compiled(self, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return loss if self.tiny else torch.compile(loss, dynamic=False)

    def times(self, graphs: dict[str, list[Step]]) -> dict[str, float]:
        """Median milliseconds of each candidate; its graphs (one per input set) take turns."""
        turns = {name: cycle(own) for name, own in graphs.items()}

        def measure(name: str) -> Callable[[], float]:
            return timed(next(turns[name]), self.device)

        marks = interleaved({name: partial(measure, name) for name in graphs}, self.rounds, warm_up=2)
        return {name: statistics.median(mark() for mark in own) for name, own in marks.items()}

    def add(self, row: Row, note: str = "") -> None:
        self.rows.append(row)
        print(json.dumps(row), note, flush=True)


def eager_lq(z: Tensor, y: Tensor) -> Tensor:
    return (torch.expm1(-Q * F.cross_entropy(z, y, reduction="none")) / -Q).mean()


def softmax_lq(z: Tensor, y: Tensor) -> Tensor:
    p = F.softmax(z, 1).gather(1, y.unsqueeze(1)).squeeze(1)
    return ((1 - p.pow(Q)) / Q).mean()


def with_backward(loss: Callable[[Tensor, Tensor], Tensor], z: Tensor, y: Tensor) -> Callable[[], Tensor]:
    ones = {dtype: torch.ones((), device=z.device, dtype=dtype) for dtype in (torch.float32, z.dtype)}

    def step() -> Tensor:
        value = loss(z, y)
        return torch.autograd.grad(value, z, ones[value.dtype])[0]

    return step


def copies(sets: list[tuple[Tensor, Tensor]]) -> dict[str, list[Step]]:
    """A copy by the driver, and by a kernel that changes the sign: at some sizes one is 1.6x the other."""
    where = sets[0][0].device
    targets = [torch.empty_like(z, requires_grad=False) for z, _ in sets]
    pairs = [(z.detach(), target) for (z, _), target in zip(sets, targets, strict=True)]
    return {
        "copy": [captured(partial(t.copy_, z), where) for z, t in pairs],
        "negative": [captured(partial(torch.neg, z, out=t), where) for z, t in pairs],
    }


def best_copy(times: dict[str, float]) -> None:
    times["copy"] = min(times["copy"], times.pop("negative"))


def large(bench: Bench) -> None:
    sizes = TINY_ROWS if bench.tiny else ROWS
    for c, dtype in product(sizes, (torch.bfloat16, torch.float32)):
        torch.cuda.empty_cache()
        began = time.perf_counter()
        n = sizes[c]
        sets = [bench.inputs(n, c, dtype) for _ in range(2)]
        candidates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"ours": bench.ours}
        candidates["compiled cross entropy"] = bench.compiled(F.cross_entropy)
        if c in (1000, 128256):
            candidates["compiled L_q"] = bench.compiled(eager_lq)
        if dtype == torch.float32 and c == 32000:
            candidates |= {"eager L_q": eager_lq, "eager softmax L_q": softmax_lq}
        graphs = copies(sets)
        for name, loss in candidates.items():
            try:
                graphs[name] = [captured(with_backward(loss, z, y), bench.device) for z, y in sets]
            except Exception as error:
                print(f"SKIPPED {name} at C={c}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        times = bench.times(graphs)
        best_copy(times)
        row: Row = {"bench": "large", "n": n, "c": c, "dtype": NAMES[dtype]}
        row |= {f"{name} ms": round(ms, 4) for name, ms in times.items()}
        row["copy TB/s"] = round(2 * n * c * dtype.itemsize / times["copy"] / 1e9, 3)
        for name in times:
            if name != "ours":
                row[f"ours / {name}"] = round(times["ours"] / times[name], 3)
        bench.add(row, f"# {time.perf_counter() - began:.0f} s")
        if not bench.tiny:
            torch._dynamo.reset()
        del graphs, sets, candidates


def small(bench: Bench) -> None:
    repeats = 2 if bench.tiny else 50
    for n, c in ((128, 10), (128, 100)):
        z, y = bench.inputs(n, c, torch.float32)
        losses = {"ours": bench.ours, "eager L_q": eager_lq, "eager softmax L_q": softmax_lq}
        steps = {name: with_backward(loss, z, y) for name, loss in losses.items()}
        row: Row = {"bench": "small", "n": n, "c": c, "dtype": "fp32"}
        for name, step in steps.items():
            step()
            recorded, _ = profiled(step, bench.device)
            kernels = [e for e in recorded.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            row[f"{name} kernels"] = len(kernels)
        times = bench.times({name: [captured(step, bench.device, repeats)] for name, step in steps.items()})
        row |= {f"{name} us": round(1e3 * ms / repeats, 2) for name, ms in times.items()}
        row["ours / eager L_q"] = round(times["ours"] / times["eager L_q"], 3)
        bench.add(row)


def accuracy(bench: Bench) -> None:
    """Largest error of a row's gradient over the row's largest entry, against float64."""
    c = 40 if bench.tiny else 4096
    y = torch.randint(c, (256,), device=bench.device)
    random = torch.randn(256, c, device=bench.device) * 3
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
        ones = torch.ones(256, device=bench.device)

        plain = partial(lq_loss, q=Q, reduction="sum", impl="plain")
        truth = torch.autograd.grad(plain(exact, y), exact)[0]
        values = bench.ours(z, y, "none")
        got = torch.autograd.grad(values, z, ones.to(values.dtype))[0]
        near = torch.autograd.grad(plain(z, y), z)[0]
        size = truth.abs().amax(1).clamp(min=1e-37)
        errors = [((g.double() - truth).abs().amax(1) / size).max().item() for g in (got, near)]
        row = {
            "bench": "accuracy", "kind": kind, "dtype": NAMES[dtype], "ours": errors[0],
            "plain": errors[1], "ulp": torch.finfo(dtype).eps,
        }  # fmt: skip
        bench.add(row)


def memory(bench: Bench) -> None:
    n, c = (16, 40) if bench.tiny else (8192, 32000)
    for name, loss in (("ours", bench.ours), ("eager L_q", eager_lq), ("eager softmax L_q", softmax_lq)):
        z, y = bench.inputs(n, c, torch.bfloat16)
        step = with_backward(loss, z, y)
        step()
        extra = peak_bytes(step, bench.device) / (n * c * 2)
        bench.add({"bench": "memory", "loss": name, "extra copies of the logits": round(extra, 3)})


def plans(c: int) -> list[Plan]:
    if c == 1000:
        return [Plan("row", 1024, w, p) for w, p in ((1, 16), (1, 24), (1, 32), (2, 12), (2, 16), (4, 8))]
    if c == 4096:
        return [Plan("row", 4096, w, p) for w, p in ((1, 12), (2, 8), (4, 4), (4, 8), (8, 4), (16, 2))]
    whole = [Plan("row", 32768, w, 1) for w in (16, 32)] if c == 32000 else []
    cuts = [(8192, 4, 4), (8192, 4, 5), (8192, 8, 3), (16384, 4, 2), (16384, 4, 3), (16384, 8, 2)]
    return whole + [Plan("row", *cut) for cut in cuts]


def tune(bench: Bench) -> None:
    call = Call("lq", {"q": Q}, -100, "mean")
    sizes = {1000: 4} if bench.tiny else ROWS
    for c, dtype in product(sizes, (torch.bfloat16, torch.float32)):
        sets = [bench.inputs(sizes[c], c, dtype) for _ in range(2)]
        grads = [torch.empty_like(z, requires_grad=False) for z, _ in sets]
        graphs = copies(sets)
        for plan in dict.fromkeys([plan_for(c, dtype.itemsize), *plans(c)]):
            steps = [
                partial(launch, call, z.detach(), y, grad=grad, plan=plan)
                for grad, (z, y) in zip(grads, sets, strict=True)
            ]
            try:
                graphs[str(plan)] = [captured(step, bench.device) for step in steps]
            except Exception as error:
                print(f"SKIPPED {plan}: {type(error).__name__}: {str(error)[:160]}", flush=True)
        times = bench.times(graphs)
        best_copy(times)
        copy = times.pop("copy")
        default = times[str(plan_for(c, dtype.itemsize))]
        print(f"C={c} {NAMES[dtype]} copy {copy:.4f} ms, default {default / copy:.3f}")
        for name, ms in sorted(times.items(), key=lambda item: item[1])[:5]:
            print(f"   {ms / copy:.3f}  {name}", flush=True)
        bench.rows.extend(
            {"bench": "tune", "c": c, "dtype": NAMES[dtype], "plan": name, "of copy": round(ms / copy, 4)}
            for name, ms in times.items()
        )
        del graphs, sets, grads
        torch.cuda.empty_cache()


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out="write the rows here, a JSON line each")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tune", action="store_true", help="compare launch plans instead")
    arguments = parser.parse_args(words)
    device, rounds = pick_gpu(parser, arguments.tiny), 1 if arguments.tiny else arguments.rounds
    torch.manual_seed(0)
    bench = Bench(device, rounds, [{"bench": "machine", **machine(device, rounds)}], arguments.tiny)
    try:
        for measure in (tune,) if arguments.tune else (accuracy, memory, small, large):
            measure(bench)
    finally:
        write_lines(arguments.out, bench.rows)
    if not arguments.tune:
        table(bench.rows)


def table(rows: list[Row]) -> None:
    columns = ("copy", "compiled L_q", "compiled cross entropy", "eager L_q")
    print(f"\n{'rows':>7} {'classes':>7} dtype " + " ".join(f"{'/ ' + name:>25}" for name in columns))
    for row in rows:
        if row["bench"] in ("large", "small"):
            cells = " ".join(f"{row.get(f'ours / {name}', '-')!s:>25}" for name in columns)
            print(f"{row['n']:>7} {row['c']:>7} {row['dtype']}  {cells}")


if __name__ == "__main__":
    main()
