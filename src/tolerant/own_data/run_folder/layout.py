"""Which files a run folder holds, whether one is there, and how its tensors are written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.regular import read_bytes

EVIDENCE = ("near_given", "near_suggested", "twin", "lonely")  # fields of `Evidence`, in its order
DIGEST = "run_digest"  # what spec.json, model and audit have in common
FORMAT = 4
READABLE = (2, 3, 4)  # before 3 every model was a network; 3 kept classifiers in another file
# Of an epoch's record, what the page draws.
CURVES = {
    "train_loss": "training loss",
    "validation_accuracy": "held-out rows labelled as given",
    "kept_fraction": "kept, of the rows that the folds left in",
}
LOCK = ".tolerant.lock"
# In the order in which a run is set aside; if that is interrupted, the rest follows the next time.
FILES = (
    "model.safetensors",
    "model.classifiers",
    "audit.safetensors",
    "history.json",
    "suspects.csv",
    "rows.csv",
    "report.html",
    "sample.html",
    "spec.json",
)
_NAMES = "|".join(map(re.escape, FILES))
# The file of an interrupted write, and the folder of an interrupted setting aside.
TEMPORARY = re.compile(rf"\.({_NAMES})\.[0-9a-f]{{8}}")
PART = ".earlier"
_OURS = re.compile(rf"checkpoints|earlier-\d+|{_NAMES}|{TEMPORARY.pattern}|\.earlier|\.tolerant\.lock")


def holds_run(folder: str | os.PathLike[str]) -> bool:
    """Whether a run was written here, or a training of one was stopped; not a folder of pictures."""
    return (Path(folder) / "spec.json").is_file() or holds_stopped_training(folder)


def holds_stopped_training(folder: str | os.PathLike[str]) -> bool:
    """Whether a training was stopped here, perhaps while it wrote its files."""
    folder = Path(folder)
    if (folder / "spec.json").exists() or not (folder / "checkpoints").is_dir():
        return False
    return all(_OURS.fullmatch(path.name) for path in folder.iterdir())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], digest: str) -> None:
    """``digest``: of the run, kept in the file's header."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(path, extra("safetensors.torch").save(whole, {DIGEST: digest}))


def read_tensors(path: Path, digest: str | None) -> dict[str, Tensor]:
    """A ValueError if they are of a run with another digest; None: of a run from before there was one."""
    try:
        data = read_bytes(path)
        tensors = dict(extra("safetensors.torch").load(data))
    except (OSError, extra("safetensors").SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Train again.") from error
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    check_digest(path, header.get("__metadata__", {}).get(DIGEST), digest)
    return tensors


def check_digest(path: Path, found: str | None, digest: str | None) -> None:
    """A ValueError unless the file is of the run whose `spec.json` has this digest."""
    if found != digest:
        raise ValueError(
            f"{path} is of another training than spec.json beside it ({found} and {digest}): files of two "
            "runs were mixed. Train again."
        )
