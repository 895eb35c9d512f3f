"""Data sets: published ones and your own, as arrays; torch only in `augment` and `batches`.

`sources.load` picks the reader: `cifar`, `fashion_mnist` and `digits` for the published ones (`published`
knows their files, `fetch` and `unpack` get them); `folder`, `table` and `arrays` for your own.
"""

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoder import TableEncoder
from tolerant.data.fetch import download
from tolerant.data.published import PUBLISHED, data_root
from tolerant.data.sources import NAMED, load
from tolerant.data.split import split_validation

__all__ = [
    "NAMED",
    "PUBLISHED",
    "NoisyDataset",
    "TableEncoder",
    "data_root",
    "download",
    "load",
    "split_validation",
]
