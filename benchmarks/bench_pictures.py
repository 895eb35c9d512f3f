"""Small colour pictures on a processor: the default beside cross entropy and the paper's pruning.

    python benchmarks/bench_pictures.py --first-seed 20 --seeds 3 --out results/bench/pictures_cpu.jsonl
    python benchmarks/bench_pictures.py --settings "q 0.3,q 0.5,q 0.7,cce" --out rows.jsonl

CIFAR-10, 2,000 rows, "small-cnn", 40 % noise, class-dependent and uniform; no folds, and 30 epochs instead
of the 57 that are chosen for so many rows, to save half of the time. "paper's pruning" is the default
without the rule that a round which would prune most of the rows is left out.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from common import TINY_FIT, TINY_ROWS, Row, add_seeds, append, make_parser, seeds_of

from tolerant.data import CARDS, NoisyDataset, load
from tolerant.experiment.row import hardware, versions
from tolerant.noise import corrupt, make_transition
from tolerant.own_data import Settings, make_job
from tolerant.train import Guards, Job, Run, predict_log_proba

EPOCHS = 30
CPU = torch.device("cpu")


def pictures(split: str, *, tiny: bool) -> NoisyDataset:
    if not tiny:
        return load("cifar10", split=split)
    rng = np.random.default_rng(len(split))
    images, labels = rng.integers(0, 256, (TINY_ROWS, 12, 12, 3), np.uint8), rng.integers(0, 10, TINY_ROWS)
    return NoisyDataset(images, labels, labels, CARDS["cifar10"].class_names, None, "image")


def noisy_pictures(kind: str, seed: int, *, tiny: bool) -> NoisyDataset:
    rows = pictures("train", tiny=tiny)
    rows = rows.subset(np.random.default_rng(seed).permutation(len(rows))[:2000])
    transition = make_transition(kind, 0.4, rows.class_names)
    return rows.with_given_labels(
        corrupt(rows.true_labels, transition, seed=seed, kind=kind, rate=0.4).given_labels
    )


def make_jobs(kind: str, seed: int, *, tiny: bool) -> dict[str, Job]:
    rows = noisy_pictures(kind, seed, tiny=tiny)
    epochs = TINY_FIT["epochs"] if tiny else EPOCHS
    settings = Settings(model="small-cnn", epochs=epochs, seed=seed)
    default = make_job(rows, settings, CPU, k=0.5)
    return {
        "truncated-lq default": default,
        "truncated-lq paper's pruning": replace(default, guards=Guards(at_most=1.0)),
        "cce": make_job(rows, replace(settings, loss="cce"), CPU, k=0.5),
    } | {f"q {q}": make_job(rows, replace(settings, q=q), CPU, k=0.5) for q in (0.3, 0.5, 0.7)}


def measure(kind: str, seed: int, settings: str, job: Job, test: NoisyDataset) -> Row:
    start = time.process_time()
    run = Run(job, CPU)
    for _ in run.go():
        pass
    result = run.result
    assert result is not None
    seconds = time.process_time() - start
    model = result.model

    def accuracy() -> float:
        log_probs = predict_log_proba(model, test, result.preprocess)
        return round(float((log_probs.argmax(axis=1) == test.true_labels).mean()), 4)

    test_accuracy = accuracy()
    model.load_state_dict(run.weights.tensors())  # in fp32, where the model in training may compute in bf16
    return {
        "data": "cifar10",
        "rows": len(job.dataset),
        "noise": f"{kind} 0.4",
        "seed": seed,
        "folds": 0,
        "test_rows": len(test),
        "model": "small-cnn",
        "settings": settings,
        "test_accuracy": test_accuracy,
        "last_test_accuracy": accuracy(),
        "epoch": result.epoch,
        "epochs": job.recipe.epochs,
        "kept": round(float(result.kept.mean()), 3),
        "processor_s": round(seconds, 1),
        "hardware": hardware(CPU),
        "versions": versions(),
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add_seeds(parser, 3)
    parser.add_argument("--noise", default="class-map,uniform")
    parser.add_argument("--settings", default="truncated-lq default,truncated-lq paper's pruning,cce")
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore")
    test = pictures("test", tiny=arguments.tiny)
    test = test.subset(np.arange(min(len(test), 2000)))
    for seed in seeds_of(arguments):
        for kind in arguments.noise.split(","):
            jobs = make_jobs(kind, seed, tiny=arguments.tiny)
            for settings in arguments.settings.split(","):
                row = measure(kind, seed, settings, jobs[settings], test)
                append(arguments.out, row)
                print(row, flush=True)


if __name__ == "__main__":
    main()
