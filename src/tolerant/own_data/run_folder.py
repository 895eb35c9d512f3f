"""A run folder: a trained model, how it was trained, and what it doubts.

model.safetensors   weights, and what is subtracted from and multiplied with the inputs
spec.json           where the rows came from, how they become inputs, model, loss, recipe; written last
history.json        one record per epoch
audit.safetensors   of every row: the label trained on, whether a person decided it, out-of-fold
                    probabilities, pruning, a digest of its inputs
suspects.csv        the doubtful labels, most doubtful first
report.html         the page to review them on
earlier-1 ...       runs of other data or settings that were here before
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.dataset import NoisyDataset
from tolerant.data.digest import row_digests
from tolerant.extras import extra
from tolerant.files import make_folder, read_json, write_atomic, write_json
from tolerant.own_data.learn import Learned
from tolerant.own_data.source import Features, Source
from tolerant.review.corrections import CorrectedLabels
from tolerant.review.page import write_page
from tolerant.suspects.find import Suspects, find_suspects
from tolerant.train.engine.device_rows import Preprocess
from tolerant.train.networks.models import build, input_size

FORMAT = 2
# In the order in which a run is set aside; if that is interrupted, the rest is set aside the next time.
_FILES = (
    "model.safetensors",
    "audit.safetensors",
    "history.json",
    "suspects.csv",
    "report.html",
    "spec.json",
)
_NAMES = "|".join(map(re.escape, _FILES))
# All that a run may leave in its folder, including the temporary file of an interrupted write.
_OURS = re.compile(rf"checkpoints|earlier-\d+|{_NAMES}|\.({_NAMES})\.\w+")
_CURVES = {
    "train_loss": "training loss",
    "validation_accuracy": "held-out rows labelled as given",
    "kept_fraction": "kept, of the rows that the folds left in",
}


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run folder, read back."""

    folder: Path
    spec: dict[str, Any]
    source: Source
    features: Features
    model: nn.Module
    preprocess: Preprocess

    def load_rows(self) -> NoisyDataset:
        """The data it was trained on, as it is now; a table is encoded as it was in training."""
        return self.source.load(self.features.encoder)


def save_run(
    folder: str | os.PathLike[str],
    learned: Learned,
    dataset: NoisyDataset,
    *,
    source: Source,
    features: Features,
    version: str,
    fingerprint: str,
    digests: np.ndarray,
    corrected: CorrectedLabels,
    labels: Sequence[str | os.PathLike[str]],
    limit: int,
) -> None:
    """Write all files of a run; ``dataset`` holds the rows as loaded (texts as texts, labels uncorrected).

    ``digests`` are those of its inputs (`row_digests`).
    A run with another ``fingerprint`` that lies there is set aside; the same one is written again.
    """
    folder, source = Path(folder), source.absolute()  # so that even "." has a name
    make_folder(folder)
    _set_aside(folder, fingerprint)
    (folder / "spec.json").unlink(missing_ok=True)  # until all is written, the folder holds no run
    result, job = learned.result, learned.job
    preprocess = result.preprocess
    _write_tensors(
        folder / "model.safetensors",
        {
            **{f"model/{name}": tensor for name, tensor in result.model.state_dict().items()},
            "preprocess/mean": torch.from_numpy(preprocess.mean),
            "preprocess/scale": torch.from_numpy(preprocess.scale),
        },
    )
    audit = {
        "given_labels": corrected.given_labels,
        "reviewed": corrected.reviewed,
        "probs": learned.probs,
        "kept": learned.kept,
        "pruned_at": learned.pruned_at,
        "input_digests": digests,
    }
    _write_tensors(folder / "audit.safetensors", {n: torch.from_numpy(a) for n, a in audit.items()})
    write_json(folder / "history.json", result.history)
    learned.suspects.to_csv(folder / "suspects.csv")
    write_review(folder, learned.suspects, dataset, result.history, title=Path(source.name).name, limit=limit)
    write_json(
        folder / "spec.json",
        {
            "format": FORMAT,
            "version": version,
            "fingerprint": fingerprint,
            "source": asdict(source),
            "labels": [os.path.abspath(path) for path in labels],
            "label_digest": _digest(dataset),
            "features": features.to_dict(),
            "preprocess": preprocess.kind,
            "model": job.model,
            "model_args": {n: list(v) if isinstance(v, tuple) else v for n, v in job.model_args.items()},
            "loss": job.loss,
            "loss_args": dict(job.loss_args),
            "k": learned.k,
            "recipe": result.recipe.to_dict(),
            "epoch": result.epoch,
            "validation_accuracy": result.validation_accuracy,
        },
    )


def write_review(
    folder: Path,
    suspects: Suspects,
    dataset: NoisyDataset,
    history: Sequence[Mapping[str, Any]],
    *,
    title: str,
    limit: int,
) -> None:
    """Write ``report.html``."""
    write_page(
        folder / "report.html",
        suspects,
        dataset,
        title=title,
        history={words: [record.get(name) for record in history] for name, words in _CURVES.items()},
        limit=limit,
    )


