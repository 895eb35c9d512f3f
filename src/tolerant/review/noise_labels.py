"""Labels that `tolerant noise` has written, read in place of those of the data: nobody has decided them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

AS_GIVEN = "as given"  # instead of a decision
_COLUMNS = {"id", "given_label", "true_label"}  # the list of suspects has no true label


def as_given(row_id: str, label: str) -> dict[str, Any]:
    """A row of corrections that is none."""
    return {"id": row_id, "new_label": label, "decision": AS_GIVEN}


def is_noise(columns: Sequence[str], path: Path) -> bool:
    """Whether these are the columns of such a CSV file."""
    found = "new_label" not in columns and set(columns) >= _COLUMNS
    if found:
        _refuse_open_set(columns, path)
    return found


def read_noise_npz(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Rows of an .npz file, each with where it stands."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path.name} cannot be read: {error}. Make it again: tolerant noise") from error
    _refuse_open_set(list(found), path)
    missing = [name for name in ("ids", "given_labels", "class_names") if name not in found]
    if missing:
        raise ValueError(
            f"{path.name} must hold ids, given_labels and class_names, as `tolerant noise` writes them; "
            f"got no {missing[0]}."
        )
    names = found["class_names"][found["given_labels"]]
    pairs = zip(found["ids"].tolist(), names.tolist(), strict=True)
    return [(f"row {row}", as_given(str(name), str(label))) for row, (name, label) in enumerate(pairs)]


def _refuse_open_set(columns: Sequence[str], path: Path) -> None:
    if "source" in columns:
        raise ValueError(
            f"{path.name} holds open-set noise, which replaces the inputs of rows: their labels alone say "
            "nothing. Put those inputs into the data instead."
        )
