"""A run's model as one file that runs without this package, and a card that says what it is."""

from tolerant.own_data.exported.write import is_part, write_model

__all__ = ["is_part", "write_model"]