def _set_aside(folder: Path, fingerprint: str) -> None:
    path = folder / "spec.json"
    if not path.exists():
        return
    with suppress(ValueError):
        spec = read_json(path)
        if isinstance(spec, dict) and spec.get("fingerprint") == fingerprint:
            return
    number = next(n for n in count(1) if not (folder / f"earlier-{n}").exists())
    earlier = folder / f"earlier-{number}"
    earlier.mkdir()
    for name in _FILES:
        with suppress(FileNotFoundError):
            (folder / name).replace(earlier / name)
    warnings.warn(
        f"{folder} held a run of other data or settings, which is in {earlier} now. "
        "To keep both side by side give another folder: --out",
        stacklevel=4,
    )


def unfinished(folder: str | os.PathLike[str]) -> bool:
    """Whether a training was stopped here, perhaps while it wrote its files; not a folder of pictures."""
    folder = Path(folder)
    if (folder / "spec.json").exists() or not (folder / "checkpoints").is_dir():
        return False
    return all(_OURS.fullmatch(path.name) for path in folder.iterdir())


def load_run(folder: str | os.PathLike[str]) -> SavedRun:
    """Read a run folder back; a ValueError says what is wrong with it."""
    folder = Path(folder)
    path = folder / "spec.json"
    if unfinished(folder):
        raise ValueError(
            f"{folder} holds a training that was stopped. The same `tolerant train` command resumes it."
        )
    if not path.is_file():
        raise ValueError(f"{folder} is not a finished run (no spec.json). Make one with: tolerant train")
    spec = read_json(path)
    if not isinstance(spec, dict) or spec.get("format") != FORMAT:
        found = spec.get("format") if isinstance(spec, dict) else None
        version = f" (tolerant {spec.get('version')})" if isinstance(spec, dict) else ""
        raise ValueError(
            f"{path} has format {found!r}{version}; this version reads format {FORMAT}. "
            "Train again, or use the version that wrote it."
        )
    with _damage_named(folder):
        source = Source(**spec["source"])
        features = Features.from_dict(spec["features"])
        tensors = _read_tensors(folder / "model.safetensors")
        model = _build(spec, features)
        weights = {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}
        model.load_state_dict(weights)
        mean, scale = tensors["preprocess/mean"].numpy(), tensors["preprocess/scale"].numpy()
        preprocess = Preprocess(spec["preprocess"], mean, scale)
    return SavedRun(folder, spec, source, features, model.eval(), preprocess)


def load_suspects(run: SavedRun, dataset: NoisyDataset) -> Suspects:
    """The run's suspects, from its stored probabilities.

    A ValueError if ids or labels have changed. Edited inputs give a warning only, since whoever corrects a
    few cells may still want the list of the others.
    """
    with _damage_named(run.folder):
        if run.spec["label_digest"] != _digest(dataset):
            raise ValueError(
                f"the rows or labels of {run.source.name} are not those of {run.folder}. Train again."
            )
        tensors = {n: t.numpy() for n, t in _read_tensors(run.folder / "audit.safetensors").items()}
        if "input_digests" in tensors:  # older runs have none
            _warn_of_edits(run, dataset, tensors["input_digests"])
        kept = tensors["kept"]
        pruned = run.spec["k"] is not None or not kept.all()  # in training, or by the folds alone
        return find_suspects(
            tensors["given_labels"],
            tensors["probs"],
            ids=dataset.ids,
            class_names=dataset.class_names,
            kept=kept if pruned else None,
            pruned_at=tensors["pruned_at"] if pruned else None,
            reviewed=tensors["reviewed"],
            original_labels=dataset.given_labels,
            groups=dataset.groups,
            seed=run.spec["recipe"]["seed"],
        )


def load_history(run: SavedRun) -> list[dict[str, Any]]:
    """One record per epoch."""
    history = read_json(run.folder / "history.json")
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise ValueError(f"{run.folder / 'history.json'} does not hold a record for each epoch. Train again.")
    return history


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except (IndexError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{folder} is damaged: {error!r}. Train again.") from error


def _warn_of_edits(run: SavedRun, dataset: NoisyDataset, digests: np.ndarray) -> None:
    edited = np.flatnonzero(digests != row_digests(dataset.inputs))
    if len(edited):
        warnings.warn(
            f"{len(edited):,} of the {len(dataset):,} rows of {run.source.name} have been edited since "
            f"{run.folder} was trained (first: {dataset.ids[edited[0]]}): the list and the page judge their "
            "labels by the old content. Train again to have them judged by the new one.",
            stacklevel=3,
        )


def _build(spec: Mapping[str, Any], features: Features) -> nn.Module:
    size = input_size(features.kind, features.shape)
    return build(spec["model"], len(features.class_names), **size, **spec["model_args"])


def _digest(dataset: NoisyDataset) -> str:
    words = "\0".join(map(str, dataset.ids.tolist()))
    return hashlib.sha256(words.encode() + dataset.given_labels.tobytes()).hexdigest()


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(path, extra("safetensors.torch").save(whole))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return dict(extra("safetensors.torch").load(path.read_bytes()))
    except (OSError, extra("safetensors").SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Train again.") from error
