"""A run, written to its folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tolerant import __version__
from tolerant.data.dataset import NoisyDataset
from tolerant.files import make_folder, write_json
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.disk import write_classifiers
from tolerant.own_data.corrected_rows import CorrectedRows
from tolerant.own_data.learned import Learned
from tolerant.own_data.reasons import find_reasons
from tolerant.own_data.run_folder.in_use import set_aside
from tolerant.own_data.run_folder.layout import CURVES, DIGEST, EVIDENCE, FORMAT, write_tensors
from tolerant.own_data.run_folder.places import stored_features, stored_path, stored_source
from tolerant.review.page import Reason, write_page
from tolerant.suspects import Suspects
from tolerant.train import TrainResult


def save_run(
    folder: str | os.PathLike[str], learned: Learned, data: CorrectedRows, *, fingerprint: str, limit: int
) -> None:
    """Write all files of a run; a run with another ``fingerprint`` that lies there is set aside.

    The caller is `using` the folder.
    ``limit`` is the most suspects on the page.
    """
    folder = Path(folder)
    make_folder(folder)
    set_aside(folder, fingerprint)
    (folder / "spec.json").unlink(missing_ok=True)  # until all is written, the folder holds no run
    digest = _digest(fingerprint, learned)
    model = _write_model(folder, learned, digest)
    history = learned.fitted.history if isinstance(learned.fitted, TrainResult) else []
    write_tensors(folder / "audit.safetensors", _audit(learned, data), digest)
    write_json(folder / "history.json", history)
    title = Path(os.path.abspath(data.source.name)).name  # so that even "." has a name
    by_network = isinstance(learned.fitted, TrainResult)
    reasons = find_reasons(
        learned.predict, data.dataset, data.encoder, learned.suspects, by_network=by_network
    )
    write_list_and_page(folder, learned.suspects, data.dataset, history, reasons, title=title, limit=limit)
    spec = {**_spec(folder, learned, data), "fingerprint": fingerprint, DIGEST: digest, **model}
    write_json(folder / "spec.json", spec)


def _audit(learned: Learned, data: CorrectedRows) -> dict[str, Tensor]:
    """What is known of every row, and the evidence about the suspects."""
    arrays = {
        "given_labels": data.corrected.given_labels,
        "original_labels": data.dataset.given_labels,
        "reviewed": data.corrected.reviewed,
        "probs": learned.probs,
        "kept": learned.kept,
        "pruned_at": learned.pruned_at,
        "input_digests": data.input_digests,
    }
    if learned.trained_as is not None:
        arrays["trained_as"] = learned.trained_as
    if learned.rate_probs is not None:
        arrays["rate_probs"] = learned.rate_probs
    if (evidence := learned.suspects.evidence) is not None:
        arrays |= {name: getattr(evidence, name) for name in EVIDENCE}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _spec(folder: Path, learned: Learned, data: CorrectedRows) -> dict[str, Any]:
    """Where the rows came from, how they became inputs, and what was said of them; not of the model."""
    return {
        "format": FORMAT,
        "version": __version__,
        "source": stored_source(data.source, folder),
        "labels": [stored_path(path, folder) for path in data.corrections],
        "label_digest": data.label_digest,
        "dropped": data.dropped.tolist(),
        "features": stored_features(data.encoder.to_dict(), folder),
        "seed": learned.seed,
        "k": learned.k,
        "doubt_prior": None if learned.doubt_prior is None else learned.doubt_prior.tolist(),
        "doubt_tau": learned.doubt_tau,
        "doubt_of_true": learned.doubt_of_true,
        "rate_is_lower_bound": learned.suspects.noise_rate.at_least,
        "tried": [asdict(tried) for tried in learned.tried],
    }


def _digest(fingerprint: str, learned: Learned) -> str:
    """A digest of what was trained and what came out: only the same training gives the same one."""
    return hashlib.sha256(fingerprint.encode() + learned.probs.tobytes()).hexdigest()[:32]


def _write_model(folder: Path, learned: Learned, digest: str) -> dict[str, Any]:
    """Write what the model has learnt; what `spec.json` says of it."""
    if isinstance(learned.fitted, Committee):
        (folder / "model.safetensors").unlink(missing_ok=True)
        write_classifiers(folder / "model.classifiers", learned.fitted.fitted, digest)
        names, prior = list(learned.fitted.fitted), learned.fitted.prior.tolist()
        return {"classifiers": names, "prior": prior, "tau": learned.fitted.tau}
    (folder / "model.classifiers").unlink(missing_ok=True)
    result, job = learned.fitted, learned.training
    preprocess = result.preprocess
    write_tensors(
        folder / "model.safetensors",
        {
            **{f"model/{name}": tensor for name, tensor in result.model.state_dict().items()},
            "preprocess/mean": torch.from_numpy(preprocess.mean),
            "preprocess/scale": torch.from_numpy(preprocess.scale),
        },
        digest,
    )
    return {
        "preprocess": preprocess.kind,
        "model": job.model,
        "model_args": {n: list(v) if isinstance(v, tuple) else v for n, v in job.model_args.items()},
        "loss": job.loss,
        "loss_args": dict(job.loss_args),
        "recipe": result.recipe.to_dict(),
        "epoch": result.epoch,
        "validation_accuracy": result.validation_accuracy,
    }


def write_list_and_page(
    folder: Path,
    suspects: Suspects,
    dataset: NoisyDataset,
    history: Sequence[Mapping[str, Any]],
    reasons: Sequence[Sequence[Reason]] = (),
    *,
    title: str,
    limit: int,
) -> None:
    """Write ``suspects.csv`` and ``report.html``."""
    suspects.to_csv(folder / "suspects.csv")
    write_page(
        folder / "report.html",
        suspects,
        dataset,
        title=title,
        history={words: [record.get(name) for record in history] for name, words in CURVES.items()},
        reasons=reasons,
        limit=limit,
    )
