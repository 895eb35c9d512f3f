"""Suspects: which labels are probably wrong, and how many, from predictions alone. Needs numpy only.

The way of a row: `ranking` reads its label, its name and what models that have not trained on it predict
(`unweighted` takes sample weights out of that). Over all rows `noise_model` fits how labels went wrong: by a
rate for every pair of classes (`whole_matrix`) or, where rows are too few for that, by one rate (`one_rate`).
Bayes' rule gives the probability that the row's label is right, by which it comes into the `suspect_list`.
How many labels are wrong in all the likelihood cannot tell: `anchors` counts it by the surest rows, and
`rate` says how far that can be trusted; `lost_classes` which classes the model never names.
"""

from tolerant.suspects.ranking import find_suspects
from tolerant.suspects.rate import RateInterval
from tolerant.suspects.suspect_list import Suspects

__all__ = ["RateInterval", "Suspects", "find_suspects"]
