"""Which files a run folder holds, whether one is there, and how one is set aside for another."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

from torch import Tensor

from tolerant.extras import extra
from tolerant.files import read_json, write_atomic

EVIDENCE = ("near_given", "near_suggested", "twin", "lonely")  # fields of `Evidence`, in its order
FORMAT = 3
READABLE = (2, 3)  # before 3 every model was a network
# In the order in which a run is set aside; if that is interrupted, the rest is set aside the next time.
_FILES = (
    "model.safetensors",
    "model.skops",
    "audit.safetensors",
    "history.json",
    "suspects.csv",
    "report.html",
    "spec.json",
)
_NAMES = "|".join(map(re.escape, _FILES))
# All that a run may leave in its folder, including the temporary file of an interrupted write.
_OURS = re.compile(rf"checkpoints|earlier-\d+|{_NAMES}|\.({_NAMES})\.\w+")


def holds_run(folder: str | os.PathLike[str]) -> bool:
    """Whether a run was written here, or a training of one was stopped; not a folder of pictures."""
    return (Path(folder) / "spec.json").is_file() or holds_stopped_training(folder)


def holds_stopped_training(folder: str | os.PathLike[str]) -> bool:
    """Whether a training was stopped here, perhaps while it wrote its files."""
    folder = Path(folder)
    if (folder / "spec.json").exists() or not (folder / "checkpoints").is_dir():
        return False
    return all(_OURS.fullmatch(path.name) for path in folder.iterdir())


def set_aside(folder: Path, fingerprint: str) -> None:
    """Move a run with another ``fingerprint`` that lies here into ``earlier-1`` or the next such folder."""
    path = folder / "spec.json"
    if not path.exists():
        return
    with suppress(ValueError):
        spec = read_json(path)
        if isinstance(spec, dict) and spec.get("fingerprint") == fingerprint:
            return
    number = next(n for n in count(1) if not (folder / f"earlier-{n}").exists())
    earlier = folder / f"earlier-{number}"
    earlier.mkdir()
    for name in _FILES:
        with suppress(FileNotFoundError):
            (folder / name).replace(earlier / name)
    warnings.warn(
        f"{folder} held a run of other data or settings, which is in {earlier} now. "
        "To keep both side by side give another folder: --out",
        stacklevel=4,
    )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(path, extra("safetensors.torch").save(whole))


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return dict(extra("safetensors.torch").load(path.read_bytes()))
    except (OSError, extra("safetensors").SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Train again.") from error
