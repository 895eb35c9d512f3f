"""`tolerant train`: a model and a list of doubtful labels from data of your own."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from tolerant.cli import options as opt
from tolerant.cli.terminal import echo
from tolerant.cli.training import RUN, chosen_settings, next_command, train_and_print
from tolerant.own_data import Settings
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.train import NETWORKS

if TYPE_CHECKING:
    from tolerant.own_data.classifiers.temper import ClassWeight
    from tolerant.own_data.settings import Method
    from tolerant.train.engine.recipe import Precision

_MODELS = (
    f"auto (tries what suits the rows and takes the best), {', '.join(CLASSIFIERS)}; "
    f"network (the one that suits the rows), or one by name: {', '.join(NETWORKS)}."
)


@opt.with_data_options()
def train(
    *,
    context: typer.Context,
    source: opt.SourceArgument,
    out: Annotated[
        Path, typer.Option(help="Run folder to write; an earlier run in it is kept in earlier-1 and so on.")
    ] = RUN,
    labels: opt.Labels = None,
    loss: Annotated[
        str, typer.Option(help="truncated-lq (L_q with pruning), lq, cce (cross entropy), mae ...")
    ] = str(Settings.loss),
    method: Annotated[
        str,
        typer.Option(
            help="prune (leave doubted rows out), or rounds (train them under the label that seems right)."
        ),
    ] = Settings.method,
    q: Annotated[
        str,
        typer.Option(
            help="Exponent of L_q: 0 (cross entropy) to 1 (mean absolute error), or auto (by the classes)."
        ),
    ] = str(Settings.q),
    k: Annotated[
        str,
        typer.Option(
            help="Leave out (prune) rows whose label has at most this probability; a number or auto."
        ),
    ] = str(Settings.k),
    model: Annotated[str, typer.Option(help=_MODELS)] = str(Settings.model),
    class_weight: opt.ClassWeight = Settings.class_weight,
    epochs: Annotated[
        int | None, typer.Option(help="Default: depends on the number of rows.")
    ] = Settings.epochs,
    features: opt.Features = "auto",
    tune: opt.Tune = False,
    engine: Annotated[
        opt.Engine, typer.Option(help="Where features are computed: local, or ray, by Ray Data on a cluster.")
    ] = opt.Engine.local,
    address: opt.Address = None,
    folds: opt.Folds = opt.FOLDS,
    all_rows: opt.AllRows = False,
    data_options: dict[str, Any],
    seed: opt.Seed = Settings.seed,
    device: opt.Device = "auto",
    precision: Annotated[str, typer.Option(help="auto, fp32 or bf16.")] = Settings.precision,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for the TensorBoard events of the final training.")
    ] = None,
) -> None:
    """Train on labels that may be wrong; write the model, the suspects and a page to review them.

    It trains the final model, and one more for each fold, so that no row is scored by a model that learnt it.
    On tables and texts several kinds of models are tried; an option that only networks have (--epochs, --q,
    --k, --loss) makes it a network.

    Over several processes: torchrun --nproc-per-node N -m tolerant train ...
    """
    options = dict(locals())  # the arguments, before there are other variables
    from tolerant.own_data.choose_features import to_tune

    _check_loss_options(context, loss, k, epochs, folds)
    rows = opt.make_source(source, data_options)
    settings = Settings(
        loss=loss,
        method=cast("Method", method),  # Settings refuses a word it does not know
        q=_number_or_auto("--q", q),
        k=_number_or_auto("--k", k),
        model=model,
        class_weight=cast("ClassWeight", class_weight),  # Settings refuses a word it does not know
        epochs=epochs,
        seed=seed,
        precision=cast("Precision", precision),  # Recipe refuses a word it does not know
    )
    settings = to_tune(settings, features) if tune else settings
    callbacks = []
    if tensorboard is not None:
        from tolerant.adapters.tensorboard import TensorBoardLog

        callbacks.append(TensorBoardLog(tensorboard))
    compute = None
    if engine is opt.Engine.ray:
        from tolerant.data.features.on_ray import compute_on_ray

        compute = functools.partial(compute_on_ray, address=address)
    else:
        opt.refuse(context, ("address",), "is for a Ray cluster; add --engine ray")
    corrections = labels or ()
    again = next_command(rows, corrections, out=out, settings=chosen_settings(train, options))
    how: dict[str, Any] = {"device": device, "corrections": corrections, "folds": folds, "features": features}
    how |= {"compute": compute, "callbacks": callbacks}
    train_and_print(rows, out, settings, all_rows=all_rows, again=again, **how)
    echo(f"Label new rows: tolerant predict {shlex.quote(str(out))} DATA")


def _check_loss_options(context: typer.Context, loss: str, k: str, epochs: int | None, folds: int) -> None:
    """A usage error for --q or --k if the training would ignore it."""
    from tolerant.losses.registry import REGISTRY
    from tolerant.own_data.plan import LEAST_EPOCHS_TO_PRUNE
    from tolerant.own_data.settings import TRUNCATED

    if loss in REGISTRY and loss != TRUNCATED:  # an unknown loss is refused by its own name
        if loss != "lq":
            opt.refuse(context, ("q",), f"is for lq and {TRUNCATED}; it means nothing to --loss {loss}")
        opt.refuse(context, ("k",), f"is for {TRUNCATED}, which prunes; --loss {loss} does not")
    if epochs is not None and epochs < LEAST_EPOCHS_TO_PRUNE:
        why = f"is for pruning, starting after a third of the epochs; give at least {LEAST_EPOCHS_TO_PRUNE}"
        opt.refuse(context, ("k",), why)
    if k == "auto" and not folds:
        why = "auto is estimated from the folds; give a number, or --folds 2 or more"
        raise typer.BadParameter(why, param_hint="--k")


def _number_or_auto(option: str, word: str) -> float | Literal["auto"]:
    try:
        return "auto" if word == "auto" else float(word)
    except ValueError:
        raise typer.BadParameter(f"must be a number or auto; got {word!r}", param_hint=option) from None
