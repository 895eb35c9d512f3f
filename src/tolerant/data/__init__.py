"""Data sets: published ones and your own, as arrays; torch only in `augment` and `batches`.

`published_sets` says which sets have a name, `published` gets them; `source` picks one of the `readers` for
your own files; `encoders` turn columns and texts into numbers.
"""

from tolerant.data.dataset import NoisyDataset, split_validation
from tolerant.data.encoders.columns import TableEncoder
from tolerant.data.encoders.inputs import InputEncoder
from tolerant.data.encoders.text import TextEncoder
from tolerant.data.published.fetch import download
from tolerant.data.published.local_files import Download, data_root
from tolerant.data.published_sets import CARDS, Card, downloads
from tolerant.data.source import Source, load

__all__ = [
    "CARDS",
    "Card",
    "Download",
    "InputEncoder",
    "NoisyDataset",
    "Source",
    "TableEncoder",
    "TextEncoder",
    "data_root",
    "download",
    "downloads",
    "load",
    "split_validation",
]
