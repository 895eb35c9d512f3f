"""A run's network as one file that runs without this package, and a card that says what it is."""

from tolerant.own_data.exported.write import write_model

__all__ = ["write_model"]
