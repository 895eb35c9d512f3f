"""`tolerant reproduce`: the paper's experiments, as far as they are not stored yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tolerant.cli.options import Address, Device, Engine, refuse
from tolerant.cli.terminal import echo
from tolerant.experiment.papers import computed, experiments

NAMES = (*experiments(), *computed())

if TYPE_CHECKING:
    from tolerant.experiment import RunSpec, Store
    from tolerant.experiment.papers import Paper

    Name = str
else:
    Name = StrEnum("Name", [(name, name) for name in NAMES])


def _only(what: str) -> Any:
    return typer.Option(help=f"Only these {what}, separated by commas.")


def reproduce(
    context: typer.Context,
    experiment: Annotated[Name, typer.Argument(metavar="EXPERIMENT", help=f"One of {', '.join(NAMES)}.")],
    dataset: Annotated[str | None, _only("data sets")] = None,
    noise: Annotated[str | None, _only("kinds of noise")] = None,
    rate: Annotated[str | None, _only("noise rates")] = None,
    loss: Annotated[str | None, _only("losses")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds; they are 0, 1, ...")] = 1,
    fleet: Annotated[int, typer.Option(min=1, help="Number of runs side by side on one GPU.")] = 1,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of processes, one run in each: for the CPU.")
    ] = 0,
    engine: Annotated[
        Engine, typer.Option(help="local: this machine; ray: a Ray cluster, one task per run.")
    ] = Engine.local,
    address: Address = None,
    cpus: Annotated[float, typer.Option(min=0, help="With ray: CPUs per run.")] = 1.0,
    gpus: Annotated[
        float | None,
        typer.Option(min=0, help="With ray: GPUs per run, such as 0.25; default: 1 if there are any."),
    ] = None,
    device: Device = "auto",
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Train for this many epochs instead, for a first look; the rows record it."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE of the recipe, noise, q, k, anchor_percentile or model.OPTION; the rows record "
            "it. Repeat for more."
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder with the stored rows.")] = Path("results"),
    checkpoints: Annotated[
        Path, typer.Option(help="Folder for unfinished runs; empty when all are stored.")
    ] = Path("runs"),
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only print the runs, what they will cost, and which are stored."),
    ] = False,
) -> None:
    """Run the paper's experiments that are not stored yet; if stopped, the same command resumes."""
    if experiment in computed():
        others = [name for name in context.params if name != "experiment"]
        why = f"{experiment} has no options: its numbers are computed, nothing is run or stored"
        refuse(context, others, why)
        paper, module = computed()[experiment]
        typer.echo(paper.compute(module))
        return
    if engine is Engine.local:
        why = "is for a Ray cluster; add --engine ray, or use --fleet or --workers on this machine"
        refuse(context, ("address", "cpus", "gpus"), why)
    else:
        refuse(context, ("fleet", "workers"), "is for the local engine; with ray use --cpus and --gpus")
    if fleet > 1 and workers:
        why = "puts one run into each process, which leaves --fleet nothing to do; give one of them"
        raise typer.BadParameter(why, param_hint="--workers")
    from tolerant.experiment import Store

    try:
        wanted: dict[str, Any] = {"dataset": _split(dataset), "noise": _split(noise)}
        wanted |= {"noise_rate": _rates(rate), "method": _split(loss)}
        changes = _changes([*(change or ()), *([] if epochs is None else [f"epochs={epochs}"])])
        specs = _specs(str(experiment), range(seeds), wanted, changes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    store = Store(results)
    for where in store.torn():
        typer.echo(
            f"{results}/{where} does not hold a complete row and is left aside; its run is repeated",
            err=True,
        )
    if dry_run:
        _plan(specs, store, experiments()[experiment][0])
        return
    cluster = None
    if engine is Engine.ray:
        from tolerant.experiment import Cluster

        cluster = Cluster(address, cpus, gpus)
    how = {"checkpoints": checkpoints, "device": device, "fleet": fleet, "workers": workers}
    if _run(specs, store, cluster=cluster, **how):
        raise typer.Exit(1)


def _specs(name: str, seeds: Sequence[int], wanted: dict[str, Any], changes: dict[str, Any]) -> list[RunSpec]:
    from tolerant.experiment import changed, named_grid, part
    from tolerant.experiment.training_data import check_trainable

    specs = part(named_grid(name, seeds), **wanted)
    # A table has methods with and without q and k; if none has it, nothing would change but the name.
    if "q" in changes and not any("q" in dict(spec.loss_args) for spec in specs):
        raise ValueError("--change q=... is for L_q, which none of these runs uses. Leave it out.")
    if "k" in changes and all(spec.prune is None for spec in specs):
        raise ValueError("--change k=... is for pruning, and none of these runs prunes. Leave it out.")
    if "anchor_percentile" in changes and all(spec.transition != "estimated" for spec in specs):
        raise ValueError("--change anchor_percentile=... is for forward-estimated alone. Leave it out.")
    specs = [changed(spec, changes) for spec in specs]
    check_trainable(specs)
    return specs


def _run(specs: Sequence[RunSpec], store: Store, **how: Any) -> int:
    """How many of the runs failed; ``how`` is handed on to `run`."""
    from tolerant.experiment import missing, run
    from tolerant.experiment.time_left import GridProgress
    from tolerant.experiment.training_data import load_all

    todo = missing(specs, store)
    typer.echo(f"{len(specs)} runs requested, {len(todo)} to do", err=True)
    if how["cluster"] is None:  # its machines have data of their own
        load_all(todo)
    with GridProgress(todo, store.rows()) as progress:
        try:
            finished = run(specs, results=store.folder, tell=progress.tell, on_epoch=progress.on_epoch, **how)
        except KeyboardInterrupt:
            typer.echo("stopped; the same command resumes from the checkpoints", err=True)
            raise typer.Exit(130) from None
    typer.echo(f"{len(finished.rows)} of {len(specs)} runs are stored in {store.folder}")
    for outcome in finished.failed:
        echo(f"failed: {outcome.spec.title()} ({outcome.spec.key}): {outcome.text}", err=True)
    if finished.failed:
        typer.echo(f"{how['checkpoints']}/KEY/error.txt has the full message", err=True)
    return len(finished.failed)


def _plan(specs: Sequence[RunSpec], store: Store, paper: Paper) -> None:
    from tolerant.experiment import missing, with_needs
    from tolerant.experiment.time_left import duration, estimate_s

    rows = store.rows()
    todo = {spec.key for spec in missing(specs, store)}
    total = 0.0
    asked = {spec.key for spec in specs}
    runs = with_needs(specs)
    width = max((len(spec.title()) for spec in runs), default=0)
    for spec in runs:
        seconds = estimate_s(spec, rows)
        if spec.key in todo:
            total += seconds
        elif spec.key not in asked:
            continue  # a needed run that is not needed any more
        state = f"about {duration(seconds)}" if spec.key in todo else "stored"
        typer.echo(f"{spec.key}  {spec.title():{width}}  {state}")
    if paper.choices:
        typer.echo("\nWhere the paper is silent or can be read two ways:")
        for name, reason in paper.choices.items():
            typer.echo(f"- {name}: {reason}")
        typer.echo()
    where = "on the machines of the stored rows, else on one H200"
    typer.echo(f"{len(todo)} runs to do: about {duration(total)} of device time ({where})")


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]


def _rates(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--rate must be numbers, as in 0.2,0.4; got {text!r}.") from None


def _changes(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE, the value as JSON where it is JSON, else as a word."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise ValueError(f"--change must be NAME=VALUE; got {pair!r}.")
        if name in changes:
            also = " (--epochs N is --change epochs=N)" if name == "epochs" else ""
            raise ValueError(
                f"--change must give {name!r} one value{also}; got {changes[name]!r} and {text}."
            )
        try:
            changes[name] = json.loads(text)
        except ValueError:
            changes[name] = text
    return changes
