"""The trainer, the losses and pruning as other libraries want them; each module needs its own extra."""
