"""Data sets as hubs serve them: ``hf:NAME``, what `datasets` saves to a disk, or a folder of Parquet files.

What comes back are files of rows, read by `arrow_files`. No code that comes with a data set is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tolerant.data.hub_network import offline, unreachable
from tolerant.data.read_errors import reason
from tolerant.data.readers.walk import SUFFIXES as PICTURES
from tolerant.extras import extra
from tolerant.files import read_json

PREFIX = "hf:"
_DICT, _STATE = "dataset_dict.json", "state.json"  # of `save_to_disk`
# The library's own readers of plain files. That of pickles is not among them.
_BUILDERS = ("parquet", "arrow", "csv", "json", "text", "imagefolder", "webdataset", "cache")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5}).*")
_NUMBERED = re.compile(r"(part-)?\d+(-.*)?")
_SPLIT_WORD = re.compile(r"(train|validation|valid|val|dev|test)(?![a-z])")


def is_hub_folder(folder: Path) -> bool:
    """Whether it was saved by `datasets`, or has Parquet files and no pictures."""
    if (folder / _DICT).is_file() or (folder / _STATE).is_file():
        return True
    return bool(_parquets(folder)) and not any(
        name.lower().endswith(PICTURES) for _, _, names in os.walk(folder) for name in names
    )


def hub_files(name: str, *, split: str | None, config: str | None) -> list[Path]:
    """The files with the rows of one split (train, unless there is only another) of one configuration."""
    if name.startswith(PREFIX):
        return _fetched(name, split, config)
    folder = Path(name).expanduser()
    if (folder / _DICT).is_file() or (folder / _STATE).is_file():
        if config is not None:
            raise ValueError(f"{folder} has one configuration, without a name; leave config={config!r} out")
        return _saved(folder, split)
    configs: dict[str, dict[str, list[Path]]] = {}
    for file in _parquets(folder):
        found_config, found_split = _place(file.relative_to(folder))
        configs.setdefault(found_config, {}).setdefault(found_split, []).append(file)
    splits = configs[_pick(name, "config", config, configs, "default")]
    files = splits[_pick(name, "split", split, splits, "train")]
    _check_whole(files)
    return files


def _check_whole(files: Sequence[Path]) -> None:
    """A ValueError if one of the parts is missing that the names of the others count."""
    there: dict[tuple[Path, str, int], set[int]] = {}
    for file in files:
        if shard := _SHARD.fullmatch(file.stem):
            there.setdefault((file.parent, shard[1], int(shard[3])), set()).add(int(shard[2]))
    for (folder, split, count), parts in there.items():
        if missing := sorted({*range(count)} - parts):
            raise ValueError(
                f"{folder} has {len(parts)} of {count} parts of {split!r} (first missing: {missing[0]:05d}): "
                "it was not fetched or copied whole. Fetch it again."
            )


def _pick(name: str, what: str, wanted: str | None, there: Mapping[str, Any], usual: str) -> str:
    if wanted is None and len(there) == 1:
        return next(iter(there))
    chosen = wanted or usual
    if chosen not in there:
        has = f"{name} has no {what} {chosen!r}" if wanted else f"{name} has several {what}s"
        raise ValueError(f"{has}: {', '.join(map(str, there))}. Say which with {what}=... (--{what})")
    return chosen


def _parquets(folder: Path) -> list[Path]:
    """The Parquet files below a folder, where hubs put them: at most a configuration and a split deep."""
    found = (file for below in ("*", "*/*", "*/*/*") for file in folder.glob(f"{below}.parquet"))
    return sorted(file for file in found if not file.name.startswith((".", "_")))


def _place(file: Path) -> tuple[str, str]:
    """(configuration, split) of a Parquet file, by where it lies and how it is called.

    >>> _place(Path("data/train-00000-of-00002.parquet")), _place(Path("sst2/validation/0000.parquet"))
    (('default', 'train'), ('sst2', 'validation'))
    >>> _place(Path("test.parquet")), _place(Path("rows.parquet"))
    (('default', 'test'), ('default', 'train'))
    """
    *folders, _ = file.parts
    shard, word = _SHARD.fullmatch(file.stem), _SPLIT_WORD.match(file.stem)
    if shard or word:
        split = shard[1] if shard else file.stem[: word.end()] if word else ""
    elif folders and (
        _SPLIT_WORD.fullmatch(folders[-1]) or (len(folders) > 1 and _NUMBERED.fullmatch(file.stem))
    ):
        split = folders.pop()
    else:
        split = "train"
    return "/".join(part for part in folders if part != "data") or "default", split


def _saved(folder: Path, split: str | None) -> list[Path]:
    """The files of what `save_to_disk` has written, of a data set or of a dictionary of splits."""
    try:
        if (folder / _DICT).is_file():
            splits = {name: folder / name for name in read_json(folder / _DICT)["splits"]}
            folder = splits[_pick(str(folder), "split", split, splits, "train")]
        elif split is not None:
            known = read_json(folder / _STATE).get("_split")
            if known != split:
                raise ValueError(
                    f"{folder} is one split, {known or 'without a name'}; leave split={split!r} out"
                )
        state = read_json(folder / _STATE)
        files = [folder / Path(entry["filename"]).name for entry in state["_data_files"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} was not written whole: {reason(error)}. Save it again.") from error
    if state.get("_indices_files"):
        raise ValueError(
            f"{folder} was saved by an old version of datasets, as a choice of rows. Save it again."
        )
    if not files:
        raise ValueError(f"{folder / _STATE} names no file with rows. Save it again.")
    if missing := [file for file in files if not file.is_file()]:
        raise ValueError(f"{missing[0]} is not there, though {folder / _STATE} names it. Save it again.")
    return files


def _fetched(name: str, split: str | None, config: str | None) -> list[Path]:
    """From the hub, or from what the library has kept of it; the rows then lie in its cache."""
    datasets = extra("datasets", install="datasets")
    repository = name.removeprefix(PREFIX)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repository):
        raise ValueError(f"{name!r} must be {PREFIX}OWNER/NAME, as the hub's page of the data set says it")
    if Path(repository).is_dir():  # which the library would read instead
        raise ValueError(
            f"{name}: a folder {repository} lies here. Give it without {PREFIX}, or go elsewhere"
        )
    why = unreachable()
    try:
        with offline(bool(why)):
            builder = datasets.load_dataset_builder(repository, config)
            module = type(builder).__module__.split(".")
            if module[:2] != ["datasets", "packaged_modules"] or module[-1] not in _BUILDERS:
                raise ValueError(f"it is read by {type(builder).__module__}, which is not known to be safe")
            builder.download_and_prepare()
            there = dict.fromkeys(builder.info.splits or ())
            rows = builder.as_dataset(_pick(name, "split", split, there, "train"))
            return [Path(entry["filename"]) for entry in rows.cache_files]
    except Exception as error:  # of the network, the hub, the library or the files
        if str(error).startswith(name):
            raise
        if why:
            raise ConnectionError(
                f"{name} is not on this machine, and the hub cannot be reached ({why}). Fetch it where there "
                f"is a network: hf download {repository} --repo-type dataset --local-dir FOLDER; then give "
                "that folder instead of the name."
            ) from error
        raise ValueError(
            f"{name} cannot be loaded: {reason(error).rstrip('.')}. Is its name right, and --config "
            "one of its configurations? A folder with its Parquet files is read too."
        ) from error
