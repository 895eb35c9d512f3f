"""Suspects: which labels are probably wrong, a page to review them, and the corrections it exports."""

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
