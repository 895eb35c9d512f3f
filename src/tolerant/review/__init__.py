"""The review of suspects by a person: the page, and the corrections it exports.

The way of a row: `page` puts it on `report.html`, its picture (`thumbnails`), its text or its values
(`row_cells`) beside what the model thinks of its label, below a summary of all rows (`charts`). A person
decides; what the page then exports is read by `correction_files`, and `corrections` puts it into the labels.
"""

from tolerant.review.correction_files import read_corrections
from tolerant.review.corrections import CorrectedLabels, Correction, apply_corrections
from tolerant.review.page import write_page

__all__ = ["CorrectedLabels", "Correction", "apply_corrections", "read_corrections", "write_page"]
