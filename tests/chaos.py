"""Trainings that are killed, run out of disk or meet another in their folder, beside ones left alone.

`make chaos` runs it, for minutes; it is no part of `make test`. Trials do not depend on each other, and
``--jobs`` runs some side by side. One is repeated by its seed and number, ``--seed 0 --only 17``, but for
kills after a time and for two at once, which no seed can place. What must hold after each: the same
command goes on and ends in the same files, byte for byte but for times, nothing else lies in the folder,
and a run that was there before is whole.
"""

from __future__ import annotations

import argparse
import csv
import io
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from disturbed import (
    REFUSED,
    Child,
    Work,
    at_file,
    check_same,
    contents,
    count_files,
    disk_is_full,
    kill,
    small_files,
)
from train_helpers import table

from tolerant.data import Source
from tolerant.experiment import Store, changed, named_grid, part, run
from tolerant.own_data import Settings, load_run
from tolerant.own_data.train_source import train_source


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


# The works, how often each is killed, and what must be installed for it.
WORKS = {
    "network": (network, 6, "safetensors"),
    "classifiers": (classifiers, 2, "sklearn"),
    "grid": (grid, 2, "sklearn"),
}


def write_rows(path: Path, num_rows: int = 60) -> None:
    rows = table(num_rows, noise_rate=0.2)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "a", "b", "c", "d", "label"])
        for row in range(num_rows):
            cells = rows.inputs[row, :4].round(4)
            writer.writerow([f"row{row}", *cells, rows.class_names[rows.given_labels[row]]])


class Chaos:
    """The works, what comes of each if it is left alone, and the trials."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.seed, self.counts = base, seed, Counter[str]()
        write_rows(base / "rows.csv")
        self.works = {name: make(base) for name, (make, _, needed) in WORKS.items() if find_spec(needed)}
        self.wanted: dict[str, dict[str, Any]] = {}
        self.took_s: dict[str, float] = {}
        self.num_files: dict[str, int] = {}
        for name, work in {**self.works, "other network": network(base, seed=1)}.items():
            with redirect_stderr(io.StringIO()):
                work(base / f"{name} at first")  # here, so that no child has to import anything
            child = Child(work, base / name)
            assert child.wait() == 0, child.text
            self.wanted[name], self.took_s[name] = contents(base / name), child.took_s
            self.num_files[name] = count_files(work, base / f"{name} counted")
            check_same(self.wanted[name], contents(base / f"{name} counted"))

    def trial(self, number: int) -> None:
        """One of the kinds of trouble, drawn by the seed and the number."""
        draw = random.Random(f"{self.seed} {number}")
        kind = draw.choices((self.killed, self.full_disk, self.two_at_once), (8, 1, 1))[0]
        kind(self.folder(number), draw)

    def folder(self, number: int) -> Path:
        return self.base / f"trial-{number}"

    def killed(self, folder: Path, draw: random.Random) -> None:
        name = draw.choices(list(self.works), [WORKS[name][1] for name in self.works])[0]
        work, earlier = self.works[name], {}
        if name == "network" and draw.random() < 0.4:  # a run of other settings lies there
            shutil.copytree(self.base / "other network", folder)
            earlier = self.wanted["other network"]
        for _ in range(draw.randint(1, 4)):
            if draw.random() < 0.6:
                most = self.num_files[name] + (20 if earlier else 0)
                child = Child(work, folder, at_file(folder, draw.randint(1, most), kill))
            else:
                child = Child(work, folder)
                time.sleep(draw.uniform(0, self.took_s[name]))
                os.kill(child.pid, signal.SIGKILL)
            code = child.wait()
            assert code in (0, -signal.SIGKILL), child.text
            self.counts[f"kills of {name}" if code else f"ends of {name} before the kill"] += 1
        self._goes_on(name, folder, earlier)

    def full_disk(self, folder: Path, draw: random.Random) -> None:
        name = draw.choice([name for name in self.works if name != "grid"])
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
            elif code:
                self.counts["kills beside another"] += 1
        self.counts["two at once"] += 1
        if 0 in codes:
            load_run(folder)  # checks that spec, model and audit are of one run
        child = Child(works[0], folder)
        assert child.wait() == 0, child.text
        found = {n: c for n, c in contents(folder).items() if not n.startswith("earlier-")}
        check_same(self.wanted["network"], found)

    def _goes_on(self, name: str, folder: Path, earlier: dict[str, Any]) -> None:
        child = Child(self.works[name], folder)
        assert child.wait() == 0, child.text
        wanted = dict(self.wanted[name])
        if earlier:
            wanted |= {"earlier-1": None} | {f"earlier-1/{n}": content for n, content in earlier.items()}
        check_same(wanted, contents(folder))
        if name == "grid":
            keys = [row["key"] for row in Store(folder / "results").rows()]
            assert len(keys) == len(set(keys)), "a row is stored twice"


class Outcome(NamedTuple):
    number: int
    counts: Counter[str]
    differs: str


chaos: Chaos  # inherited by the forks that try
ends: float


def try_one(number: int) -> Outcome | None:
    """None if the time is over."""
    if time.monotonic() > ends:
        return None
    chaos.counts, said = Counter(), ""
    try:
        chaos.trial(number)
    except Exception as error:
        said = f"{error!r:.2000}"
    if not said:
        shutil.rmtree(chaos.folder(number))
    return Outcome(number, chaos.counts, said)


def try_all(numbers: list[int], jobs: int) -> Iterator[Outcome]:
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from filter(None, pool.imap_unordered(try_one, numbers))


def summary(seed: int, outcomes: list[Outcome]) -> str:
    total = sum((outcome.counts for outcome in outcomes), Counter[str]())
    kills = sum(count for what, count in total.items() if what.startswith("kills "))
    differ = sum(bool(outcome.differs) for outcome in outcomes)
    each = ", ".join(f"{count} {what}" for what, count in sorted(total.items()))
    return f"seed {seed}: {len(outcomes)} trials, {kills} kills, {differ} differ ({each})"


def main() -> None:
    global chaos, ends
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--only", type=int, help="one trial, by its number")
    parser.add_argument("--jobs", type=int, default=1, help="how many trials side by side")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no trial begins after these")
    asked = parser.parse_args()
    begun = time.monotonic()
    ends = begun + asked.seconds
    torch.set_num_threads(1)
    base = Path(tempfile.mkdtemp(prefix="chaos-"))
    chaos, outcomes = Chaos(base, asked.seed), []
    if missing := [name for name in WORKS if name not in chaos.works]:
        print(f"not tried, since packages are missing: {', '.join(missing)}", flush=True)
    numbers = list(range(asked.trials)) if asked.only is None else [asked.only]
    for outcome in try_all(numbers, asked.jobs):
        outcomes.append(outcome)
        if outcome.differs:
            where = f"its folder is {chaos.folder(outcome.number)}"
            print(f"trial {outcome.number} differs, {where}: {outcome.differs}", flush=True)
        if len(outcomes) % 20 == 0:
            print(f"{time.monotonic() - begun:.0f} s, {summary(asked.seed, outcomes)}", flush=True)
    print(f"{summary(asked.seed, outcomes)}; {asked.jobs} side by side, {time.monotonic() - begun:.0f} s")
    if any(outcome.differs for outcome in outcomes):
        sys.exit(1)
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
