"""How long a run will take, from stored rows of its kind or from measured speeds."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from tolerant.experiment.check import train_rows
from tolerant.experiment.protocol import name_of
from tolerant.experiment.spec import RunSpec
from tolerant.experiment.store import Row

# Training images a second on one H200, four runs side by side.
IMAGES_PER_S = {"resnet34": 38_000, "resnet18": 71_000, "cnn8": 150_000}
OTHER_MODELS_PER_S = 20_000  # those of the digits grid, on one CPU core


def estimate_s(spec: RunSpec, rows: Iterable[Row] = ()) -> float:
    """Seconds of device time; a run that shares its device counts for its share.

    >>> round(estimate_s(RunSpec(dataset="cifar10", model="resnet34", loss="lq")))  # 120 x 45,000 / 38,000
    142
    """
    known: dict[tuple[bool, bool], list[float]] = {}
    for row in rows:
        other = row["spec"]
        if (other["dataset"], other["model"]) == (spec.dataset, spec.model):
            # Another protocol may score all rows every epoch; a run that prunes trains on fewer of them.
            same_protocol = name_of(other["protocol"]) == name_of(spec.protocol)
            alike = same_protocol, bool(other["prune"]) == bool(spec.prune)
            known.setdefault(alike, []).append(row["device_s"] / other["recipe"]["epochs"])
    if known:
        return fmean(known[max(known)]) * spec.recipe.epochs
    num_rows = (train_rows(spec.dataset) or 50_000) * (1 - spec.recipe.validation_fraction)
    speed = IMAGES_PER_S.get(spec.model, OTHER_MODELS_PER_S)
    return num_rows * spec.recipe.epochs / speed


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(42), duration(200), duration(9000)
    ('42 s', '3.3 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
