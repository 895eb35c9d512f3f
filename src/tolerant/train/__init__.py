"""Training: models, the loop, pruning, checkpoints, several runs side by side.

`loop.train` describes what to do in a `job.Job` and gives it to a `fleet.Fleet`, which serves one `run.Run`
or several in turn. A run has `rows` on the device and a `capture.Stepper` that trains on them; `optim` holds
the weights, `measure` takes the numbers of an epoch, `prune` decides which rows train, `checkpoint` saves.
"""

from tolerant.train.engine.device_rows import Preprocess
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Callback, Job, TrainResult
from tolerant.train.engine.loop import train
from tolerant.train.engine.measure import DivergedError
from tolerant.train.engine.recipe import Recipe
from tolerant.train.networks.models import MODELS, build
from tolerant.train.rounds.pruner import Pruner, PruneSchedule

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
