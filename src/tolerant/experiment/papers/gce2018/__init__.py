"""Zhang & Sabuncu 2018: the paper this package is built on, so its experiments go by their names alone."""

from tolerant.experiment.papers import Experiment, Paper
from tolerant.experiment.papers.gce2018.choices import CHOICES

PAPER = Paper(
    __name__,
    title="Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, NeurIPS 2018",
    experiments=(
        Experiment("table1", "Table 1"),
        Experiment("table2", "Table 2", rule="last_epoch"),
        Experiment("figure1", "Figure 1", protocol="gce2018-adam"),
        Experiment("figure2", "Figure 2", protocol="gce2018-adam"),
        Experiment("cifar-n", "CIFAR-N"),  # which the paper does not have, under its recipe
    ),
    methods={
        "cce": "CCE",
        "mae": "MAE",
        "forward-true": "Forward T",
        "forward-estimated": "Forward T̂",
        "lq": "L_q",
        "truncated-lq": "Truncated L_q",
    },
    choices=CHOICES,
    computed=("theory",),
    short_names=True,
)
