"""`tolerant demo`: what wrong labels do to a model, and what this package does about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from tolerant.data import NoisyDataset
    from tolerant.train import TrainResult

NOISE_RATE = 0.4
EPOCHS = 60
# Okabe & Ito's colours: told apart by everyone.
COLOURS = {"CCE": "#D55E00", "MAE": "#E69F00", "L_q": "#56B4E9", "truncated L_q": "#0072B2"}


@dataclass(frozen=True)
class Trained:
    """One loss's run, and the training rows in the order of its doubt."""

    result: TrainResult
    doubted: np.ndarray
    found: float


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the wrong labels and of the training.")] = 0,
) -> None:
    """Train four losses on handwritten digits with 40 % wrong labels; needs no download."""
    from tolerant.data import load
    from tolerant.files import make_folder
    from tolerant.noise import corrupt, symmetric

    make_folder(out)  # refused now rather than after the trainings
    clean, test = load("digits", split="train"), load("digits", split="test")
    transition = symmetric(clean.num_classes, NOISE_RATE)
    noise = corrupt(clean.given_labels, transition, seed=seed, kind="symmetric", rate=NOISE_RATE)
    data = clean.with_given_labels(noise.given_labels)
    typer.echo(
        f"{len(data)} handwritten digits to train on, {noise.realised_noise_rate:.1%} of their labels "
        f"replaced by wrong ones; {len(test)} clean ones to test on.\n"
    )
    runs = _train(data, test, seed)
    _print_table(runs)
    picture = out / "demo.png"
    _draw(runs, data, picture)
    typer.echo(f"\nThe picture is in {picture}. For your own data, see the README.")


def _train(data: NoisyDataset, test: NoisyDataset, seed: int) -> dict[str, Trained]:
    from tolerant.threads import one_thread
    from tolerant.train import Fleet, Job, PruneSchedule, Recipe
    from tolerant.train.engine.device import pick_device

    # The paper's protocol at the size of the digits: a learning rate that falls twice, and pruning
    # from its first fall on.
    first, second = EPOCHS // 3, 2 * EPOCHS // 3
    recipe = Recipe(
        epochs=EPOCHS, batch_size=32, lr=0.1, milestones=(first, second), augment="none", seed=seed
    )
    jobs = [
        Job(
            name=name,
            dataset=data,
            test=test,
            model="mlp",
            loss={"CCE": "cce", "MAE": "mae"}.get(name, "lq"),
            prune=PruneSchedule(start_epoch=first, every=5, k=0.5) if name == "truncated L_q" else None,
            recipe=recipe,
        )
        for name in COLOURS
    ]
    device = pick_device("auto")
    with one_thread(device.type == "cpu"):
        results = Fleet(side_by_side=1, device=device, progress="bar").run(jobs)
    return {job.name: _ranked(result, data) for job, result in zip(jobs, results, strict=True)}


def _ranked(result: TrainResult | Exception, data: NoisyDataset) -> Trained:
    import numpy as np

    from tolerant.train import predict_log_proba

    if isinstance(result, Exception):
        raise result
    log_p = predict_log_proba(result.model, data, result.preprocess)
    doubted = np.argsort(log_p[np.arange(len(data)), data.given_labels], kind="stable")
    most = doubted[: int(data.flipped.sum())]
    return Trained(result, doubted, float(data.flipped[most].mean()))


def _print_table(runs: dict[str, Trained]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Clean-test accuracy after training on wrong labels")
    table.add_column("loss")
    for column in ("at the chosen epoch", "at the last epoch", "wrong labels found"):
        table.add_column(column, justify="right")
    for name, run in runs.items():
        result = run.result
        table.add_row(
            name, f"{result.test_accuracy:.1%}", f"{result.last_test_accuracy:.1%}", f"{run.found:.1%}"
        )
    Console().print(table)
    typer.echo(
        "Chosen epoch: the one that best predicts held-out labels, of which 40 % are wrong too; the test\n"
        "set plays no part. Found: if n labels are wrong, the share of wrong ones among the n most doubted."
    )


def _draw(runs: dict[str, Trained], data: NoisyDataset, path: Path) -> None:
    from matplotlib.figure import Figure

    from tolerant.files import replacing

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1, 1.15])
    curves, grid = halves
    _draw_curves(curves.subplots(), runs)
    best = runs["truncated L_q"]
    _draw_suspects(grid, best.doubted[:40], best.result, data)
    with replacing(path) as file:
        figure.savefig(file, dpi=150, format="png")


def _draw_curves(axes: Any, runs: dict[str, Trained]) -> None:
    for name, run in runs.items():
        epochs = [record["epoch"] + 1 for record in run.result.history]
        accuracy = [100 * record["test_accuracy"] for record in run.result.history]
        label = name.replace("L_q", "$L_q$")
        axes.plot(epochs, accuracy, color=COLOURS[name], lw=2, label=label)
        chosen = run.result.epoch
        axes.plot(epochs[chosen], accuracy[chosen], "o", color=COLOURS[name], ms=7)
    axes.set(
        xlabel="epoch",
        ylabel="clean-test accuracy (%)",
        title="Digits, 40 % of the labels wrong",
        ylim=(40, 100),
    )
    axes.legend(loc="lower right", title="dot: chosen without clean labels", frameon=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_suspects(figure: Any, index: np.ndarray, result: TrainResult, data: NoisyDataset) -> None:
    import numpy as np

    from tolerant.train import predict_log_proba

    figure.suptitle("The 40 most doubted labels: given → suggested")
    suspects = data.subset(index)
    suggested = predict_log_proba(result.model, suspects, result.preprocess).argmax(1)
    for axes, image, given, better in zip(
        figure.subplots(4, 10).flat,
        np.asarray(suspects.inputs),
        suspects.given_labels,
        suggested,
        strict=True,
    ):
        axes.imshow(255 - image[..., 0], cmap="gray", vmin=0, vmax=255)
        axes.set_title(f"{data.class_names[given]} → {data.class_names[better]}", fontsize=9, pad=2)
        axes.axis("off")
