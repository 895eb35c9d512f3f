"""`tolerant noise`: noisy labels for any data source, and the manifest that proves them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tolerant.cli import options as opt

if TYPE_CHECKING:
    import numpy as np

    from tolerant.data import NoisyDataset
    from tolerant.noise import Corruption, OpenSet


class Kind(StrEnum):
    """Every kind of noise."""

    uniform = "uniform"
    symmetric = "symmetric"
    circular = "circular"
    pair = "pair"
    class_map = "class-map"
    superclass = "superclass"
    block5 = "block5"
    matrix = "matrix"
    instance = "instance"
    open_set = "open-set"


def noise(
    source: opt.SourceArgument,
    # Named outright: typer 0.27 makes it --KIND, after the metavar.
    kind: Annotated[
        Kind, typer.Option("--kind", metavar="KIND", help=f"One of {', '.join(Kind)}.")
    ] = Kind.uniform,
    rate: Annotated[
        float | None, typer.Option(help="Noise rate in [0, 1]; required for every kind but matrix.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="The same seed gives the same labels on every machine.")
    ] = 0,
    out: Annotated[
        Path, typer.Option(help="Label file to write, .csv or .npz; the manifest is written beside it.")
    ] = Path("noisy.csv"),
    pair: Annotated[
        list[str] | None, typer.Option(help="For kind pair: TRUE=GIVEN class names; repeat for more.")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option(help="For kind matrix: a CSV file of numbers, one row for each true class.")
    ] = None,
    outside: Annotated[
        str | None, typer.Option(help="For kind open-set: the data from which the replacing inputs come.")
    ] = None,
    split: opt.Split = None,
    root: opt.Root = None,
    label: opt.Label = None,
    id: opt.Id = None,
    file: opt.File = None,
    text: opt.Text = None,
    ignore: opt.Ignore = None,
    categorical: opt.Categorical = None,
    size: opt.Size = None,
    min_per_class: opt.MinPerClass = None,
    skip_unlabelled: opt.SkipUnlabelled = False,
) -> None:
    """Write noisy labels (id, given_label, true_label as class numbers) and a manifest of the draw.

    Noise starts from the true labels where the source has them, else from the given ones.
    """
    options = dict(locals())  # the arguments, before there are other variables
    from tolerant.data import load

    for name, value, wanted in (
        ("rate", rate, kind != "matrix"),
        ("matrix", matrix, kind == "matrix"),
        ("outside", outside, kind == "open-set"),
        ("pair", pair, kind == "pair"),
    ):
        if (value is not None) != wanted:
            raise typer.BadParameter(
                f"kind {kind} {'needs it' if wanted else 'does not take it'}", param_hint=f"--{name}"
            )
    if out.suffix not in (".csv", ".npz"):
        raise typer.BadParameter(f"must end in .csv or .npz; got {out.name}", param_hint="--out")
    data = opt.make_source(source, options, beside=outside).load()
    true = data.given_labels if data.true_labels is None else data.true_labels
    drawn = _draw(
        data,
        true,
        kind.value,
        0.0 if rate is None else rate,  # a matrix says its own rate
        seed,
        pairs=[_split_pair(text) for text in pair or ()],
        matrix=matrix,
        elsewhere=None if outside is None else load(outside, root=root),
    )
    manifest_path = out.with_suffix(".manifest.json")
    _write_labels(out, data, true, drawn)
    drawn.manifest.save(manifest_path)
    wrong = round(drawn.realised_noise_rate * len(data))
    typer.echo(
        f"{out}: {len(data)} labels of {data.num_classes} classes, {wrong} wrong "
        f"({drawn.realised_noise_rate:.2%}), manifest in {manifest_path}"
    )


def _draw(
    data: NoisyDataset,
    true: np.ndarray,
    kind: str,
    rate: float,
    seed: int,
    *,
    pairs: list[tuple[str, str]],
    matrix: Path | None,
    elsewhere: NoisyDataset | None,
) -> Corruption | OpenSet:
    from tolerant import noise

    num_classes = data.num_classes
    if elsewhere is not None:
        return noise.replace_inputs(
            data.inputs, true, elsewhere.inputs, rate, num_classes=num_classes, seed=seed
        )
    if kind == "instance":
        return noise.instance_dependent(data.inputs, true, rate, num_classes=num_classes, seed=seed)
    if matrix is not None:
        transition = noise.check_transition(_read_matrix(matrix), num_classes)
        return noise.corrupt(true, transition, seed=seed)
    transition = noise.make_transition(kind, rate, data.class_names, pairs)
    return noise.corrupt(true, transition, seed=seed, kind=kind, rate=rate)


def _split_pair(text: str) -> tuple[str, str]:
    true, found, given = text.partition("=")
    if not (true and found and given):
        raise typer.BadParameter(f"must be TRUE=GIVEN; got {text!r}", param_hint="--pair")
    return true, given


def _read_matrix(path: Path) -> np.ndarray:
    import warnings

    import numpy as np

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns of an empty file
            return np.loadtxt(path, delimiter=",", ndmin=2)
    except (ValueError, UserWarning) as error:
        raise ValueError(f"{path} is not a CSV file of numbers: {error}") from error


def _write_labels(path: Path, data: NoisyDataset, true: np.ndarray, drawn: Corruption | OpenSet) -> None:
    import csv
    import io

    import numpy as np

    from tolerant.files import write_atomic
    from tolerant.noise import OpenSet

    columns = {"id": data.ids, "given_label": drawn.given_labels, "true_label": true}
    if isinstance(drawn, OpenSet):
        columns |= {"true_label": drawn.true_labels, "source": drawn.source}
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        write_atomic(path, text.getvalue())
        return
    arrays = {name if name == "source" else f"{name}s": column for name, column in columns.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, class_names=np.array(data.class_names), **arrays)
    write_atomic(path, buffer.getvalue())
