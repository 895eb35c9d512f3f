"""What is known to make short trainings on CIFAR-10 better, whatever the labels: each trick beside none.

    python benchmarks/bench_tricks.py --out results/bench/tricks.jsonl
    python benchmarks/bench_tricks.py --gpu --seeds 3 --out results/bench/tricks_h200.jsonl
    python benchmarks/bench_tricks.py --summary --out results/bench/tricks.jsonl

On a processor 5,000 training pictures with their true labels (cross entropy), and with uniform noise of 0.4
(L_q); 10 epochs of the network "fast" at an eighth of its width; accuracy on 5,000 other training pictures.
With `--gpu` 40,000 and 10,000 pictures with true labels and 40 epochs of the whole network, as in the last of
the rounds: mixup and strong augmentation; there with other values of the recipe, too. "one", "mirror" and
"shifts" are how the same weights look at a picture: as it is, in a mirror too, and by a pixel aside as well.
A trick meets the rows, wrong labels and order of its seed that none does. A stored row is not run again;
`--summary` prints gains with their standard errors over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from bench_pictures import pictures
from common import Row, add_seeds, append, make_parser, pick_gpu, seeds_of, stored

from tolerant.data import NoisyDataset
from tolerant.experiment.papers.rounds.grids import RECIPE
from tolerant.experiment.row import commit, hardware
from tolerant.noise import corrupt, symmetric
from tolerant.threads import one_thread
from tolerant.train import Fleet, Job, Recipe, TrainResult
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.networks.network_committee import NetworkCommittee

# What a trick changes about the recipe, and the options of the network.
TRICKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "alternate": ({"alternate": True}, {}),
    "dirac": ({}, {"init": "dirac"}),
    "biases": ({}, {"bias_lr": 16.0}),
    "all": ({"alternate": True}, {"init": "dirac", "bias_lr": 16.0}),
}
# Other values of the recipe of the rounds, for the whole network.
VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lr 0.4": ({"lr": 0.4}, {}),
    "lr 0.8": ({"lr": 0.8}, {}),
    "average 0.999": ({"average": 0.999}, {}),
    "no mixup": ({"mixup": 0.0}, {}),
    "mixup 0.2": ({"mixup": 0.2}, {}),
    "no mixup + all": ({"mixup": 0.0, **TRICKS["all"][0]}, TRICKS["all"][1]),
    "no mixup + lr 0.4": ({"mixup": 0.0, "lr": 0.4}, {}),
    "no mixup + flip-crop": ({"mixup": 0.0, "augment": "flip-crop"}, {}),
    "flip-crop": ({"augment": "flip-crop"}, {}),
}
VIEWS: dict[str, dict[str, bool]] = {
    "one": {"mirror": False, "shifts": False},
    "mirror": {"mirror": True, "shifts": False},
    "shifts": {"mirror": True, "shifts": True},
}


@dataclass(frozen=True)
class Size:
    """How much is trained: rows (and others to measure by), width of the network, and the rest."""

    rows: int
    others: int
    width: int
    recipe: Recipe
    labels: Sequence[tuple[str, float, str]]
    """What they are called, uniform noise, the loss."""


RIGHT = ("right", 0.0, "cce")
SMALL = Size(
    5000,
    5000,
    16,
    replace(RECIPE, epochs=10, batch_size=128, lr=0.05, average=0.98, precision="fp32"),
    (RIGHT, ("uniform 0.4", 0.4, "lq")),
)
WHOLE = Size(40_000, 10_000, 128, replace(RECIPE, epochs=40, mixup=1.0, augment="strong"), (RIGHT,))
TINY = replace(SMALL, rows=60, others=60, width=2, recipe=replace(SMALL.recipe, epochs=2, batch_size=16))


def splits(size: Size, rate: float, seed: int) -> tuple[NoisyDataset, NoisyDataset]:
    """Rows to train on, with wrong labels, and others to measure by."""
    rows = pictures("train", tiny=size is TINY)
    index = np.random.default_rng(seed).permutation(len(rows))[: size.rows + size.others]
    seen, others = rows.subset(index[: size.rows]), rows.subset(index[size.rows :])
    drawn = corrupt(seen.true_labels, symmetric(10, rate), seed=seed, kind="symmetric", rate=rate)
    return seen.with_given_labels(drawn.given_labels), others


def make_job(size: Size, rows: NoisyDataset, loss: str, trick: str, seed: int) -> Job:
    changes, options = (TRICKS | VALUES)[trick]
    values = {"mirror": False, "test_every": size.recipe.epochs, "seed": seed, **changes}
    recipe = replace(size.recipe, **values)
    model_args = {"width": size.width, **options}
    return Job(dataset=rows, model="fast", model_args=model_args, loss=loss, recipe=recipe)


def by_views(result: TrainResult, others: NoisyDataset, device: torch.device) -> dict[str, float]:
    """The accuracy of the same weights by each way of looking at a picture."""
    found, model = {}, result.model
    true = others.given_labels if others.true_labels is None else others.true_labels
    committee = model if isinstance(model, NetworkCommittee) else NetworkCommittee([model])
    before = committee.mirror, committee.shifts
    for name, views in VIEWS.items():
        committee.mirror, committee.shifts = views["mirror"], views["shifts"]
        log_probs = predict_log_proba(committee, others, result.preprocess, device=device)
        found[name] = round(float((log_probs.argmax(1) == true).mean()), 4)
    committee.mirror, committee.shifts = before
    return found


def summarise(rows: Sequence[Row]) -> None:
    """Gains in points, mean ± standard error over seeds: of views with any trick, of tricks by mirror."""
    found = {(row["labels"], row["trick"], row["seed"]): row for row in rows}

    def tell(what: str, gains: Sequence[float]) -> None:
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
        print(f"{what:45} {100 * mean(gains):+5.2f} ± {100 * error:.2f} (n = {len(gains)})")

    for labels in dict.fromkeys(row["labels"] for row in rows):
        here = [row for row in rows if row["labels"] == labels]
        for view, before in (("mirror", "one"), ("shifts", "mirror")):
            by_seed: dict[int, list[float]] = {}
            for row in here:
                by_seed.setdefault(row["seed"], []).append(row[view] - row[before])
            tell(f"{labels}, {view} beside {before}", [mean(gains) for gains in by_seed.values()])
        plain = {row["seed"]: row for row in here if row["trick"] == "none"}
        print(f"{labels}, none: {100 * mean(row['mirror'] for row in plain.values()):.2f} by mirror")
        for trick in dict.fromkeys(row["trick"] for row in here if row["trick"] != "none"):
            pairs = [
                (found[labels, trick, seed], plain[seed]) for seed in plain if (labels, trick, seed) in found
            ]
            tell(f"{labels}, {trick}", [row["mirror"] - without["mirror"] for row, without in pairs])


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add_seeds(parser, 5)
    parser.add_argument("--gpu", action="store_true", help="the whole network on most of the rows")
    parser.add_argument("--summary", action="store_true", help="only print what the rows in --out say")
    parser.add_argument("--only", help="these tricks alone, by commas")
    parser.add_argument("--fleet", type=int, default=1, help="so many runs side by side")
    arguments = parser.parse_args(words)
    if arguments.summary:
        summarise(stored(arguments.out))
        return
    size = TINY if arguments.tiny else WHOLE if arguments.gpu else SMALL
    device = pick_gpu(parser, arguments.tiny) if arguments.gpu else torch.device("cpu")
    tricks = TRICKS | VALUES if arguments.gpu else TRICKS
    only = [*tricks] if arguments.only is None else arguments.only.split(",")
    fleet = Fleet(side_by_side=arguments.fleet, device=device, progress="quiet")
    with one_thread(device.type == "cpu"):
        measure(size, seeds_of(arguments), only, arguments.out, fleet)


def measure(size: Size, seeds: Sequence[int], tricks: Sequence[str], out: Path | None, fleet: Fleet) -> None:
    done = {(row["labels"], row["trick"], row["seed"]) for row in stored(out)}
    for seed, (labels, rate, loss) in product(seeds, size.labels):
        rows, others = splits(size, rate, seed)
        wanted = [each for each in tricks if (labels, each, seed) not in done]
        jobs = [make_job(size, rows, loss, each, seed) for each in wanted]
        for trick, result in zip(wanted, fleet.run(jobs), strict=True):
            if isinstance(result, Exception):
                raise result
            row = {"labels": labels, "trick": trick, "seed": seed, "rows": len(rows)}
            row |= {"epochs": size.recipe.epochs, **by_views(result, others, fleet.device)}
            row |= {"training_s": round(result.time_s / fleet.side_by_side, 1)}
            row |= {"hardware": hardware(fleet.device), "commit": commit()}
            append(out, row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
