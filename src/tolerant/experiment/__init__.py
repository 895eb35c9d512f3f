"""Experiments: what a run is, many of them, doing them, and the store of their rows.

A `spec.RunSpec` says what to do; a `grid` is a list of them, those of the paper in `gce2018`. `run.run` does
what is not stored yet, on one of the `engines` or a `cluster`: a process takes a `claim` on a spec, trains it
(`work`), and adds its row to the `store`.
"""
