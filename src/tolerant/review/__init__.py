"""The review of suspects by a person: the page, and the corrections it exports."""

from tolerant.review.corrections import CorrectedLabels, Correction, apply_corrections, read_corrections
from tolerant.review.page import write_page

__all__ = ["CorrectedLabels", "Correction", "apply_corrections", "read_corrections", "write_page"]
