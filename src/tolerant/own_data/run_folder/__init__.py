"""A run folder: a trained model, how it was trained, and what it doubts.

model.safetensors   of a network: weights, and what is subtracted from and multiplied with the inputs
model.skops         of classifiers: what they have learnt, without pickle
spec.json           where the rows came from, how they become inputs, model, loss, recipe; written last
history.json        one record per epoch of a network
audit.safetensors   of every row: the label trained on, whether a person decided it, out-of-fold
                    probabilities, pruning, a digest of its inputs
suspects.csv        the doubtful labels, most doubtful first
report.html         the page to review them on
earlier-1 ...       runs of other data or settings that were here before

`save` writes one, `load` reads it back, `layout` knows its files, `same_data` whether its rows have changed.
"""

from tolerant.own_data.run_folder.layout import holds_run
from tolerant.own_data.run_folder.load import SavedRun, load_run
from tolerant.own_data.run_folder.save import save_run, write_list_and_page

__all__ = ["SavedRun", "holds_run", "load_run", "save_run", "write_list_and_page"]
