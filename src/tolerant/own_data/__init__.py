"""From a path to a model: what `tolerant train` and `NoisyLabelClassifier` do with rows nobody has tuned for.

The way of a row: `train_source` reads it into the `corrected_rows`, with what people have corrected, and has
`learn` make a model and a list of suspects. For that `folds` deals the rows out, and each is scored by models
fitted to the other folds; if its label is `believed` then, the final model trains on it. What is fitted are
`classifiers`, or a network (`learn_network`, `candidate`, `out_of_fold`), by the `settings` of the user and,
for what they leave open, by the `plan` (`network`). `warn_of_classes` tells of those that the
model never names, and the `run_folder` keeps it all.
"""

from tolerant.own_data.learned import Learned
from tolerant.own_data.plan import make_job
from tolerant.own_data.run_folder import SavedRun, load_run
from tolerant.own_data.settings import Settings

__all__ = ["Learned", "SavedRun", "Settings", "load_run", "make_job"]
