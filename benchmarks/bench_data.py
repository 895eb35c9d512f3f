"""Data: loading CIFAR-10, a folder of small pictures, and the augmentation step.

    TOLERANT_DATA=... python benchmarks/bench_data.py [--pictures 20000]

Prints one line a measurement: seconds, peak memory of a fresh process, and what it was run on.
"""

from __future__ import annotations

import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from common import captured, in_fresh_process, make_parser, synchronize

from tolerant.data import downloads, load
from tolerant.data.augment import augment, draw


def best(work: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def load_once(source: str, split: str | None) -> None:
    """In a process of its own, so that the peak is of this load alone."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu_start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the picture that is broken on purpose
        data = load(source, split=split)
    time_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"load {Path(source).name:<14} {len(data):>6} rows  {time_s:6.2f} s ({cpu_s:.2f} s of CPU)  "
        f"peak {peak / 1024:5.0f} MiB, of it {before / 1024:.0f} MiB before loading"
    )


def make_pictures(folder: Path, count: int) -> None:
    from PIL import Image

    draw = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"class{number % 10}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    (folder / "class0" / "0.png").write_bytes(b"broken")


def bench_augment(num_images: int) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, 1 thread"
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(0)
    images = torch.randint(256, (num_images, 32, 32, 3), dtype=torch.uint8, generator=g).to(device)
    mean = torch.rand((32, 32, 3), generator=g).to(device)
    index = torch.randint(num_images, (128,), generator=g).to(device)
    flip, shift = (drawn.to(device) for drawn in draw(128, g))
    for dtype in (torch.float32, torch.bfloat16):

        def step(dtype: torch.dtype = dtype) -> torch.Tensor:
            rows = images.index_select(0, index)
            return augment(rows, mean=mean, flip=flip, shift=shift, dtype=dtype)

        steps = captured(step, device, repeats=20)

        def twenty(steps: Callable[[], None] = steps) -> None:
            steps()
            synchronize(device)

        print(f"gather + augment, 128 x 32 x 32 x 3, {dtype}: {1e6 * best(twenty) / 20:7.1f} us ({where})")


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out=None)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--load", nargs=2, metavar=("SOURCE", "SPLIT"))
    options = parser.parse_args(words)
    if options.load:
        load_once(options.load[0], options.load[1] or None)
        return

    def load_fresh(source: str, split: str) -> None:
        print(
            in_fresh_process(__file__, main, "--load", source, split, tiny=options.tiny), end="", flush=True
        )

    for name in ("cifar10", "cifar100", "fashion-mnist"):
        if options.tiny or downloads()[name].missing():
            print(f"load {name}: not in the data folder, see `tolerant doctor`")
        else:
            load_fresh(name, "train")
    num_pictures = 40 if options.tiny else options.pictures
    if num_pictures:
        with tempfile.TemporaryDirectory() as folder:
            make_pictures(Path(folder), num_pictures)
            load_fresh(folder, "")
    bench_augment(200 if options.tiny else 50_000)


if __name__ == "__main__":
    main()
