"""`tolerant noise`: noisy labels for any data source, and the manifest that proves them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tolerant.cli import options as opt
from tolerant.cli.terminal import echo
from tolerant.noise import KINDS

if TYPE_CHECKING:
    import numpy as np

    from tolerant.data import NoisyDataset
    from tolerant.noise import Corruption, OpenSet


# None and human draw nothing: those labels are as they were found.
Kind = StrEnum("Kind", {name: name for name, kind in KINDS.items() if kind.needs})  # type: ignore[misc]
_UNIFORM = Kind("uniform")
_KINDS = ", ".join(f"{name} ({KINDS[name].help})" for name in Kind)
_RATE_FREE = ", ".join(name for name in Kind if "rate" not in KINDS[name].needs)


@opt.with_data_options(*(name for name in opt.DATA if name != "group"))
def noise(
    *,
    source: opt.SourceArgument,
    # Named outright: typer 0.27 makes it --KIND, after the metavar.
    kind: Annotated[Kind, typer.Option("--kind", metavar="KIND", help=f"One of {_KINDS}.")] = _UNIFORM,
    rate: Annotated[
        float | None,
        typer.Option(help=f"Noise rate in [0, 1]; required for every kind but {_RATE_FREE}."),
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
    data_options: dict[str, Any],
) -> None:
    """Write noisy labels (id, given_label, true_label) and a manifest of the draw.

    `tolerant train DATA --labels noisy.csv` trains on them. In an .npz file labels are class numbers.

    Noise starts from the true labels where the source has them, else from the given ones.
    """
    from tolerant.data import load
    from tolerant.files import check_not_read

    needs = KINDS[kind].needs
    for name, value in (("rate", rate), ("matrix", matrix), ("outside", outside), ("pairs", pair)):
        if (value is not None) != (name in needs):
            raise typer.BadParameter(
                f"kind {kind} {'needs it' if name in needs else 'does not take it'}",
                param_hint=f"--{name.removesuffix('s')}",
            )
    if out.suffix not in (".csv", ".npz"):
        raise typer.BadParameter(f"must end in .csv or .npz; got {out.name}", param_hint="--out")
    manifest_path = out.with_suffix(".manifest.json")
    for path in (out, manifest_path):
        check_not_read(path, [read for read in (source, matrix, outside) if read is not None])
    # The columns as `tolerant train` takes them: by another id its rows would not be found.
    dataset = opt.make_source(source, data_options, beside=outside).with_roles(echo).load()
    true = dataset.given_labels if dataset.true_labels is None else dataset.true_labels
    given = {
        "rate": rate,
        "pairs": [_split_pair(text) for text in pair or ()],
        "matrix": None if matrix is None else _read_matrix(matrix),
        "inputs": dataset.inputs,
        "outside": None if outside is None else load(outside, root=data_options["root"]).inputs,
    }
    drawn = KINDS[kind].draw(true, dataset.class_names, seed=seed, **{name: given[name] for name in needs})
    _write_labels(out, dataset, true, drawn)
    drawn.manifest.save(manifest_path)
    wrong = round(drawn.realised_noise_rate * len(dataset))
    echo(
        f"{out}: {len(dataset)} labels of {dataset.num_classes} classes, {wrong} wrong "
        f"({drawn.realised_noise_rate:.2%}), manifest in {manifest_path}"
    )


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
    import io

    import numpy as np

    from tolerant.csv_cells import write_csv
    from tolerant.files import write_atomic
    from tolerant.noise import OpenSet

    columns = {"id": data.ids, "given_label": drawn.given_labels, "true_label": true}
    if isinstance(drawn, OpenSet):
        columns |= {"true_label": drawn.true_labels, "source": drawn.source}
    if path.suffix == ".csv":
        names = [*data.class_names, "-1"]  # the last for what is outside all classes
        columns |= {n: np.array(names, object)[columns[n]] for n in ("given_label", "true_label")}
        rows = zip(*(map(str, column.tolist()) for column in columns.values()), strict=True)
        write_csv(path, tuple(columns), rows)
        return
    arrays = {name if name == "source" else f"{name}s": column for name, column in columns.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, class_names=np.array(data.class_names), **arrays)
    write_atomic(path, buffer.getvalue())
