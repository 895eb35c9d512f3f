"""What members have said out of fold, kept so that a training that was cut off goes on."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tolerant.files import write_atomic
from tolerant.own_data.classifiers.score import Scored
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.regular import read_bytes
from tolerant.train.engine.ranks import current_ranks


@dataclass(frozen=True)
class KeptScores:
    """A folder for one training, of the same rows and settings; None keeps nothing."""

    folder: str | os.PathLike[str] | None
    num_rows: int

    def of_some(self, num_rows: int) -> KeptScores:
        """For scores of so many of the rows."""
        folder = None if self.folder is None else Path(self.folder) / "some"
        return KeptScores(folder, num_rows)

    def get(self, name: str, score: Callable[[], Scored]) -> Scored:
        """What was kept under ``name``, else what ``score`` gives, which is kept."""
        if self.folder is None:
            return score()
        path = Path(self.folder) / f"{name.replace(' ', '-')}.npz"
        # What a full disk or another version has left is made again.
        with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            kept = np.load(io.BytesIO(read_bytes(path)))
            found = OutOfFold(kept["probs"], kept["held_out"])
            if len(found.probs) == self.num_rows:
                return Scored(name, found, float(kept["time_s"]))
        made = score()
        if not current_ranks().rank:
            data = io.BytesIO()
            probs, held_out = made.out_of_fold.probs, made.out_of_fold.held_out
            np.savez(data, probs=probs, held_out=held_out, time_s=made.time_s)
            write_atomic(path, data.getvalue())
        return made
