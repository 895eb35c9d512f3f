"""Paths in a run folder: relative to it or a name alone, so that a run can be given to others.

Absolute ones would say who trained it, and would be wrong on any other machine.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tolerant.checks import check_words
from tolerant.data import Source
from tolerant.data.source import is_path

_ROLES = frozenset({"label", "true_label", "id", "group", "file", "split", "config"})
_COLUMNS = frozenset({"text", "ignore", "categorical"})
_HOMES = ("/home", "/Users", "C:/Users")


def stored_path(path: str | os.PathLike[str], folder: Path) -> str:
    """How a run in ``folder`` names a path: from there, or where that would name a user, by its name.

    >>> stored_path("/data/pictures", Path("/data/runs/first"))
    '../../pictures'
    >>> stored_path("/home/alice/pictures", Path("/data/runs/first"))
    'pictures'
    """
    whole = os.path.abspath(os.path.expanduser(path))
    users = {Path.home().name}
    with suppress(OSError, KeyError):  # nobody, in some containers
        users.add(getpass.getuser())
    for homes in _HOMES:  # whose data it is, if not one's own
        with suppress(ValueError):  # not there
            users.update(Path(whole).relative_to(homes).parts[:1])
    with suppress(ValueError):  # another drive of Windows
        relative = Path(os.path.relpath(whole, folder))
        if users.isdisjoint(relative.parts):
            return relative.as_posix()
    return os.path.basename(whole)


def found_path(stored: str, folder: Path) -> str:
    """Where that is now: as seen from the run, from here, beside the run; as it is written if nowhere.

    A run that was set aside lies one folder deeper than it was written. Runs of before have absolute paths.
    """
    name = os.path.basename(stored)
    for place in (folder / stored, folder.parent / stored, Path(stored), Path(name), folder.parent / name):
        if place.exists():
            return os.path.normpath(place)
    return stored


def stored_source(source: Source, folder: Path) -> dict[str, Any]:
    options = dict(source.options)
    if options.get("root") is not None:
        options["root"] = stored_path(options["root"], folder)
    name = stored_path(source.name, folder) if is_path(source.name) else source.name
    return {"name": name, "options": options}


def found_source(stored: Mapping[str, Any], folder: Path) -> Source:
    name, options = stored["name"], dict(stored["options"])
    if not isinstance(name, str):
        raise TypeError(f"the source is called {name!r}")
    for role, value in options.items():
        if role in _ROLES and value is not None:
            check_words([value], role)
        elif role in _COLUMNS:
            check_words([value] if isinstance(value, str) else value, role)  # older runs: one text
    if options.get("root") is not None:
        options["root"] = found_path(options["root"], folder)
    return Source(found_path(name, folder) if is_path(name) else name, options)


def stored_features(features: dict[str, Any], folder: Path) -> dict[str, Any]:
    """An extractor may be a file: torch:PATH, hf:PATH."""
    return _with_extractor(features, lambda path: stored_path(path, folder) if Path(path).exists() else path)


def found_features(features: Any, folder: Path) -> Any:
    return _with_extractor(features, lambda path: found_path(path, folder))


def _with_extractor(features: Any, move: Any) -> Any:
    extractor = features.get("extractor")
    if not extractor or ":" not in extractor["name"]:
        return features
    kind, _, path = extractor["name"].partition(":")
    return {**features, "extractor": {**extractor, "name": f"{kind}:{move(path)}"}}
