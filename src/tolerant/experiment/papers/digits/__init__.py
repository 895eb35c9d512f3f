"""No paper, but the smallest card: runs of a second on scikit-learn's digits, for newcomers and tests."""

from tolerant.experiment.papers import Experiment, Paper, gce2018

PAPER = Paper(
    __name__,
    title="Losses for noisy labels on scikit-learn's digits",
    experiments=(Experiment("digits", "Digits", protocol="digits"),),
    methods=gce2018.PAPER.methods,
    short_names=True,
)
