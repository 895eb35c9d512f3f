"""Trainings that are killed, run out of disk or meet another in their folder, beside ones left alone.

`make chaos` runs it, for minutes; it is no part of `make test`. A trial is repeated by its seed and number:
``python tests/chaos.py --seed 0 --only 17``. What must hold after each: the same command goes on and ends in
the same files, byte for byte but for times, nothing else lies in the folder, and a run that was there before
is whole.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from own_data_helpers import write_table

from tolerant.data import Source
from tolerant.experiment import Store, changed, named_grid, part, run
from tolerant.own_data import Settings
from tolerant.own_data.run_folder import load_run
from tolerant.own_data.train_source import train_source

Work = Callable[[Path], object]
Disturb = Callable[[], object]
REFUSED = 3  # the exit code of a child that ended in a sentence
_FILES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")


def network(base: Path, seed: int = 0) -> Work:
    rows = Source(str(base / "rows.csv"), {"id": "key"})
    settings = Settings(epochs=6, seed=seed, model="mlp")
    return lambda folder: train_source(rows, folder, settings, folds=2, device="cpu")


def classifiers(base: Path) -> Work:
    rows = Source(str(base / "rows.csv"), {"id": "key"})
    return lambda folder: train_source(rows, folder, Settings(model="linear"), folds=2, device="cpu")


def grid(base: Path) -> Work:
    specs = part(named_grid("digits", range(1)), method=["lq", "cce"], noise_rate=[0.4])
    specs = [changed(spec, {"epochs": 2}) for spec in specs]
    return lambda folder: run(
        specs, results=folder / "results", checkpoints=folder / "checkpoints", device="cpu"
    )


class Child:
    """Work in a fork; importing torch again would take longer than all else."""

    def __init__(self, work: Work, folder: Path, disturb: Disturb = lambda: None) -> None:
        self.begun = time.monotonic()
        self._said, says = os.pipe()  # not a file: those may be limited
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(says, 2)
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            _do(work, folder, disturb)
        os.close(says)

    def wait(self) -> int:
        with open(self._said) as said:
            self.text = said.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.took_s = time.monotonic() - self.begun
        return code


def _do(work: Work, folder: Path, disturb: Disturb) -> None:
    code = 1
    try:
        warnings.simplefilter("ignore")
        disturb()
        work(folder)
        code = 0
    except (ValueError, OSError) as error:  # what the command line makes a sentence of
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        code = REFUSED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def at_file(folder: Path, number: int, do: Callable[[], None]) -> Disturb:
    """Do something at one of the operations on files below a folder, counted from 1, and at all after it."""
    seen = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILES and str(arguments[0]).startswith(str(folder)):
            if event == "open" and not (
                isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            ):
                return
            seen[0] += 1
            if seen[0] >= number:
                do()

    return lambda: sys.addaudithook(hook)


def count_files(work: Work, folder: Path) -> int:
    """How many operations on files below the folder the work takes."""
    note = folder.with_suffix(".count")
    total = [0]

    def tell() -> None:
        total[0] += 1
        os.pwrite(handle, f"{total[0]:09d}".encode(), 0)

    handle = os.open(note, os.O_RDWR | os.O_CREAT)
    try:
        child = Child(work, folder, at_file(folder, 1, tell))
        assert child.wait() == 0, child.text
        return int(os.pread(handle, 9, 0))
    finally:
        os.close(handle)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def small_files(size: int) -> Disturb:
    """No file grows beyond this size: a write that fails in its middle."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def contents(folder: Path) -> dict[str, Any]:
    """Every file below the folder, without the times that it holds."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = None
        elif path.suffix in (".json", ".jsonl"):
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            rows = sorted((_timeless(json.loads(line)) for line in lines), key=str)
            found[name] = rows
        elif path.suffix == ".skops":  # whose names and schema have addresses in memory
            members = zipfile.ZipFile(path).infolist()
            found[name] = sorted(one.CRC for one in members if one.filename.endswith(".npy"))
        elif path.name != ".lock":  # of the store, which stays
            found[name] = path.read_bytes()
    return found


_TIMES = ("time_s", "images_per_s", "device_s", "peak_mem_mib", "finished", "commit", "version")


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(one) for name, one in value.items() if name not in _TIMES}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


class Chaos:
    """The works, what comes of each if it is left alone, and the trials."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.seed, self.counts = base, seed, Counter[str]()
        write_table(base / "rows.csv", num_rows=60)
        self.works = {"network": network(base), "classifiers": classifiers(base), "grid": grid(base)}
        self.wanted: dict[str, dict[str, Any]] = {}
        self.took_s: dict[str, float] = {}
        self.num_files: dict[str, int] = {}
        for name, work in {**self.works, "other network": network(base, seed=1)}.items():
            child = Child(work, base / name)
            assert child.wait() == 0, child.text
            self.wanted[name], self.took_s[name] = contents(base / name), child.took_s
            self.num_files[name] = count_files(work, base / f"{name} counted")
            self._same(self.wanted[name], contents(base / f"{name} counted"))

    def trial(self, number: int) -> None:
        """One of the kinds of trouble, drawn by the seed and the number."""
        draw = random.Random(f"{self.seed} {number}")
        folder = self.base / "trial"
        shutil.rmtree(folder, ignore_errors=True)
        kind = draw.choices((self.killed, self.full_disk, self.two_at_once), (8, 1, 1))[0]
        kind(folder, draw)

    def killed(self, folder: Path, draw: random.Random) -> None:
        name = draw.choices(("network", "classifiers", "grid"), (6, 2, 2))[0]
        work, earlier = self.works[name], {}
        if name == "network" and draw.random() < 0.4:  # a run of other settings lies there
            shutil.copytree(self.base / "other network", folder)
            earlier = self.wanted["other network"]
        for _ in range(draw.randint(1, 4)):
            if draw.random() < 0.6:
                most = self.num_files[name] + (20 if earlier else 0)
                child = Child(work, folder, at_file(folder, draw.randint(1, most), kill))
                code = child.wait()
            else:
                child = Child(work, folder)
                time.sleep(draw.uniform(0, self.took_s[name]))
                os.kill(child.pid, signal.SIGKILL)
                code = child.wait()
            assert code in (0, -signal.SIGKILL), child.text
            self.counts[f"kills of {name}" if code else f"ends of {name} before the kill"] += 1
        self._goes_on(name, folder, earlier)

    def full_disk(self, folder: Path, draw: random.Random) -> None:
        name = draw.choice(("network", "classifiers"))
        earlier = self.wanted["other network"] if draw.random() < 0.5 else {}
        if earlier:
            shutil.copytree(self.base / "other network", folder)
        if draw.random() < 0.5:
            disturb = at_file(folder, draw.randint(1, self.num_files[name]), disk_is_full)
        else:
            disturb = small_files(draw.choice((0, 100, 1_000, 10_000)))
        child = Child(self.works[name], folder, disturb)
        code = child.wait()
        assert code in (0, REFUSED), child.text
        self.counts["full disks"] += 1
        if earlier:  # wherever it is now, all of it is there
            there = [contents(path.parent) for path in folder.rglob("spec.json")]
            part_of = any(earlier.items() <= one.items() for one in there) or (folder / ".earlier").exists()
            assert part_of, sorted(str(path) for path in folder.rglob("*"))
        self._goes_on(name, folder, earlier)

    def two_at_once(self, folder: Path, draw: random.Random) -> None:
        other = draw.choice(("network", "other network"))
        works = [self.works["network"], network(self.base, seed=int(other != "network"))]
        children = []
        for work in works:
            children.append(Child(work, folder))
            time.sleep(draw.uniform(0, 0.3 * self.took_s["network"]))
        if draw.random() < 0.5:
            os.kill(children[draw.randrange(2)].pid, signal.SIGKILL)
        codes = [child.wait() for child in children]
        for code, child in zip(codes, children, strict=True):
            assert code in (0, REFUSED, -signal.SIGKILL), child.text
            if code == REFUSED:
                assert "is in use: process" in child.text, child.text
                self.counts["refused beside another"] += 1
        self.counts["two at once"] += 1
        if 0 in codes:
            load_run(folder)  # checks that spec, model and audit are of one run
        child = Child(works[0], folder)
        assert child.wait() == 0, child.text
        found = {n: c for n, c in contents(folder).items() if not n.startswith("earlier-")}
        self._same(self.wanted["network"], found)

    def _goes_on(self, name: str, folder: Path, earlier: dict[str, Any]) -> None:
        child = Child(self.works[name], folder)
        assert child.wait() == 0, child.text
        wanted = dict(self.wanted[name])
        if earlier:
            wanted |= {"earlier-1": None} | {f"earlier-1/{n}": content for n, content in earlier.items()}
        self._same(wanted, contents(folder))
        if name == "grid":
            keys = [row["key"] for row in Store(folder / "results").rows()]
            assert len(keys) == len(set(keys)), "a row is stored twice"

    @staticmethod
    def _same(wanted: dict[str, Any], found: dict[str, Any]) -> None:
        assert found.keys() == wanted.keys(), sorted(found.keys() ^ wanted.keys())
        differ = [name for name in wanted if wanted[name] != found[name]]
        assert not differ, differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--only", type=int, help="one trial, by its number")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    base = Path(tempfile.mkdtemp(prefix="chaos-"))
    chaos, failed = Chaos(base, asked.seed), 0
    for number in range(asked.trials) if asked.only is None else [asked.only]:
        try:
            chaos.trial(number)
        except Exception as error:
            failed += 1
            kept = base / f"failed-{number}"
            with suppress(OSError):
                shutil.copytree(base / "trial", kept)
            print(
                f"trial {number} of seed {asked.seed} differs, its folder is {kept}: {error!r:.2000}",
                flush=True,
            )
        if number % 20 == 19:
            print(f"{number + 1} trials, {failed} differ: {dict(chaos.counts)}", flush=True)
    print(f"seed {asked.seed}: {asked.trials if asked.only is None else 1} trials, {failed} differ")
    for what, count in sorted(chaos.counts.items()):
        print(f"{count:5d} {what}")
    if failed:
        sys.exit(1)
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
