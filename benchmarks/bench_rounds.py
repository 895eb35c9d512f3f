"""Trials of the rounds on CIFAR, on columns that no table reports: what might replace the setting of today.

    python benchmarks/bench_rounds.py --list
    python benchmarks/bench_rounds.py --only short --fleet 2
    python benchmarks/bench_rounds.py --only half+uniform-0.7,sure

A trial is a change of the package's rounds (`tolerant.experiment.papers.rounds`), with a way to decide of
`ways.py` or other values of the recipe, on one column: "full", on "half" of its rows, or "short", on all of
them in 20, 30 and 45 epochs of one network. "either" is of two people's labels (random 1 and 2) a wrong one
where there is one, as CIFAR-10N's worse, which is reported, is of three people's.

Trials run in the order of the list, the most promising first. `--only` takes words between commas: a name
must have all parts, joined by +, of one of them. Rows are stored as by `tolerant reproduce`, with what each
epoch measured (test accuracy, share of right labels) in `history/`; what is stored is not run again, and a
run that was killed goes on from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
from common import TINY_ROWS, make_parser
from ways import WAYS, Rounds, unchanged

from tolerant.data import load
from tolerant.experiment.engines.local import Runner
from tolerant.experiment.execute import missing
from tolerant.experiment.one_run import Outcome
from tolerant.experiment.papers.rounds.grids import RECIPE, method
from tolerant.experiment.spec import RunSpec, rows_by_key
from tolerant.experiment.store import Store
from tolerant.experiment.time_left import duration, estimate_s
from tolerant.experiment.training_data import TrainingData, training_data
from tolerant.train import Relabel, Round

COLUMNS = {
    "either": ("cifar10n-random1", "human", 0.0),
    "instance-0.4": ("cifar10", "instance", 0.4),
    "random1": ("cifar10n-random1", "human", 0.0),
    "uniform-0.7": ("cifar10", "uniform", 0.7),
    "class-dependent-0.3": ("cifar10", "class-dependent", 0.3),
    "cifar100-uniform-0.6": ("cifar100", "uniform", 0.6),
}


def one_short(rounds: Rounds) -> Rounds:
    """One short round instead of three, and a last one that is so much longer."""
    epochs = sum(each.epochs for each in rounds[2:])
    relabel = Relabel(start_epoch=epochs // 2, every=epochs // 15)
    return rounds[0], rounds[1], replace(rounds[-1], epochs=epochs, relabel=relabel)


def strong(rounds: Rounds) -> Rounds:
    """Strong augmentation in the place of mixup in each round after the first."""
    return rounds[0], *(replace(each, mixup=0.0, augment="strong") for each in rounds[1:])


def longer(epochs: int, networks: int) -> Callable[[Rounds], Rounds]:
    """After L_q nothing but the last round, so long."""
    return lambda rounds: (rounds[0], replace(rounds[-1], epochs=epochs, networks=networks))


def last(**values: Any) -> Callable[[Rounds], Rounds]:
    """Other values of the last round."""
    return lambda rounds: (*rounds[:-1], replace(rounds[-1], **values))


# What changes about the recipe.
VALUES: dict[str, dict[str, Any]] = {
    # The loss is a mean over both networks, so that each has half of its gradient: what a sum would do, in
    # the first round, of one network, too.
    "whole-rate": {"lr": 2 * RECIPE.lr, "weight_decay": RECIPE.weight_decay / 2},
}
# What changes about the rounds, and the way to decide.
CHANGES: dict[str, tuple[Callable[[Rounds], Rounds], str]] = {
    "ours": (unchanged, "ours"),
    "before": (unchanged, "before"),
    "surest-before": (unchanged, "surest-before"),
    **{way: (unchanged, way) for way in ("sure", "surer", "doubts")},
    "one-short": (one_short, "ours"),
    "one-short-before": (one_short, "before"),
    "one-short-1x": (lambda rounds: tuple(replace(each, networks=1) for each in one_short(rounds)), "ours"),
    "long-2x150": (longer(150, 2), "one-long"),
    "hard": (unchanged, "hard"),
    "last-mixup-0": (last(mixup=0.0), "ours"),
    "before-strong": (strong, "before"),
    "surer-strong": (strong, "surer"),
    "surer-last-mixup-0": (last(mixup=0.0), "surer"),
    "sure-last-mixup-0": (last(mixup=0.0), "sure"),
    "before-last-mixup-0": (last(mixup=0.0), "before"),
    **dict.fromkeys(VALUES, (unchanged, "ours")),
}
SHORT = (20, 30, 45)
# In the order in which they should be run: columns, how much of them, changes. What decides comes first, on
# all rows, for with half of them a network knows too little for too long; then what a training gains at all.
ORDER = (
    (("either", "uniform-0.7"), "short", ("ours", "sure", "surer", "doubts", "before")),
    (
        ("either", "uniform-0.7"),
        "short",
        (
            "last-mixup-0",
            "before-last-mixup-0",
            "surer-last-mixup-0",
            "sure-last-mixup-0",
            "before-strong",
            "surer-strong",
        ),
    ),
    (("random1", "uniform-0.7"), "half", ("ours", "one-short", "before")),
    (("random1",), "full", ("ours",)),
    (("instance-0.4",), "half", ("ours", "one-short", "before", "one-short-before")),
    (("class-dependent-0.3", "cifar100-uniform-0.6"), "half", ("ours", "one-short", "before")),
    (("random1", "uniform-0.7"), "half", ("whole-rate", "one-short-before")),
    (("random1", "uniform-0.7"), "half", ("one-short-1x", "surest-before", "long-2x150", "sure", "hard")),
    (("random1",), "full", ("one-short", "before")),
)


@dataclass(frozen=True)
class Trial:
    """A change on a column, "full", "half" or "short"."""

    change: str
    column: str
    size: str
    seed: int = 0
    tiny: bool = False

    @property
    def name(self) -> str:
        return f"{self.change}+{self.column}+{self.size}"

    @property
    def way(self) -> str:
        return CHANGES[self.change][1]

    @property
    def spec(self) -> RunSpec:
        change, way = CHANGES[self.change]
        dataset, noise, rate = COLUMNS[self.column]
        rounds = method(dataset, SHORT, networks=1) if self.size == "short" else method(dataset)
        rounds, recipe = WAYS[way].change(change(rounds)), replace(RECIPE, **VALUES.get(self.change, {}))
        if self.tiny:
            dataset, noise, rate = "digits", "uniform", 0.3
            recipe = replace(recipe, batch_size=16, precision="fp32")
            rounds = [_tiny(each) for each in rounds]
        return RunSpec(
            dataset=dataset,
            model="fast",
            model_args={"width": 2} if self.tiny else {},
            noise=noise,
            noise_rate=rate,
            rounds=tuple(rounds),
            recipe=replace(recipe, seed=self.seed),
            protocol=f"rounds-trials {self.name}",
        )

    @property
    def seconds(self) -> float:
        """About so many of one H200."""
        return estimate_s(self.spec) / (2 if self.size == "half" else 1)

    def rows(self, spec: RunSpec) -> TrainingData:
        found = training_data(spec)
        train = found.train
        if self.column == "either" and not self.tiny:
            other = load("cifar10n-random2").given_labels
            train = train.with_given_labels(np.where(train.flipped, train.given_labels, other))
            found = replace(found, realised_noise_rate=float(train.flipped.mean()))
        num_rows = TINY_ROWS if self.tiny else len(train) // (2 if self.size == "half" else 1)
        return replace(found, train=train.subset(np.arange(num_rows)))


def _tiny(this: Round) -> Round:
    relabel = None if this.relabel is None else replace(this.relabel, start_epoch=1, every=1, sure=0.0)
    return replace(this, epochs=2, relabel=relabel, augment=None)


def named(words: str | None, *, seed: int = 0, tiny: bool = False) -> list[Trial]:
    """The trials in their order; those alone whose name has all parts of one of the words."""
    trials = [
        Trial(change, column, size, seed, tiny)
        for columns, size, changes in ORDER
        for change, column in product(changes, columns)
    ]
    wanted = [set(word.split("+")) for word in words.split(",")] if words else [set()]
    return [each for each in trials if any(parts <= set(each.name.split("+")) for parts in wanted)]


def told(outcome: Outcome) -> None:
    print(f"{outcome.spec.protocol}: {outcome.status} {outcome.text}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out=None)
    parser.add_argument("--out", type=Path, default=Path("results/bench/rounds"), help="folder of the rows")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs"), help="folder of unfinished runs")
    parser.add_argument("--only", help="words between commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fleet", type=int, default=1, help="of one change, so many columns side by side")
    parser.add_argument("--list", action="store_true", help="only print names, seconds, and what is stored")
    arguments = parser.parse_args(words)
    trials = named(arguments.only, seed=arguments.seed, tiny=arguments.tiny)
    if not trials:
        parser.error(f"--only must be parts of names as --list prints them; got {arguments.only!r}")
    store = Store(arguments.out)
    if arguments.list:
        rows = rows_by_key(store.rows())
        for each in trials:
            row = rows.get(each.spec.key)
            result = "" if row is None else f"{100 * row['result']['last_epoch']['test_accuracy']:.2f}"
            print(f"{each.name:45} {duration(each.seconds):>8} {result}")
        print(f"about {duration(sum(each.seconds for each in trials if each.spec.key not in rows))} to do")
        return
    for (way, _), group in groupby(trials, key=lambda each: (each.way, each.size)):
        together = list(group)
        by_key = {each.spec.key: each for each in together}
        runner = Runner(
            str(arguments.out),
            str(arguments.checkpoints),
            side_by_side=arguments.fleet,
            data=lambda spec, by_key=by_key: by_key[spec.key].rows(spec),
        )
        with WAYS[way].decides():
            runner.run_once(missing([each.spec for each in together], store), told)


if __name__ == "__main__":
    main()
