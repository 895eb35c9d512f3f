"""Suspects: which labels are probably wrong, and how many, from predictions alone. Needs numpy only.

`find` ranks the labels, `noise_model` fits how they went wrong (`whole_matrix` where rows are many,
`one_rate` where they are few), `rate` says how many are wrong and how far that can be trusted.
"""

from tolerant.suspects.find import Suspects, find_suspects
from tolerant.suspects.rate import RateInterval

__all__ = ["RateInterval", "Suspects", "find_suspects"]
