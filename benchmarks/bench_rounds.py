"""Trials of the rounds on CIFAR, on columns that no table reports: what might replace the setting of today.

    python benchmarks/bench_rounds.py --list
    python benchmarks/bench_rounds.py --only either,uniform-0.7 --fleet 2
    python benchmarks/bench_rounds.py --only before,all-rows-mixup+cifar100-uniform-0.6

A trial is a change of the package's rounds (`tolerant.experiment.papers.rounds`) on one column, in 20, 30 and
45 epochs of one network: another way to decide (`ways.py`), another ending ("mixup": the last round has
blended rows, too; "strong": strong augmentation in the place of blends in every round), two networks, or
three rounds of 30 ("three-short"). Decided "before" each round alone, they are the package's. "either" is of
two people's labels (random 1 and 2) a wrong one where there is one, as CIFAR-10N's worse, which is reported,
is of three people's.

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

import numpy as np
from common import TINY_ROWS, make_parser
from ways import WAYS, Rounds, Way, unchanged

from tolerant.data import load
from tolerant.experiment.engines.local import Runner
from tolerant.experiment.execute import missing
from tolerant.experiment.one_run import Outcome
from tolerant.experiment.papers.rounds.grids import RECIPE, method
from tolerant.experiment.spec import RunSpec, rows_by_key
from tolerant.experiment.store import Store
from tolerant.experiment.time_left import duration, estimate_s
from tolerant.experiment.training_data import TrainingData, training_data
from tolerant.train import Round

COLUMNS = {
    "either": ("cifar10n-random1", "human", 0.0),
    "instance-0.4": ("cifar10", "instance", 0.4),
    "random1": ("cifar10n-random1", "human", 0.0),
    "uniform-0.7": ("cifar10", "uniform", 0.7),
    "uniform-0.75": ("cifar10", "uniform", 0.75),
    "class-dependent-0.3": ("cifar10", "class-dependent", 0.3),
    "cifar100-uniform-0.6": ("cifar100", "uniform", 0.6),
}


def mixed(rounds: Rounds) -> Rounds:
    return *rounds[:-1], replace(rounds[-1], mixup=1.0)


def strong(rounds: Rounds) -> Rounds:
    return rounds[0], *(replace(each, mixup=0.0, augment="strong") for each in rounds[1:])


def three_short(rounds: Rounds) -> Rounds:
    return rounds[0], *[rounds[1]] * 3, rounds[-1]


EPOCHS = (20, 30, 45)
ENDINGS = {"": unchanged, "-mixup": mixed, "-strong": strong}
# What changes about the rounds, and the way to decide.
CHANGES: dict[str, tuple[Callable[[Rounds], Rounds], str]] = {
    **{f"{way}{ending}": (change, way) for way, (ending, change) in product(WAYS, ENDINGS.items())},
    "two-networks": (lambda rounds: [replace(each, networks=2) for each in rounds], "before"),
    **{f"{way}-three-short": (three_short, way) for way in ("within", "before", "sure-at-end", "all-rows")},
}
# In the order in which they should be run: columns, changes. All 50,000 rows, for with half of them a network
# knows too little for too long to be like one that knows all.
ORDER = (
    (
        ("either", "uniform-0.75", "cifar100-uniform-0.6", "class-dependent-0.3"),
        ("before-three-short", "sure-at-end-three-short"),
    ),
    (("uniform-0.7",), ("before-three-short", "sure-at-end-three-short", "within-three-short")),
    (("either",), ("within-three-short",)),
    (("cifar100-uniform-0.6", "class-dependent-0.3"), ("before", "within", "all-rows", "all-rows-mixup")),
    (("uniform-0.7", "either"), ("all-rows-three-short", "before", "within", "two-networks")),
    (("instance-0.4", "random1"), ("before", "all-rows-mixup")),
    (("either", "uniform-0.7"), ("sure-0.7", "sure-0.9", "all-rows", "all-rows-before")),
    (("either", "uniform-0.7"), ("sure-0.9-strong", "all-rows-before-strong")),
    (
        ("either", "uniform-0.7"),
        (
            "all-rows-mixup",
            "sure-0.7-mixup",
            "sure-0.9-mixup",
            "thresholds-in-rounds-mixup",
            "all-rows-before-mixup",
        ),
    ),
)


@dataclass(frozen=True)
class Trial:
    """A change on a column."""

    change: str
    column: str
    seed: int = 0
    tiny: bool = False

    @property
    def name(self) -> str:
        return f"{self.change}+{self.column}"

    @property
    def way(self) -> Way:
        return WAYS[CHANGES[self.change][1]]

    @property
    def spec(self) -> RunSpec:
        change, _ = CHANGES[self.change]
        dataset, noise, rate = COLUMNS[self.column]
        rounds = self.way.of(change(method(dataset, EPOCHS, networks=1)))
        recipe, options = RECIPE, {}
        if self.tiny:
            dataset, noise, rate, options = "digits", "uniform", 0.3, {"width": 2}
            recipe = replace(recipe, batch_size=16, precision="fp32")
            rounds = [_tiny(each) for each in rounds]
        return RunSpec(
            dataset=dataset,
            model="fast",
            model_args=options,
            noise=noise,
            noise_rate=rate,
            rounds=tuple(rounds),
            recipe=replace(recipe, seed=self.seed),
            protocol=f"rounds-trials {self.name}",
        )

    @property
    def seconds(self) -> float:
        """About so many of one H200."""
        return estimate_s(self.spec)

    def rows(self, spec: RunSpec) -> TrainingData:
        found = training_data(spec)
        train = found.train
        if self.column == "either" and not self.tiny:
            other = load("cifar10n-random2").given_labels
            train = train.with_given_labels(np.where(train.flipped, train.given_labels, other))
            found = replace(found, realised_noise_rate=float(train.flipped.mean()))
        return replace(found, train=train.subset(np.arange(TINY_ROWS)) if self.tiny else train)


def _tiny(this: Round) -> Round:
    relabel = None if this.relabel is None else replace(this.relabel, start_epoch=1, every=1, sure=0.0)
    return replace(this, epochs=2, relabel=relabel, augment=None)


def named(words: str | None, *, seed: int = 0, tiny: bool = False) -> list[Trial]:
    """The trials in their order; those alone whose name has all parts of one of the words."""
    trials = [
        Trial(change, column, seed, tiny)
        for columns, changes in ORDER
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
    parser.add_argument("--fleet", type=int, default=1, help="so many side by side")
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
    for _, group in groupby(trials, key=lambda each: each.way.teacher):
        together = list(group)
        by_key = {each.spec.key: each for each in together}
        runner = Runner(
            str(arguments.out),
            str(arguments.checkpoints),
            side_by_side=arguments.fleet,
            data=lambda spec, by_key=by_key: by_key[spec.key].rows(spec),
        )
        with together[0].way.decides():
            runner.run_once(missing([each.spec for each in together], store), told)


if __name__ == "__main__":
    main()
