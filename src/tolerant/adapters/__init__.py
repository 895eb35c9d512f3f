"""The trainer, the losses and pruning for use with other libraries; each module needs its own extra."""
