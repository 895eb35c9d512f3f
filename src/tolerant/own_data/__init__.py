"""From a path to a model: what `tolerant train` and `NoisyLabelClassifier` do with rows nobody has tuned for.

`plan` chooses model and recipe, `folds` says which rows go together, `out_of_fold` trains and scores, `learn`
makes a model and a list of suspects of that, and `run_folder` keeps them.
"""
