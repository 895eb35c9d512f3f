"""Training: models, the loop, pruning, checkpoints, several runs side by side."""

from tolerant.train.evaluate import predict_log_proba
from tolerant.train.fleet import Fleet
from tolerant.train.job import Callback, Job, TrainResult
from tolerant.train.loop import train
from tolerant.train.measure import DivergedError
from tolerant.train.models import MODELS, build
from tolerant.train.prune import Pruner, PruneSchedule
from tolerant.train.recipe import Recipe
from tolerant.train.rows import Preprocess

__all__ = [
    "MODELS",
    "Callback",
    "DivergedError",
    "Fleet",
    "Job",
    "Preprocess",
    "PruneSchedule",
    "Pruner",
    "Recipe",
    "TrainResult",
    "build",
    "predict_log_proba",
    "train",
]
