"""Features of a pretrained model: what it learnt from millions of others helps with a few thousand.

`find` knows the extractors by name (`bundled` ones install whole, `hubs` fetch by name, `own_file` is yours),
`extract` computes their vectors, and `cache` keeps them.
"""

from tolerant.data.features.bundled import BUNDLED
from tolerant.data.features.cache import cache_root, clear, stored
from tolerant.data.features.extract import FeatureRows, extract
from tolerant.data.features.extractor import Extractor, Identity
from tolerant.data.features.find import (
    default_extractor,
    list_extractors,
    load_body,
    load_extractor,
    load_known,
)

__all__ = [
    "BUNDLED",
    "Extractor",
    "FeatureRows",
    "Identity",
    "cache_root",
    "clear",
    "default_extractor",
    "extract",
    "list_extractors",
    "load_body",
    "load_extractor",
    "load_known",
    "stored",
]
