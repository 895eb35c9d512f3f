"""One progress bar for everything that takes a while; silent where nobody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal


class Bar:
    """Where the work stands; `update` may be called from any one thread."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def update(self, done: int, total: int | None = None) -> None:
        if self._progress is not None:
            known = {} if total is None else {"total": total}
            self._progress.update(self._task, completed=done, **known)


@contextmanager
def progress_bar(
    what: str, total: int | None = None, *, unit: Literal["item", "byte"] = "item"
) -> Iterator[Bar]:
    """A bar on standard error, if that is a terminal and rich is installed.

    >>> with progress_bar("read", total=2) as bar:
    ...     bar.update(1)
    ...     bar.update(2)
    """
    # None where there is no standard error (pythonw, a closed one); of torchrun's ranks the first shows.
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield Bar()
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
    except ModuleNotFoundError:
        yield Bar()
        return
    amount = DownloadColumn() if unit == "byte" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bar(progress, progress.add_task(what, total=total))
