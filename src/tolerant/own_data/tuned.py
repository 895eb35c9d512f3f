"""A pretrained network that goes on learning, from what a discriminant of its features makes of the labels.

Trained on the given labels it learns the wrong ones by heart. So each picture trains under the probabilities
of labels (`tolerant.train.rounds.relabel`) by what discriminants say that have not seen its own, and blended
with another. It begins as the discriminant of all rows: features that were taken once are the better ones
until it has learnt something, and the better ones of some pictures ever after. So in the end its weights are
taken between those of the beginning and those that it has learnt, which is better than either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.features import extract, load_extractor
from tolerant.own_data.candidate import NetworkCandidate
from tolerant.own_data.choose_features import Say
from tolerant.own_data.classifiers.cards import OF_FEATURES
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant, block
from tolerant.own_data.classifiers.kept_scores import KeptScores
from tolerant.own_data.classifiers.learn_committee import learn_committee
from tolerant.own_data.classifiers.member import named_member
from tolerant.own_data.classifiers.trial import try_members
from tolerant.own_data.learned import Learned, with_evidence
from tolerant.own_data.settings import Settings
from tolerant.own_data.task import Task
from tolerant.train import Callback, Job
from tolerant.train.engine.job import Before
from tolerant.train.model_state import clone
from tolerant.train.networks.network_committee import NetworkCommittee
from tolerant.train.networks.pretrained import Pretrained
from tolerant.train.rounds.relabel import Relabel

_LEARNT = 0.55  # of the way from the weights of the beginning to those that were learnt
_LEAST_SHARE = 1e-4  # of a class that the discriminant knows no row of
_LEAST_DEVIATION = 1e-3  # of a feature
_OF_A_TEACHER = ("loss", "method", "q", "k", "weight_decay", "validation_fraction")


def learn_tuned(
    candidate: NetworkCandidate,
    task: Task,
    *,
    kept: KeptScores,
    start: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    say: Say = lambda line: None,
) -> Learned:
    """As `learn` says: rows are scored by discriminants of the features, and train the network."""
    settings, pictures = task.settings, task.dataset
    _check(task)
    used = task.used(np.ones(len(pictures), bool))
    job = _job(candidate, task, used, callbacks)
    model = job.build_model() if start is None else start  # before minutes of features: not all can be tuned
    name = settings.model_args["features"]
    features = extract(pictures.inputs, load_extractor(name, "image", candidate.device))
    rows = replace(pictures, inputs=features, kind="table", files=None)
    own = Settings(model=OF_FEATURES, class_weight=settings.class_weight, seed=settings.seed)
    by_features, members = replace(task, dataset=rows, settings=own), [named_member(OF_FEATURES)]
    trial = try_members(members, by_features, say, kept)
    learned = learn_committee(members, trial, by_features, kept)
    if start is None:
        assert isinstance(learned.fitted, Committee)
        _begin(model, learned.fitted.fitted[OF_FEATURES], block(features, 0))
    weights = clone({**dict(model.named_parameters()), **dict(model.named_buffers())})
    say(f"{name} itself learns from {len(used):,} pictures, in {job.recipe.epochs} epochs.")
    taught_by = torch.from_numpy(trial.scored[OF_FEATURES].out_of_fold.probs[used])
    result = candidate.fit(replace(job, before=Before(1, taught_by, weights)))
    _go_back(result.model, weights)
    trained_as = pictures.given_labels.copy()
    trained_as[used[result.train_index]] = result.labels
    suspects = replace(learned.suspects, trained_as=trained_as[learned.suspects.index])
    learned = replace(learned, fitted=result, job=job, suspects=suspects, trained_as=trained_as)
    return with_evidence(learned, rows)


def _check(task: Task) -> None:
    settings = task.settings
    if task.folds < 2:
        raise ValueError(
            f"tune (--tune) needs folds: what teaches a picture's label must not have seen it; got "
            f"folds={task.folds} (--folds {task.folds}). Leave folds out, or take 2."
        )
    ignored = [name for name in _OF_A_TEACHER if getattr(settings, name) != getattr(Settings, name)]
    if ignored:
        raise ValueError(
            f"tune (--tune) trains under probabilities of labels, which leaves {ignored[0]} nothing to say; "
            f"got {ignored[0]}={getattr(settings, ignored[0])!r}. Leave one of the two out."
        )


def _job(candidate: NetworkCandidate, task: Task, used: np.ndarray, callbacks: Sequence[Callback]) -> Job:
    """What trains the rows ``used``, once it is known what is said of them."""
    pictures = task.dataset if len(used) == len(task.dataset) else task.dataset.subset(used)
    weight, trusted = (None if each is None else each[used] for each in (task.sample_weight, task.reviewed))
    job = candidate.plan(pictures, weight, "all rows")
    return replace(
        job,
        loss="cce",
        loss_args={},
        prune=None,
        guards=None,
        relabel=Relabel(start_epoch=job.recipe.epochs, every=1, sure=0.0),  # before the first epoch alone
        fresh=False,
        trusted=trusted,
        callbacks=callbacks,
    )


@torch.no_grad()
def _begin(model: nn.Module, teacher: RoundDiscriminant, features: np.ndarray) -> None:
    """The model says of every picture what the discriminant does; ``features`` are of some rows."""
    assert isinstance(model, NetworkCommittee)
    (network,) = model.networks
    assert isinstance(network, Pretrained)
    coef = torch.zeros(network.num_classes, features.shape[1])
    intercept = torch.full((network.num_classes,), math.log(_LEAST_SHARE))
    coef[teacher.classes_] = torch.from_numpy(teacher.coef_).float()
    intercept[teacher.classes_] = torch.from_numpy(teacher.intercept_).float()
    centre, scale = (torch.from_numpy(each) for each in (features.mean(axis=0), features.std(axis=0)))
    network.start_from((coef, intercept), centre, scale + _LEAST_DEVIATION)


@torch.no_grad()
def _go_back(model: nn.Module, start: dict[str, Tensor]) -> None:
    """A part of the way, to the weights of the beginning."""
    for name, parameter in model.named_parameters():
        begun = start[name].to(parameter)
        parameter.copy_(begun + _LEARNT * (parameter - begun))
