"""State, memory and time of ``Pruner`` from 10^6 to 10^8 synthetic rows: all linear in the rows.

    python benchmarks/bench_prune.py                    # about a minute, 1.5 GB
    python benchmarks/bench_prune.py --rows 1000000     # a few seconds

Every size runs in its own process, so that its resident memory is its own: the growth from before
the Pruner is built, which includes the temporaries of one batch. Rows are reported as a scoring pass
would, in batches of 10^6; labels and p_y are drawn beforehand. Times are processor time of the one
thread that works, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from common import append, in_fresh_process, make_parser

from tolerant import Pruner

BATCH = 10**6
NUM_CLASSES = 1000


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(num_rows: int) -> dict[str, float]:
    """Build, two full passes of updates, one small update, on one core."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    Pruner(2000, np.arange(2000) % NUM_CLASSES).update([0], [0.1])  # first-call costs
    labels = np.empty(num_rows, dtype=np.int16)
    for start in range(0, num_rows, BATCH):
        stop = min(start + BATCH, num_rows)
        labels[start:stop] = rng.integers(0, NUM_CLASSES, stop - start, dtype=np.int16)
    p_y = rng.random(BATCH, dtype=np.float32)

    before = resident_bytes()
    start_s = time.process_time()
    pruner = Pruner(num_rows, labels, k=0.5)
    build_s = time.process_time() - start_s

    def full_pass() -> float:
        start_s = time.process_time()
        for start in range(0, num_rows, BATCH):
            index = np.arange(start, min(start + BATCH, num_rows))
            pruner.update(index, p_y[: len(index)])
        return time.process_time() - start_s

    pass_s = min(full_pass(), full_pass())
    held = resident_bytes() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before

    state = sum(v.nbytes for v in vars(pruner).values() if isinstance(v, np.ndarray))

    rows = rng.integers(0, num_rows, BATCH)
    start_s = time.process_time()
    pruner.update(rows, p_y)
    shuffled_s = time.process_time() - start_s

    rows = rng.integers(0, num_rows, 128)
    start_s = time.process_time()
    for _ in range(100):
        pruner.update(rows, p_y[:128])
    small_s = (time.process_time() - start_s) / 100

    start_s = time.process_time()
    share = float(pruner.kept.sum()) / num_rows
    kept_s = time.process_time() - start_s
    return {
        "rows": num_rows,
        "state_bytes_per_row": state / num_rows,
        "resident_bytes_per_row": held / num_rows,
        "peak_bytes_per_row": peak / num_rows,
        "build_s": build_s,
        "pass_s": pass_s,
        "ns_per_row": pass_s / num_rows * 1e9,
        "shuffled_ns_per_row": shuffled_s / BATCH * 1e9,
        "update_128_us": small_s * 1e6,
        "kept_share": share,
        "kept_read_s": kept_s,
        "num_classes": NUM_CLASSES,
        "batch": BATCH,
        "threads": 1,
        "numpy": np.__version__,
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    columns = [
        "rows",
        "state_bytes_per_row",
        "resident_bytes_per_row",
        "peak_bytes_per_row",
        "build_s",
        "pass_s",
        "ns_per_row",
        "shuffled_ns_per_row",
        "update_128_us",
    ]
    print("  ".join(columns))
    for num_rows in [50_000] if options.tiny else options.rows:
        printed = in_fresh_process(__file__, main, "--one", str(num_rows), tiny=options.tiny)
        found = json.loads(printed)
        print("  ".join(f"{found[name]:>{len(name)}.5g}" for name in columns), flush=True)
        append(options.out, found)


if __name__ == "__main__":
    main()
