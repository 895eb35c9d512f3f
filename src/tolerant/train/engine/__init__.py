"""The training loop: one run, several side by side, captured steps, checkpoints, ranks."""
