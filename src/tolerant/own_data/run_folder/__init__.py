"""A run folder: a trained model, how it was trained, and what it doubts.

model.safetensors   of a network: weights, and what is subtracted from and multiplied with the inputs
model.classifiers   of classifiers: what they have learnt, without pickle
spec.json           where the rows came from, how they become inputs, model, loss, recipe; written last
history.json        one record per epoch of a network
audit.safetensors   of every row: the label trained on, whether a person decided it, out-of-fold
                    probabilities, pruning, a digest of its inputs
suspects.csv        the doubtful labels, most doubtful first
rows.csv            all rows with what is thought of their labels, where asked for
report.html         the page to review them on
sample.html         the page of a random sample, where asked for
earlier-1 ...       runs of other data or settings that were here before

Spec, model and audit hold one digest of the run, so that files of two are not taken for one. While a process
writes here it holds .tolerant.lock, and checkpoints/ lies here until all is written.

`save` writes one, `load` reads it back, `layout` knows its files, `in_use` who may write and what a kill has
left, `same_data` whether its rows have changed.
"""

from tolerant.own_data.run_folder.in_use import remove_checkpoints, remove_finished_checkpoints, using
from tolerant.own_data.run_folder.layout import holds_run
from tolerant.own_data.run_folder.load import SavedRun, load_run
from tolerant.own_data.run_folder.save import save_run, write_list_and_page

__all__ = [
    "SavedRun",
    "holds_run",
    "load_run",
    "remove_checkpoints",
    "remove_finished_checkpoints",
    "save_run",
    "using",
    "write_list_and_page",
]
