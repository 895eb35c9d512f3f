"""One module for each kind of rows: `folder` and `listed` pictures, `table`, `texts`, `npz`.

A reader has two functions. ``load_x(path, *, options)`` returns a `NoisyDataset` to train on; ``read_x(path,
encoder, *, options)`` returns the inputs of new rows, as `InputEncoder` takes them. `tolerant.data.source`
picks the reader. What they share: `row_files` opens tables (`arrow_files` those of Parquet; `hub` finds
the files of a hub's data set), `labels` reads labels, `pictures` decodes.
"""
