"""What the benchmarks share: their options, timing in interleaved rounds, and the rows they store.

`--tiny` of every benchmark: a few rows and one round, on a processor too, nothing to fetch. It shows
that the benchmark runs and what its rows look like; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch

from tolerant.experiment.row import commit

T = TypeVar("T")
Row = dict[str, Any]

TINY_ROWS = 120
TINY_FIT: Mapping[str, Any] = {"epochs": 3, "folds": 2}  # of the classifier; fewer epochs would prune nothing


def make_parser(doc: str | None, *, out: str | None = "append a JSON line for each result"):
    """With `--tiny` and, where rows are stored, `--out`; the help is the benchmark's docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    if out is not None:
        parser.add_argument("--out", type=Path, help=out)
    parser.add_argument("--tiny", action="store_true", help="only see that it runs, in seconds")
    return parser


def add_seeds(parser: argparse.ArgumentParser, seeds: int) -> None:
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--first-seed", type=int, default=0)


def seeds_of(arguments: argparse.Namespace) -> range:
    first = arguments.first_seed
    return range(first, first + (1 if arguments.tiny else arguments.seeds))


def append(path: Path | None, row: Row) -> None:
    """One more line of a file of rows: an interrupted benchmark keeps what it measured.

    A line before it that was cut off stays apart.
    """
    if path is not None:
        before = path.read_bytes() if path.exists() else b""
        with path.open("a") as file:
            file.write("\n" * (before[-1:] not in (b"", b"\n")) + json.dumps(row) + "\n")


def stored(path: Path | None) -> list[Row]:
    """The rows of such a file; a last line that was cut off is none."""
    rows = []
    for line in path.read_text().splitlines() if path is not None and path.exists() else ():
        with suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def write_lines(path: Path | None, rows: Sequence[Row]) -> None:
    if path is not None:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def pick_gpu(parser: argparse.ArgumentParser, tiny: bool, instead: str = "--tiny") -> torch.device:
    """The GPU; with `--tiny` the processor where there is none."""
    if not torch.cuda.is_available() and not tiny:
        parser.error(f"needs a CUDA GPU; {instead} runs without one")
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def machine(device: torch.device, rounds: int) -> Row:
    """What the numbers of one run were made with."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else "none"
    return {"gpu": name, "torch": torch.__version__, "rounds": rounds, "commit": commit()}


def interleaved(candidates: Mapping[str, Callable[[], T]], rounds: int, warm_up: int) -> dict[str, list[T]]:
    """What each candidate measures, once a round, so that a slow spell of the machine meets them all."""
    measured: dict[str, list[T]] = {name: [] for name in candidates}
    for _ in range(warm_up + rounds):
        for name, measure in candidates.items():
            measured[name].append(measure())
    return {name: values[warm_up:] for name, values in measured.items()}


def timed(do: Callable[[], object], device: torch.device) -> Callable[[], float]:
    """Does it; the function returned waits for the device and says how many milliseconds it took."""
    if device.type == "cpu":
        began = time.perf_counter()
        do()
        spent = 1e3 * (time.perf_counter() - began)
        return lambda: spent
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = do()
    stop.record()
    del result

    def milliseconds() -> float:
        stop.synchronize()
        return start.elapsed_time(stop)

    return milliseconds


def captured(step: Callable[[], object], device: torch.device, repeats: int = 1) -> Callable[[], None]:
    """`repeats` steps as one CUDA graph; on a processor the steps themselves."""

    def steps() -> None:
        for _ in range(repeats):
            step()

    if device.type == "cpu":
        return steps
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # where its tensors were made
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps()

    def replay(_keep: object = step) -> None:  # the tensors it reads and writes live as long
        graph.replay()

    return replay


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """What a step allocates at most beyond what is there; 0 on a processor, where nobody counts."""
    if device.type == "cpu":
        step()
        return 0
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - base


def profiled(do: Callable[[], T], device: torch.device) -> tuple[torch.profiler.profile, T]:
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CUDA if device.type == "cuda" else kind.CPU]) as recorded:
        result = do()
    return recorded, result


def in_fresh_process(script: str, main: Callable[[list[str]], None], *words: str, tiny: bool) -> str:
    """What the benchmark prints when it is called so, in a process whose memory is its own.

    With `tiny` in this one: a process takes seconds to import torch.
    """
    if tiny:
        printed = io.StringIO()
        with redirect_stdout(printed):
            main([*words])
        return printed.getvalue()
    return subprocess.run(
        [sys.executable, script, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
