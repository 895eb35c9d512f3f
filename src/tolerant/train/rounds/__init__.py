"""Which rows train: scored by the model so far, then kept or left out."""
