"""Data sets: published ones and your own, as arrays; torch only in `augment` and `batches`.

`cards` says which sets have a name, `published` gets and reads them; `sources.load` picks the reader:
`folder`, `table` and `arrays` for your own.
"""

from tolerant.data.cards import CARDS, Card, downloads
from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoder import TableEncoder
from tolerant.data.published.download import Download, data_root
from tolerant.data.published.fetch import download
from tolerant.data.sources import load
from tolerant.data.split import split_validation

__all__ = [
    "CARDS",
    "Card",
    "Download",
    "NoisyDataset",
    "TableEncoder",
    "data_root",
    "download",
    "downloads",
    "load",
    "split_validation",
]
