"""From a path to a model: what `tolerant train` and `NoisyLabelClassifier` do with rows nobody has tuned for.

1. `train_source` reads the rows, with what people have corrected in their labels (`corrected_rows`).
2. `learn` deals the rows into `folds` and scores each with models fitted to the other folds: `classifiers`,
   or a network (`learn_network`, `candidate`, `out_of_fold`). `doubts` lists the suspects by these scores.
3. The final model trains on the rows whose label is `believed`.
4. The `run_folder` keeps it all.

What a user may set is in `settings`; what they leave open, `plan` and `network` choose by the rows.
"""

from tolerant.own_data.learned import Learned
from tolerant.own_data.plan import make_job
from tolerant.own_data.run_folder import SavedRun, load_run
from tolerant.own_data.settings import Settings

__all__ = ["Learned", "SavedRun", "Settings", "load_run", "make_job"]
