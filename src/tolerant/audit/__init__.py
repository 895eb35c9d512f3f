"""Suspects: which labels are probably wrong, a page to review them, and the corrections it exports.

`suspects` ranks labels by predictions alone (`belief` and `rate` are its statistics). `learn` makes the
predictions and a model: `plan` chooses how to train, `folds` which rows go together, `scoring` trains and
scores. `own_data` is what `tolerant train` does: from a `source` to a `run_folder`, with its `page`.
"""

from tolerant.audit.corrections import CorrectedLabels, Correction, apply_corrections, read_corrections
from tolerant.audit.page import write_page
from tolerant.audit.rate import RateInterval
from tolerant.audit.suspects import Suspects, find_suspects

__all__ = [
    "CorrectedLabels",
    "Correction",
    "RateInterval",
    "Suspects",
    "apply_corrections",
    "find_suspects",
    "read_corrections",
    "write_page",
]
