"""Features computed on a Ray cluster, by Ray Data, into the cache of this machine."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tolerant.data.dataset import Inputs
from tolerant.data.features.cache import FeatureCache
from tolerant.data.features.extractor import Extractor, Identity, Kind
from tolerant.data.features.find import load_known
from tolerant.extras import extra
from tolerant.progress import progress_bar
from tolerant.ray_cluster import connected


def compute_on_ray(
    inputs: Inputs,
    digests: np.ndarray,
    missing: np.ndarray,
    extractor: Extractor,
    cache: FeatureCache,
    *,
    address: str | None = None,
) -> None:
    """As `extract.compute_here`, on every GPU of the cluster, or on every core where it has none.

    Workers load the extractor by its name, and only the same weights serve. Picture files must lie where
    they see them. Only this process writes to the cache, batch by batch: a lost worker's batch is computed
    again, and after a kill of this process the same call goes on.
    """
    with connected(address) as ray:
        data, there = extra("ray.data", install="ray"), ray.cluster_resources()
        data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # its plans, and that it has no bar
        gpus = int(there.get("GPU", 0))
        encoder: dict[str, Any] = {
            "inputs": ray.put(inputs),
            "missing": missing,
            "identity": extractor.identity,
            "kind": extractor.kind,
            "device": "cuda" if gpus else "cpu",
        }
        pool = data.ActorPoolStrategy(min_size=1, max_size=gpus or max(1, int(there.get("CPU", 1))))
        parts = max(1, len(missing) // (4 * extractor.batch_size))
        places = data.range(len(missing), override_num_blocks=parts)
        found = places.map_batches(
            _Encode,
            batch_size=extractor.batch_size,
            fn_constructor_kwargs=encoder,
            compute=pool,
            num_cpus=0 if gpus else 1,
            num_gpus=1 if gpus else 0,
        )
        title, done = f"features on Ray ({extractor.identity.name})", 0
        try:
            with progress_bar(title, total=len(missing)) as bar:
                for batch in found.iter_batches(batch_size=None, batch_format="numpy"):
                    index = missing[batch["id"]]
                    cache.append(digests[index], np.asarray(batch["vectors"]))
                    bar.update(done := done + len(index))
        except ray.exceptions.RayError as error:
            said = str(error).strip().splitlines()
            raise RuntimeError(
                f"a worker of the Ray cluster failed: {said[-1] if said else error!r}. What was computed "
                "before is kept. Workers need tolerant, the extractor and the rows' files, as they are here"
            ) from error


class _Encode:
    """On a worker: the extractor, and the rows that are asked for by their place among the missing ones."""

    def __init__(
        self, *, inputs: Any, missing: np.ndarray, identity: Identity, kind: Kind, device: str
    ) -> None:
        self._inputs, self._missing = extra("ray").get(inputs), missing
        self._extractor = load_known(identity, kind, device)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = np.asarray(self._inputs[self._missing[batch["id"]]])
        return {"id": batch["id"], "vectors": self._extractor(rows)}
