"""Training: networks, the loop, and the rounds that decide which rows train.

`train` describes what to do in a `Job` and gives it to a `Fleet`, which serves one `Run` or several in turn.
`engine/loop.py` shows an epoch whole. A run has its rows on the device (`device_rows`), a `Stepper` that
trains on them (`capture`), the network's `weights` with their optimiser, and an `Alternation` (`rounds`), in
which the best model so far decides which rows train. `measure` takes the numbers of an epoch; `resume` saves
and reads back.

| word | meaning |
|---|---|
| weights | of the network |
| sample weight | how much a row counts; of mean 1 |
| class weight | how much the rows of a class count: the ``weight`` of a loss, as in torch |
| rows | `Rows`: inputs and labels of one split on the device; a data set that a user passes |
| index | numbers of rows in their split |
| kept | bool by row: True trains |
| record | the numbers of one epoch; the history is a list of them |
"""

from tolerant.data.standardise import Preprocess
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.display import ProgressMode
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Callback, Job, Record
from tolerant.train.engine.loop import Run
from tolerant.train.engine.measure import DivergedError
from tolerant.train.engine.ranks import join_ranks
from tolerant.train.engine.recipe import Recipe
from tolerant.train.engine.result import TrainResult
from tolerant.train.engine.train_job import train
from tolerant.train.networks import NETWORKS, Network, build
from tolerant.train.rounds.alternation import Alternation
from tolerant.train.rounds.guards import MOSTLY_RIGHT, Guards
from tolerant.train.rounds.pruner import Pruner
from tolerant.train.rounds.relabel import Relabel
from tolerant.train.rounds.round import Round
from tolerant.train.rounds.schedule import PruneSchedule

__all__ = [
    "MOSTLY_RIGHT",
    "NETWORKS",
    "Alternation",
    "Callback",
    "DivergedError",
    "Fleet",
    "Guards",
    "Job",
    "Network",
    "Preprocess",
    "ProgressMode",
    "PruneSchedule",
    "Pruner",
    "Recipe",
    "Record",
    "Relabel",
    "Round",
    "Run",
    "TrainResult",
    "build",
    "join_ranks",
    "pick_device",
    "predict_log_proba",
    "train",
]
