"""The features of rows: from the cache where they are in it, else computed batch by batch and put there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from tolerant.data.dataset import Inputs
from tolerant.data.digest import row_digest, row_digests
from tolerant.data.features.cache import FeatureCache, StoredRows, cache_root
from tolerant.data.features.extractor import Extractor
from tolerant.progress import progress_bar

_BLOCK = 1024  # rows


class FeatureRows:
    """Features as the inputs of a table, float32 (N, D), read from the cache when asked for.

    A row's features are the mean over its views.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, stored: StoredRows, places: np.ndarray, digests: np.ndarray) -> None:
        self._stored, self._places, self.digests = stored, places, digests
        self.shape = (len(places), stored.shape[2])

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> np.ndarray:
        places = np.asarray(self._places[index])
        found = np.empty((places.size, self.shape[1]), np.float32)
        for start in range(0, places.size, _BLOCK):  # the views of all would take twice the memory
            part = slice(start, start + _BLOCK)
            self._stored[places.reshape(-1)[part]].mean(-2, dtype=np.float32, out=found[part])
        return found.reshape(*places.shape, self.shape[1])

    def views(self, index: Any) -> np.ndarray:
        """float16 (n, views, D)."""
        return self._stored[self._places[index]]


class Compute(Protocol):
    """Puts the features of the rows ``missing`` into the cache, under their digests."""

    def __call__(
        self,
        inputs: Inputs,
        digests: np.ndarray,
        missing: np.ndarray,
        extractor: Extractor,
        cache: FeatureCache,
    ) -> None: ...


def extract(inputs: Inputs, extractor: Extractor, compute: Compute | None = None) -> FeatureRows:
    """The features of pictures, uint8 (N, H, W, C), or of texts, (N,) of str.

    Rows that hold the same are computed once, and those that were computed before not at all. The cache
    grows by every batch: after a kill the same call goes on, with at most a batch lost. ``compute`` says
    where: `compute_here`, or on a cluster (`on_ray`).
    """
    digests = _digests(inputs)
    _, first = np.unique(digests, return_index=True)
    dim = extractor(_take(inputs, first[:1])).shape[2] if len(first) else 1
    cache = FeatureCache(cache_root(), extractor.identity, views=extractor.views, dim=dim)
    while True:
        with cache.locked():  # no other process clears the rows between these two
            places, stored = cache.find(digests), cache.rows()
        missing = first[places[first] < 0]
        if not len(missing):
            return FeatureRows(stored, places, digests)
        cache.make_room(len(missing), digests)
        (compute or compute_here)(inputs, digests, missing, extractor, cache)


def compute_here(
    inputs: Inputs, digests: np.ndarray, missing: np.ndarray, extractor: Extractor, cache: FeatureCache
) -> None:
    """Batch by batch, in this process."""
    what = "pictures" if extractor.kind == "image" else "texts"
    done = 0
    with progress_bar(f"features of {what} ({extractor.identity.name})", total=len(missing)) as bar:
        for index, rows in _ahead(inputs, _batches(inputs, missing, extractor)):
            cache.append(digests[index], extractor(rows))
            done += len(index)
            bar.update(done)


def _batches(inputs: Inputs, missing: np.ndarray, extractor: Extractor) -> list[np.ndarray]:
    """Texts of like length together, so that little is padded; the batches in a random order.

    Were the short ones first, the time that is left would be estimated too low.
    """
    if extractor.kind == "text":
        lengths = np.array([len(str(inputs[row])) for row in missing])
        missing = missing[np.argsort(lengths, kind="stable")]
    size = extractor.batch_size
    batches = [missing[start : start + size] for start in range(0, len(missing), size)]
    order = np.random.default_rng(0).permutation(len(batches)) if extractor.kind == "text" else None
    return batches if order is None else [batches[place] for place in order]


def _ahead(inputs: Inputs, batches: list[np.ndarray]) -> Iterator[tuple[np.ndarray, Any]]:
    """Each batch and its rows; the next one is decoded while the last is computed."""
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(_take, inputs, batches[0])
        for number, index in enumerate(batches):
            rows = waiting.result()
            if number + 1 < len(batches):
                waiting = reader.submit(_take, inputs, batches[number + 1])
            yield index, rows


def _take(inputs: Inputs, index: np.ndarray) -> Any:
    return np.asarray(inputs[index])


def _digests(inputs: Inputs) -> np.ndarray:
    """Of what the rows hold; equal bytes of another width are another picture."""
    shape = row_digest(np.array(inputs.shape[1:], np.int64))
    return row_digests(inputs) ^ np.int64(shape)
