"""The review of suspects by a person: the page, and the corrections it exports.

The way of a row: `page` puts it on `report.html`, its picture (`thumbnails`), its text or its values
beside what the model thinks of its label, below a summary of all rows (`charts`). A person decides; what
the page then exports is read by `corrections`, and put into the labels.
"""

from tolerant.review.corrections import CorrectedLabels, Correction, apply_corrections, read_corrections
from tolerant.review.page import write_page

__all__ = ["CorrectedLabels", "Correction", "apply_corrections", "read_corrections", "write_page"]
