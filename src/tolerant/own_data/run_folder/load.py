"""A run folder, read back; a ValueError says what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tolerant.checks import check_prior, check_rate, check_words
from tolerant.data import InputEncoder, NoisyDataset, Source
from tolerant.data.digest import label_digest
from tolerant.data.source import is_path
from tolerant.data.standardise import Preprocess
from tolerant.files import read_json
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.disk import read_classifiers
from tolerant.own_data.doubts import find_doubts
from tolerant.own_data.reasons import find_reasons
from tolerant.own_data.run_folder.in_use import holder
from tolerant.own_data.run_folder.layout import (
    CURVES,
    DIGEST,
    EVIDENCE,
    FORMAT,
    PART,
    READABLE,
    check_digest,
    holds_stopped_training,
    read_tensors,
)
from tolerant.own_data.run_folder.places import found_features, found_path, found_source
from tolerant.own_data.run_folder.same_data import warn_of_edits
from tolerant.review.page import Reason
from tolerant.suspects import Suspects
from tolerant.suspects.evidence import Evidence
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.evaluate import predict_log_proba
from tolerant.train.networks import build, input_size
from tolerant.train.networks.network_committee import NetworkCommittee


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network, and what happens to its inputs."""

    model: nn.Module
    preprocess: Preprocess

    def probs(self, dataset: NoisyDataset, device: torch.device) -> np.ndarray:
        """float32 [N, C]."""
        return np.exp(predict_log_proba(self.model, dataset, self.preprocess, device=device))


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A trained model, the data it was trained on, and what was said of their labels."""

    folder: Path
    spec: dict[str, Any]
    source: Source
    encoder: InputEncoder
    model: Network | Committee
    audit: dict[str, np.ndarray]
    """What `audit.safetensors` holds: arrays by name, with an entry for every row."""

    @property
    def title(self) -> str:
        """What the data is called."""
        return Path(os.path.abspath(self.source.name)).name

    def load_rows(self) -> NoisyDataset:
        """The data it was trained on, as it is now; a table is encoded as it was in training.

        A ValueError if ids or labels have changed. Rows that a person has dropped are not there, and what
        stood in place of the labels of the source does.
        """
        name = self.source.name
        if is_path(name) and not Path(name).expanduser().exists():
            raise FileNotFoundError(
                f"the rows of {self.folder} are not at {name}, as seen from it. Put them there, or beside it "
                "under that name, or train again."
            )
        rows = self.source.load(self.encoder, at_most=self.encoder.at_most)
        with _naming_damage(self.folder):
            if self.spec["label_digest"] != label_digest(rows.ids, rows.given_labels):
                raise ValueError(
                    f"the rows or labels of {self.source.name} are not those of {self.folder}. Train again."
                )
            if dropped := self.spec.get("dropped"):  # older runs have none
                rows = rows.subset(np.delete(np.arange(len(rows)), dropped))
            return rows.with_given_labels(self.audit.get("original_labels", rows.given_labels))

    def probs(self, dataset: NoisyDataset, *, device: str = "auto") -> np.ndarray:
        """float32 [N, C]: what the model predicts for these rows."""
        if isinstance(self.model, Committee):
            probs = self.model.probs(dataset)
        else:
            probs = self.model.probs(dataset, pick_device(device))
        bad = np.flatnonzero(~np.isfinite(probs).all(axis=1))
        if len(bad):  # argmax would call them all the first class
            raise ValueError(
                f"the model of {self.folder} gives no numbers for {len(bad):,} of {len(probs):,} rows "
                f"(first: {dataset.ids[bad[0]]}): its file is damaged, or their values are far from those it "
                "was trained on. Check these rows, or train again."
            )
        return probs

    def reasons(self, dataset: NoisyDataset, suspects: Suspects) -> list[list[Reason]]:
        """Why each of the first suspects is one; ``dataset`` is what `load_rows` gives."""
        by_network = not isinstance(self.model, Committee)
        return find_reasons(self.probs, dataset, self.encoder, suspects, by_network=by_network)

    def label_counts(self) -> np.ndarray:
        """int64 [C]: how many of the training rows had each label."""
        with _naming_damage(self.folder):
            return np.bincount(self.audit["given_labels"], minlength=len(self.encoder.class_names))

    @property
    def corrections(self) -> list[str]:
        """The files with which it was trained, oldest first."""
        found = self.spec.get("labels")
        if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
            raise ValueError(f"{self.folder / 'spec.json'} is damaged: labels is {found!r}. Train again.")
        return [found_path(path, self.folder) for path in found]

    def history(self) -> list[dict[str, Any]]:
        """One record per epoch."""
        history = read_json(self.folder / "history.json")
        if not isinstance(history, list) or not all(map(_is_record, history)):
            raise ValueError(
                f"{self.folder / 'history.json'} does not hold a record for each epoch. Train again."
            )
        return history

    def suspects(self, dataset: NoisyDataset) -> Suspects:
        """The run's suspects, from its stored probabilities; ``dataset`` is what `load_rows` gives.

        Edited inputs give a warning.
        """
        with _naming_damage(self.folder):
            stored = self.audit
            if "input_digests" in stored:  # older runs have none
                warn_of_edits(self.source.name, self.folder, dataset, stored["input_digests"])
            kept = stored["kept"]
            pruned = self.spec["k"] is not None or not kept.all()  # in training, or by the folds alone
            prior = self.spec.get("doubt_prior")  # older runs have none
            found = find_doubts(
                stored["given_labels"],
                stored["probs"],
                None if prior is None else check_prior(prior, dataset.num_classes, "doubt_prior"),
                check_rate(self.spec.get("doubt_tau", 0.0), "doubt_tau"),
                of_true=self.spec.get("doubt_of_true", False),
                rate_probs=stored.get("rate_probs"),
                ids=dataset.ids,
                class_names=dataset.class_names,
                kept=kept if pruned else None,
                pruned_at=stored["pruned_at"] if pruned else None,
                reviewed=stored["reviewed"],
                original_labels=dataset.given_labels,
                groups=dataset.groups,
                seed=self.spec["seed"] if "seed" in self.spec else self.spec["recipe"]["seed"],
            )
            if "trained_as" in stored:
                found = replace(found, trained_as=stored["trained_as"][found.index])
            if self.spec.get("rate_is_lower_bound"):  # older runs do not say
                found = found.with_lower_bound()
            if len(found) and all(len(stored.get(name, ())) == len(found) for name in EVIDENCE):
                found = replace(found, evidence=Evidence(*(stored[name] for name in EVIDENCE)))
            return found


def load_run(folder: str | os.PathLike[str]) -> SavedRun:
    """Read a run folder back."""
    folder = Path(folder)
    spec = _read_spec(folder)
    with _naming_damage(folder):
        source, encoder = _read_source(folder, spec)
        model: Network | Committee
        if "classifiers" in spec:
            model = _read_classifiers(folder, spec, len(encoder.class_names))
        else:
            model = _read_network(folder, spec, encoder)
        audit = read_tensors(folder / "audit.safetensors", spec.get(DIGEST))
    return SavedRun(folder, spec, source, encoder, model, {name: t.numpy() for name, t in audit.items()})


def _read_source(folder: Path, spec: dict[str, Any]) -> tuple[Source, InputEncoder]:
    try:
        source = found_source(spec["source"], folder)
        return source, InputEncoder.from_dict(found_features(spec["features"], folder))
    except ValueError as error:
        raise ValueError(f"{folder / 'spec.json'} is damaged: {error} Train again.") from error


def _read_classifiers(folder: Path, spec: dict[str, Any], num_classes: int) -> Committee:
    if spec["format"] < FORMAT:
        raise ValueError(
            f"{folder} has classifiers in the form of an earlier version (format {spec['format']}), which "
            "this one does not read. Train again."
        )
    fitted, found = read_classifiers(folder / "model.classifiers")
    names = check_words(spec["classifiers"], "classifiers")
    if not names:
        raise ValueError(f"{folder / 'spec.json'} is damaged: it names no classifier. Train again.")
    check_digest(folder / "model.classifiers", found, spec.get(DIGEST))
    rows = {name: CLASSIFIERS[name].rows for name in names}
    prior = check_prior(spec["prior"], num_classes)
    return Committee({name: fitted[name] for name in names}, rows, prior, check_rate(spec["tau"], "tau"))


def _read_network(folder: Path, spec: dict[str, Any], encoder: InputEncoder) -> Network:
    tensors = read_tensors(folder / "model.safetensors", spec.get(DIGEST))
    size = input_size(encoder.encoded_kind, encoder.shape)
    options = {**size, **spec["model_args"], "dropout": spec["recipe"]["dropout"]}
    model = build(spec["model"], len(encoder.class_names), **options)
    if spec["recipe"].get("mirror"):
        model = NetworkCommittee([model], mirror=True)
    model.load_state_dict({n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")})
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{folder / 'model.safetensors'} holds no numbers in {name!r}. Train again.")
    mean, scale = tensors["preprocess/mean"].numpy(), tensors["preprocess/scale"].numpy()
    return Network(model.eval(), Preprocess(spec["preprocess"], mean, scale))


def _read_spec(folder: Path) -> dict[str, Any]:
    path = folder / "spec.json"
    if (who := holder(folder)) and not path.is_file():
        raise ValueError(f"{folder} is not finished: {who} trains there. Wait until it ends.")
    if holds_stopped_training(folder) or (folder / PART).exists():
        raise ValueError(
            f"{folder} holds a training that was stopped. The same `tolerant train` command resumes it."
        )
    if not path.is_file():
        raise ValueError(f"{folder} is not a finished run (no spec.json). Make one with: tolerant train")
    spec = read_json(path)
    if not isinstance(spec, dict) or spec.get("format") not in READABLE:
        found = spec.get("format") if isinstance(spec, dict) else None
        version = f" (tolerant {spec.get('version')})" if isinstance(spec, dict) else ""
        raise ValueError(
            f"{path} has format {found!r}{version}; this version reads format {FORMAT}. "
            "Train again, or use the version that wrote it."
        )
    return spec


def _is_record(record: Any) -> bool:
    """Numbers, or what was not measured."""
    return isinstance(record, dict) and all(
        value is None or isinstance(value, int | float) for value in (record.get(name) for name in CURVES)
    )


@contextmanager
def _naming_damage(folder: Path) -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RuntimeError) as error:
        raise ValueError(f"{folder} is damaged: {error!r}. Train again.") from error
