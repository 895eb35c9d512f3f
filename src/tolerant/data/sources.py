"""One call for every source: a published data set by name, or your own files by path."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tolerant.data.arrays import load_npz
from tolerant.data.cards import CARDS
from tolerant.data.dataset import NoisyDataset
from tolerant.data.folder import SUFFIXES as PICTURES
from tolerant.data.folder import load_folder, load_listed
from tolerant.data.frame import check_table, read_frame
from tolerant.data.table import load_table
from tolerant.hints import did_you_mean


def load(
    source: str | os.PathLike[str],
    *,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    **options: Any,
) -> NoisyDataset:
    """A data set by name, or from a folder of pictures or a file of rows.

    A file of rows ends in .csv, .tsv, .jsonl (these also with .gz, .bz2 or .xz), .parquet or .npz. A
    table with a column called file that names pictures is a list of them; one whose only column beside
    the label is called text is a set of texts. Further options are those of `load_folder`, `load_listed`,
    `load_table` or `load_npz`.

    Args:
        source: a path, or a name of `CARDS`: "digits", "fashion-mnist", "cifar10", "cifar100", ...
        split: "train" (the default) or "test" of a named one; the sub-folder of a folder of pictures.
        root: where the named ones lie; by default TOLERANT_DATA, or the platform's cache.

    >>> data = load("digits", split="test")
    >>> data.inputs.shape, data.num_classes
    ((359, 8, 8, 1), 10)
    """
    name = os.fspath(source)
    if name in CARDS:
        if options:
            raise ValueError(f"{name} takes no option {next(iter(options))!r}")
        return CARDS[name].load(split or "train", root)
    path = Path(source).expanduser()
    if path.is_dir():
        if options.get("group") is not None:
            raise ValueError(
                f"{path} is a folder, which does not say which pictures belong together. List them in a CSV "
                "file with the columns file and label, and one to be named by group=... (--group)"
            )
        return load_folder(path, split=split, **_taken(load_folder, path, options))
    if not path.exists():
        hint = did_you_mean(name, CARDS) or f"The named ones are {', '.join(CARDS)}"
        raise FileNotFoundError(f"{name!r} is not a data set, file or folder. {hint}")
    if split is not None:
        raise ValueError(f"split is for named data sets and folders; {path} has none")
    if path.suffix.lower() == ".npz":
        return load_npz(path, **_taken(load_npz, path, options))
    check_table(path)
    return _load_rows(path, options)


def _load_rows(path: Path, options: dict[str, Any]) -> NoisyDataset:
    frame = read_frame(path)
    options = stripped(options)
    if "file" not in options and "text" not in options:
        roles = {options.get(role) for role in ("label", "true_label", "id", "group")} | {"label"}
        others = [column for column in frame.columns if column not in roles]
        if others in (["file"], ["text"]):
            options = {**options, others[0]: others[0]}
        elif "file" in others and str(frame["file"].iloc[0]).lower().endswith(PICTURES):
            options = {**options, "file": "file"}
    load_rows = load_listed if "file" in options else load_table
    return load_rows(path, frame=frame, **_taken(load_rows, path, options))


def stripped(value: Any) -> Any:
    """Options without blanks around their words, as the names of columns are read."""
    if isinstance(value, dict):
        return {name: stripped(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [stripped(one) for one in value]
    return value.strip() if isinstance(value, str) else value


def _taken(reader: Callable[..., NoisyDataset], path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """`options`, or a ValueError for one that `reader` does not take."""
    known = [name for name in inspect.signature(reader).parameters if name not in ("path", "frame")]
    for name in options:
        if name not in known:
            raise ValueError(f"{path} takes no option {name!r}; it takes {', '.join(known)}")
    return options
