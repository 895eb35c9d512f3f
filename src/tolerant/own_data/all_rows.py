"""Every row of a run with what is thought of its label, not only the suspects."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tolerant.csv_cells import write_csv
from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.run_folder import SavedRun
from tolerant.suspects import Suspects

COLUMNS = (
    *("index", "id", "given_label", "predicted_label", "p_y", "p_right", "suspect", "kept", "reviewed"),
)


def write_all_rows(path: Path, run: SavedRun, dataset: NoisyDataset, suspects: Suspects) -> None:
    """``dataset`` and ``suspects`` are those of ``run``. Rows keep their order."""
    given, probs = run.audit["given_labels"], run.audit["probs"]
    names = np.array(dataset.class_names, object)
    columns = (
        np.arange(len(given)).astype(str),
        dataset.ids.astype(str),
        names[given],
        names[probs.argmax(axis=1)],
        [f"{p:.4g}" for p in probs[np.arange(len(given)), given]],
        [f"{p:.4g}" for p in suspects.p_right],
        *(
            np.where(yes, "yes", "no")
            for yes in (suspects.is_suspect, run.audit["kept"], run.audit["reviewed"])
        ),
    )
    cells = zip(*(map(str, column) for column in columns), strict=True)
    write_csv(path, COLUMNS, cells)
