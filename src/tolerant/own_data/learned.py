"""What comes of learning from doubtful labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.classifiers.committee import Committee
from tolerant.suspects import Suspects
from tolerant.suspects.evidence import find_evidence
from tolerant.train import Job, TrainResult
from tolerant.train.engine.evaluate import predict_log_proba


@dataclass(frozen=True)
class Tried:
    """A model that was tried, and how well it agrees with the given labels out of fold."""

    name: str
    score: float
    """`tolerant.own_data.classifiers.temper.agreement`."""
    time_s: float


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained model and what it says about the labels it learnt from."""

    fitted: TrainResult | Committee
    """A network, with the `job` that trained it, or classifiers."""
    job: Job | None
    probs: np.ndarray
    """float32 [N, C] of every row; out of fold where there were folds, and as if all rows counted alike."""
    p_y: np.ndarray
    """float32 [N]: of the given label, from `probs`."""
    suspects: Suspects
    kept: np.ndarray
    """bool [N]: trained on to the end; for a row that was held out, whether it would have been."""
    pruned_at: np.ndarray
    """int64 [N]: the epoch before which a row was pruned, -1 for never, 0 if the folds left it out."""
    k: float | None
    """The threshold of the rounds of pruning in training; None without them."""
    seed: int
    num_trained: int
    """Rows that the model was fitted to, those that validated it included."""
    tried: Sequence[Tried] = ()
    """The models among which the choice was made; none if the user named one."""
    trained_as: np.ndarray | None = None
    """int64 [N]: the label that a row was trained under, its own where it is not `kept`; None where the
    method changes no label."""
    doubt_prior: np.ndarray | None = None
    """With `doubt_tau`: how `probs` were moved towards rare classes (`tolerant.own_data.doubts`)."""
    doubt_tau: float = 0.0
    doubt_of_true: bool = False
    """Whether `probs` are meant as probabilities of true classes, not of given labels."""
    rate_probs: np.ndarray | None = None
    """float32 [N, C]: by which it is estimated how many labels are wrong, if not by `probs`."""

    def predict(self, rows: NoisyDataset) -> np.ndarray:
        """float32 [N, C]: what the final model says of any rows."""
        if isinstance(self.fitted, Committee):
            return self.fitted.probs(rows)
        return np.exp(predict_log_proba(self.fitted.model, rows, self.fitted.preprocess))

    @property
    def result(self) -> TrainResult:
        """What the training of a network ended with; a TypeError for classifiers."""
        if not isinstance(self.fitted, TrainResult):
            raise TypeError(f"{self.fitted.name} is not a network, which alone has a result of epochs.")
        return self.fitted

    @property
    def training(self) -> Job:
        """The job that trained a network; a TypeError for classifiers."""
        if self.job is None:
            raise TypeError(f"{self.name} is not a network, which alone has a job.")
        return self.job

    @property
    def name(self) -> str:
        """What the model is called."""
        if isinstance(self.fitted, Committee):
            return self.fitted.name
        return "a linear model" if self.training.model_args.get("hidden") == () else str(self.training.model)


def with_evidence(learned: Learned, dataset: NoisyDataset) -> Learned:
    """The same, with what the neighbours of the suspects say; for rows in which near means alike."""
    found = find_evidence(dataset.inputs, dataset.given_labels, learned.suspects)
    return replace(learned, suspects=replace(learned.suspects, evidence=found))
