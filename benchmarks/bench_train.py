"""Images a second: the trainer against the loop people write, in one run.

python benchmarks/bench_train.py --out rows.json    # ResNet-34 and ResNet-18 on a GPU, one run and several
python benchmarks/bench_train.py --device cpu       # small CNN and MLP on this machine's cores
python benchmarks/bench_train.py --profile          # where the time of a step goes on a GPU
python benchmarks/bench_train.py --accuracy fashion-mnist   # fp32 plain against bf16 captured, 3 seeds
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from common import interleaved, machine, make_parser, pick_gpu, profiled, timed
from loops import FULL, TINY, Rate, Size, default_loop, fp32_eager, ours, random_rows
from tables import GFLOP

from tolerant.data import NoisyDataset, load
from tolerant.train import Fleet, Job, Recipe


class InProcess:
    """A candidate in a process of its own, so that no setting or memory of one serves another."""

    def __init__(self, make: Callable[..., Rate], name: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        spawn.Process(target=_serve, args=(theirs, make, name), daemon=True).start()

    def __call__(self) -> float:
        self.pipe.send(None)
        return self.pipe.recv()


def _serve(pipe: Connection, make: Callable[..., Rate], name: str) -> None:
    rate = make(name, cpu_rows(name, FULL), FULL.batch)
    with suppress(EOFError):  # the parent has ended
        while True:
            pipe.recv()
            pipe.send(rate())


def cpu_rows(name: str, size: Size) -> NoisyDataset:
    return random_rows(name, 2 if size is TINY else 8 if name == "small-cnn" else 60, size)


def bench_cpu(size: Size, rounds: int, compile: bool) -> dict[str, Any]:
    threads = torch.get_num_threads()
    print(f"CPU, {threads} threads, torch {torch.__version__}, batch {size.batch}, cross entropy, SGD")
    print("default loop: fp32 NCHW eager, torch.optim.SGD, DataLoader(num_workers=0) over a dataset in")
    print("memory, each picture flipped and cropped on its own (MLP: TensorDataset, no augmentation); the")
    print("CNN is the same function in the usual order of layers, pooling after ReLU")
    results: dict[str, Any] = {}
    mine = partial(ours, device=torch.device("cpu"), precision="fp32")
    ways: dict[str, Callable[..., Rate]] = {
        "default loop": partial(default_loop, loader=True),
        "default loop, batches made beforehand": partial(default_loop, loader=False),
        "tolerant": mine,
    }
    if compile:
        ways["tolerant, compiled"] = partial(mine, compile=True)
    for name in ("small-cnn", "mlp"):
        candidates: dict[str, Rate] = {
            label: make(name, cpu_rows(name, TINY), TINY.batch) if size is TINY else InProcess(make, name)
            for label, make in ways.items()
        }
        results[name] = _print_cpu(name, size.shapes[name], interleaved(candidates, rounds, warm_up=1))
    return results


def _print_cpu(name: str, shape: tuple[int, ...], measured: dict[str, list[float]]) -> dict[str, float]:
    base = measured["default loop"]
    title = f"{name}, rows of {' x '.join(map(str, shape))}"
    print(f"\n{title:<42}{'images/s':>10}{'ratio':>8}   range of ratios")
    medians = {}
    for label, values in measured.items():
        ratios = sorted(value / b for value, b in zip(values, base, strict=True))
        medians[label] = statistics.median(values)
        ratio = statistics.median(ratios)
        print(f"{label:<42}{medians[label]:>10,.0f}{ratio:>8.2f}   {ratios[0]:.2f} to {ratios[-1]:.2f}")
    return medians


def ceilings(device: torch.device, size: Size) -> tuple[float, float]:
    """TFLOP/s of an 8192^3 bf16 product and TB/s of a copy, bytes read plus bytes written."""
    side, length = (64, 2**10) if size is TINY else (8192, 2**30)
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(length, device=device)
    target = torch.empty_like(source)
    product, copy = (
        statistics.median(timed(do, device)() / 1e3 for _ in range(20))
        for do in (lambda: a @ b, lambda: target.copy_(source))
    )
    return 2 * side**3 / product / 1e12, 2 * source.numel() * 4 / copy / 1e12


def gpu_ways(
    name: str, size: Size, device: torch.device, steps: int, compile: bool, runs: list[int]
) -> dict[str, Callable[[], Rate]]:
    data = random_rows(name, steps + 1, size)
    fast = partial(ours, name, data, size.batch, device, steps=steps)
    plain = partial(fp32_eager, name, data, size.batch, device, steps=steps)
    ways = {
        "fp32 NCHW eager": partial(plain, tf32=False),
        "the same, TF32 convolutions": partial(plain, tf32=True),
        "bf16 graph": fast,
    }
    ways |= {f"bf16 graph, {n} side by side": partial(fast, runs=n) for n in runs}
    if compile:
        compiled = partial(fast, compile=True)
        ways["compiled graph"] = compiled
        ways |= {f"compiled graph, {n} side by side": partial(compiled, runs=n) for n in runs}
    # Last: cuDNN keeps the algorithms a process first took for a shape, and this does not time them.
    ways["bf16 NHWC eager"] = partial(fast, graph=False)
    return ways


def bench_gpu(
    models: list[str],
    size: Size,
    device: torch.device,
    rounds: int,
    steps: int,
    compile: bool,
    runs: list[int],
) -> dict[str, Any]:
    results: dict[str, Any] = machine(device, rounds)
    print(f"{results['gpu']}, torch {torch.__version__}, batch {size.batch}, cross entropy, SGD")
    product, copy = ceilings(device, size)
    print(f"ceilings in this run: bf16 product 8192^3 {product:.0f} TFLOP/s, copy {copy:.2f} TB/s")
    results |= {"product_tflops": product, "copy_tb_s": copy}
    for name in models:
        print(f"\n{name:<34}{'images/s':>10}{'ratio':>8}{'MFU':>8}   spread   set-up")
        results[name] = {}
        base = None
        for label, make in gpu_ways(name, size, device, steps, compile, runs).items():
            # One at a time, or eight runs' pools would crowd the next candidate's memory.
            start = time.perf_counter()
            rate = make()
            values = sorted(interleaved({label: rate}, rounds, warm_up=1)[label])
            setup = time.perf_counter() - start
            median = statistics.median(values)
            base = base or median
            mfu = median * GFLOP[name] / 1e3 / product
            spread = (values[-1] - values[0]) / median
            print(
                f"{label:<34}{median:>10,.0f}{median / base:>8.2f}{mfu:>8.1%}{spread:>9.1%}{setup:>7.0f} s",
                flush=True,
            )
            results[name][label] = median
            del rate
            torch.cuda.empty_cache()
    return results


KINDS = {
    "convolution and product": ("gemm", "conv", "xmma", "cutlass", "cudnn", "wgrad", "dgrad", "nvjet"),
    "batch norm, shortcut, ReLU": (
        "batch_norm",
        "bn_",
        "batchnorm",
        "statistics_kernel",
        "apply_kernel",
        "sums_kernel",
        "input_kernel",
    ),
    "optimiser and casts": ("multi_tensor", "fused_sgd", "foreach"),
    "reduction": ("reduce",),
    "elementwise": ("elementwise", "vectorized", "copy", "triton", "index", "cat"),
}


def profile(name: str, size: Size, device: torch.device, compile: bool) -> None:
    """Time of a captured step by kind of kernel, and how much of it no kernel runs."""
    steps = 1 if size is TINY else 20
    data = random_rows(name, steps + 1, size)
    rate = ours(name, data, size.batch, device, steps=steps, compile=compile)
    rate()
    recorded, images = profiled(rate, device)
    kernels = [event for event in recorded.events() if event.device_type.name == "CUDA"]
    by_kind: dict[str, float] = {}
    for event in kernels:
        words = event.name.lower()
        kind = next((k for k, keys in KINDS.items() if any(key in words for key in keys)), "other")
        by_kind[kind] = by_kind.get(kind, 0.0) + event.device_time
    span = steps * size.batch / images * 1e6
    title = f"{name} compiled" if compile else name
    print(f"\n{title}: {span / steps:,.0f} us and {len(kernels) / steps:.0f} kernels a step")
    for kind, spent in sorted(by_kind.items(), key=lambda item: -item[1]):
        print(f"  {kind:<26}{spent / steps:>9,.0f} us {spent / span:>7.1%}")
    print(f"  {'between kernels':<26}{(span - sum(by_kind.values())) / steps:>9,.0f} us")
    longest = sorted(recorded.key_averages(), key=lambda k: -k.device_time_total)[:12]
    for kernel in longest:
        each = f"{kernel.device_time_total / steps:>8,.0f} us  {kernel.count / steps:>5.0f}x"
        print(f"    {each}  {kernel.key[:90]}")


def accuracy(dataset: str, epochs: int, *, tiny: bool) -> None:
    """Three seeds each: fp32 plain steps and bf16 captured ones must end within the seeds' spread."""
    data, test = load(dataset), load(dataset, split="test")
    model = "mlp" if tiny else "resnet18"
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, data.num_classes, len(data))
    noisy = data.with_given_labels(np.where(rng.random(len(data)) < 0.4, drawn, data.given_labels))
    recipe = Recipe(epochs=epochs, milestones=(max(1, 2 * epochs // 3),), score_every=0)
    for precision, graph in (("fp32", False), ("bf16", None)):
        jobs = [
            Job(
                dataset=noisy,
                model=model,
                loss="lq",
                recipe=replace(recipe, precision=precision, seed=seed),
                test=test,
            )
            for seed in range(3)
        ]
        fleet = Fleet(side_by_side=3, progress="quiet", graph=graph)
        ends = [100 * result.last_test_accuracy for result in fleet.run(jobs)]
        steps = "captured" if graph is None else "plain"
        print(f"{precision} {steps}: {', '.join(f'{end:.2f}' for end in ends)}")


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out="write the images a second here as JSON")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--models", nargs="+", choices=list(GFLOP), default=list(GFLOP))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="steps a measurement (GPU)")
    parser.add_argument("--runs", nargs="*", type=int, default=[2, 4, 8], help="side by side (GPU)")
    what = "measure compiled models too; default: on a GPU, but not with --profile"
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None, help=what)
    parser.add_argument("--profile", action="store_true", help="show where the time of a step goes instead")
    parser.add_argument("--accuracy", metavar="DATASET", help="compare accuracies instead of speeds")
    parser.add_argument("--epochs", type=int, default=6, help="of --accuracy")
    options = parser.parse_args(words)
    size = TINY if options.tiny else FULL
    if options.tiny:
        options.rounds, options.steps, options.epochs, options.compile = 1, 1, 1, False
    if options.device == "cpu":
        results = bench_cpu(size, options.rounds, bool(options.compile))
    else:
        device = pick_gpu(parser, options.tiny, "--device cpu")
        if options.accuracy:
            accuracy(options.accuracy, options.epochs, tiny=options.tiny)
            return
        if options.profile:
            for name in options.models:
                for compiled in (False, True) if options.compile else (False,):
                    profile(name, size, device, compiled)
            return
        compile = options.compile is not False
        steps, runs = options.steps, options.runs
        results = bench_gpu(options.models, size, device, options.rounds, steps, compile, runs)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
