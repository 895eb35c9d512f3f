"""What other installed packages add: losses, readers of files, extractors of features.

A package names what it adds in its `pyproject.toml`, one group for each kind::

    [project.entry-points."tolerant.losses"]
    poly1 = "my_package:Poly1Loss"        # a PhiLoss or RobustLoss

    [project.entry-points."tolerant.readers"]
    h5 = "my_package:READER"              # a tolerant.data.source.Reader, of files that end in .h5

    [project.entry-points."tolerant.extractors"]
    my-features = "my_package:CARD"       # a tolerant.data.features.Card

Nothing of it is imported before its name is asked for, and no name of ours can be taken.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from tolerant.hints import warn_caller

GROUPS = ("tolerant.losses", "tolerant.readers", "tolerant.extractors")


def names(group: str) -> list[str]:
    """The names of what is added; nothing is imported."""
    return sorted({point.name for point in metadata.entry_points(group=group)})


def find(group: str, name: str, kind: type) -> Any:
    """What was added by this name, of the class ``kind`` or a subclass of it; None if nothing was.

    One that cannot be imported, or is something else, is named in a warning and left out.
    """
    for point in metadata.entry_points(group=group, name=name):
        who = f"{point.name!r} of {point.dist.name if point.dist else point.value} ({group})"
        try:
            found = point.load()
        except (Exception, SystemExit) as error:  # whatever a module does as it is imported
            warn_caller(f"the plug-in {who} is left out: {type(error).__name__}: {error}")
            continue
        if isinstance(found, kind) or (isinstance(found, type) and issubclass(found, kind)):
            return found
        warn_caller(f"the plug-in {who} is left out: it must be a {kind.__name__}; got {found!r}")
    return None
