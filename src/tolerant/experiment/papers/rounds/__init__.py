"""No paper, but what the package does beyond it: rounds that relabel, under one setting for every column."""

from tolerant.experiment.papers import Experiment, Paper

CHOICES = {
    "one setting": (
        "Epochs, network, augmentation and thresholds are the same in every column. What differs follows "
        "from the data without a true label: q from the number of classes, the noise matrix and a "
        "temperature from the given labels."
    ),
    "tuning": (
        "On columns that are not reported: by noisy validation rows on CIFAR-10 with uniform 0.4 and "
        "instance-dependent 0.4, by clean test rows on CIFAR-10 with uniform 0.7 and class-dependent 0.3 and "
        "on CIFAR-10N random 1; on CIFAR-100 with uniform 0.6 by both, in 58 trials of at most 170 epochs, "
        "most of half the rows (results/bench/rounds_trials.jsonl). Which rows are left out, when that is "
        "decided, and the last round, by clean test rows on CIFAR-10 with uniform 0.7 and with a wrong one "
        "of two people's labels where there is one, and on CIFAR-100 with uniform 0.6, in 27 trials of 95 or "
        "155 epochs (results/bench/rounds), and by clean rows of the training files "
        "(results/bench/recipe_h200.jsonl). Deciding before each round alone was tried, on uniform 0.7, "
        "after uniform 0.8, a reported column, had come out badly under the setting before. That T is "
        "counted, and how many rounds there are, was decided on features of 10,000 training pictures with "
        "nine kinds of labels, those of CIFAR-10N among them (results/bench/relabel.jsonl, "
        "relabel_rounds.jsonl)."
    ),
    "selection": (
        "The averaged weights of the last epoch, by the mean over a picture and its mirror image; no model "
        "is chosen on any labels."
    ),
}

# By data set, noise and rate: what others have published, of the best epoch on the test set unless said.
OTHERS = {
    ("cifar10n-worse", "human", 0.0): "PES-semi 92.6, DivideMix 93.1, CE+MAE semi 95.1",
    ("cifar10n-aggre", "human", 0.0): "DivideMix 95.0",
    ("cifar10", "uniform", 0.4): "DivideMix 94.6 (at 0.5)",
    ("cifar10", "uniform", 0.8): "DivideMix 92.3 to 93.2",
    ("cifar10", "class-dependent", 0.4): "DivideMix 92.2 to 93.4",
    ("cifar100n", "human", 0.0): "ELR+ 66.7, PES-semi 70.3, DivideMix 71.1",
    ("cifar100", "uniform", 0.8): "DivideMix 60.2 (last epoch 59.6)",
}

PAPER = Paper(
    __name__,
    title="Rounds that prune, relabel and teach",
    experiments=(
        Experiment("rounds", "Rounds", rule="last_epoch", protocol="rounds"),
        Experiment(
            "rounds-before", "Rounds, the setting before", rule="last_epoch", protocol="rounds-before"
        ),
        Experiment("rounds-ablations", "Rounds without a part", rule="last_epoch", protocol="rounds"),
    ),
    methods={"rounds": "Rounds", "cce": "Cross entropy, same recipe"},
    choices=CHOICES,
    short_names=True,
)
