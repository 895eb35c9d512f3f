"""Experiments: what a run is (spec), many of them (grid), doing them, and the store of their rows."""
