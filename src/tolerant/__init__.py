"""Train classifiers on labels that are partly wrong, and find the wrong ones."""

__version__ = "0.1.0"
