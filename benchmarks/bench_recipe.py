"""Other values of the recipe of the rounds on CIFAR-10, where no label is wrong: each change beside none.

    python benchmarks/bench_recipe.py --out results/bench/recipe_h200.jsonl
    python benchmarks/bench_recipe.py --only "no mixup,flip-crop" --seeds 3 --fleet 2 --out rows.jsonl
    python benchmarks/bench_recipe.py --summary --out results/bench/recipe_h200.jsonl

40,000 training pictures with their true labels and cross entropy, 40 epochs of the network "fast" as in the
last of the rounds: mixup and strong augmentation; accuracy on the 10,000 other training pictures, "one" by
each picture as it is, "mirror" by its mirror image too, with the same weights. A change meets the rows and
their order that none does. A stored row is not run again; `--summary` prints gains with their standard errors
over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from bench_pictures import pictures
from common import TINY_ROWS, Row, add_seeds, append, make_parser, pick_gpu, seeds_of, stored

from tolerant.data import NoisyDataset
from tolerant.experiment.papers.rounds.grids import RECIPE
from tolerant.experiment.row import commit, hardware
from tolerant.train import Fleet, Job, TrainResult, predict_log_proba
from tolerant.train.networks.network_committee import NetworkCommittee

# Mirror images are looked at when it is measured, by the same weights.
LAST = replace(RECIPE, epochs=40, mixup=1.0, augment="strong", mirror=False)
CHANGES: dict[str, dict[str, Any]] = {
    "none": {},
    "lr 0.4": {"lr": 0.4},
    "lr 0.8": {"lr": 0.8},
    "no mixup": {"mixup": 0.0},
    "mixup 0.2": {"mixup": 0.2},
    "flip-crop": {"augment": "flip-crop"},
    "no mixup + lr 0.4": {"mixup": 0.0, "lr": 0.4},
    "no mixup + flip-crop": {"mixup": 0.0, "augment": "flip-crop"},
}


def split(seed: int, *, tiny: bool) -> tuple[NoisyDataset, NoisyDataset]:
    """Rows to train on, and others to measure by."""
    rows, num_seen = pictures("train", tiny=tiny), TINY_ROWS // 2 if tiny else 40_000
    index = np.random.default_rng(seed).permutation(len(rows))
    return rows.subset(index[:num_seen]), rows.subset(index[num_seen:])


def make_job(rows: NoisyDataset, change: str, seed: int, *, tiny: bool) -> Job:
    recipe, options = replace(LAST, seed=seed, **CHANGES[change]), {}
    if tiny:
        recipe, options = replace(recipe, epochs=2, batch_size=16, precision="fp32"), {"width": 2}
    return Job(dataset=rows, model="fast", model_args=options, loss="cce", recipe=recipe)


def accuracy(result: TrainResult, others: NoisyDataset, device: torch.device, *, mirror: bool) -> float:
    committee = NetworkCommittee([result.model], mirror=mirror)
    log_probs = predict_log_proba(committee, others, result.preprocess, device=device)
    return round(float((log_probs.argmax(1) == others.true_labels).mean()), 4)


def measure(seed: int, changes: Sequence[str], out: Path | None, fleet: Fleet, *, tiny: bool) -> None:
    rows, others = split(seed, tiny=tiny)
    jobs = [make_job(rows, each, seed, tiny=tiny) for each in changes]
    for change, job, result in zip(changes, jobs, fleet.run(jobs), strict=True):
        if isinstance(result, Exception):
            raise result
        row = {
            "change": change,
            "seed": seed,
            "rows": len(rows),
            "epochs": job.recipe.epochs,
            "one": accuracy(result, others, fleet.device, mirror=False),
            "mirror": accuracy(result, others, fleet.device, mirror=True),
            "training_s": round(result.time_s / fleet.side_by_side, 1),
            "hardware": hardware(fleet.device),
            "commit": commit(),
        }
        append(out, row)
        print(row, flush=True)


def summarise(rows: Sequence[Row]) -> None:
    """Gains in points, mean ± standard error over seeds: of mirror images with any change, of changes by
    mirror images."""
    by_seed: dict[int, dict[str, Row]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {})[row["change"]] = row

    def tell(what: str, gains: Sequence[float]) -> None:
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
        print(f"{what:25} {100 * mean(gains):+5.2f} ± {100 * error:.2f} (n = {len(gains)})")

    tell("mirror beside one", [mean(r["mirror"] - r["one"] for r in of.values()) for of in by_seed.values()])
    plain = {seed: of["none"]["mirror"] for seed, of in by_seed.items() if "none" in of}
    print(f"none: {100 * mean(plain.values()):.2f} by mirror")
    for change in dict.fromkeys(row["change"] for row in rows if row["change"] != "none"):
        both = [seed for seed in plain if change in by_seed[seed]]
        tell(change, [by_seed[seed][change]["mirror"] - plain[seed] for seed in both])


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add_seeds(parser, 1)
    parser.add_argument("--summary", action="store_true", help="only print what the rows in --out say")
    parser.add_argument("--only", default=",".join(CHANGES), help="these changes alone, by commas")
    parser.add_argument("--fleet", type=int, default=1, help="so many runs side by side")
    arguments = parser.parse_args(words)
    if arguments.summary:
        summarise(stored(arguments.out))
        return
    device = pick_gpu(parser, arguments.tiny)
    fleet = Fleet(side_by_side=arguments.fleet, device=device, progress="quiet")
    done = {(row["change"], row["seed"]) for row in stored(arguments.out)}
    for seed in seeds_of(arguments):
        wanted = [each for each in arguments.only.split(",") if (each, seed) not in done]
        measure(seed, wanted, arguments.out, fleet, tiny=arguments.tiny)


if __name__ == "__main__":
    main()
