"""Which classifiers to try, and which of them are best together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.sparse import SparseRows
from tolerant.hints import did_you_mean
from tolerant.own_data.classifiers.cards import CLASSIFIERS, OF_FEATURES, Card
from tolerant.own_data.classifiers.member import (
    Member,
    check_classifier,
    is_classifier,
    named_member,
    own_member,
)
from tolerant.own_data.classifiers.rows import columns
from tolerant.own_data.classifiers.temper import ClassWeight, choose_tau, error_of_difference, temper
from tolerant.own_data.network import NETWORK
from tolerant.own_data.settings import TRUNCATED, Settings
from tolerant.threads import cores
from tolerant.train.networks import NETWORKS

_LOSSES = (TRUNCATED, "lq", "cce")
# By so many standard errors of the difference fewer members must agree better than all of them. On labels
# that no benchmark reports this was worth 0.6 points of score (standard error 0.1) against all members in 531
# draws of 66 tables of up to 700 rows, where a fixed two points had been worth 0.5, and 0.7 (0.2) in 36 draws
# of 12 tables of 3,000 to 13,000 rows, where the two points had been worth nothing.
_CLEARLY = 1.0
_LEAST_P_Y = 1e-3  # so that a single row that a model is sure of does not decide


@dataclass(frozen=True)
class Choice:
    """Members that answer together, and how well they agree with the given labels out of fold."""

    names: tuple[str, ...]
    tau: float
    score: float


def takes_classifiers(settings: Settings) -> bool:
    """Whether the model may be one, or several; which rows they suit is another question."""
    if settings.model == "auto":
        return not settings.of_networks
    return settings.model in CLASSIFIERS if isinstance(settings.model, str) else is_classifier(settings.model)


def check_model(model: Any) -> None:
    """A ValueError for a name that no model has, a ModuleNotFoundError for one that is not installed.

    Both can be known before any row is read.
    """
    known = ["auto", *CLASSIFIERS, NETWORK, *NETWORKS]
    if isinstance(model, str) and model not in known:
        raise ValueError(
            f"model must be one of {', '.join(known)}; got {model!r}. {did_you_mean(model, known)}"
        )
    if isinstance(model, str) and model in CLASSIFIERS:
        CLASSIFIERS[model].check_installed()


def members_for(dataset: NoisyDataset, settings: Settings) -> list[Member]:
    """The classifiers to be fitted to these rows; none if it is to be a network."""
    model = settings.model
    check_model(model)
    if not takes_classifiers(settings):
        return []
    if model == "auto" and settings.pretrained:
        return [named_member(OF_FEATURES)]
    if model == "auto":
        return [named_member(card.name) for card in CLASSIFIERS.values() if card.in_auto(dataset)]
    if not isinstance(model, str):
        check_classifier(model)
    elif not CLASSIFIERS[model].suits(dataset):
        suitable = [card.name for card in CLASSIFIERS.values() if card.suits(dataset)]
        raise ValueError(
            f"model {model!r} ({CLASSIFIERS[model].about}) does not suit these rows; these do: "
            f"{', '.join([*suitable, 'networks'])}."
        )
    settings.refuse_of_networks()
    if settings.loss not in _LOSSES:
        raise ValueError(f"loss must be one of {_LOSSES} for a classifier; got {settings.loss!r}.")
    q = (0.7 if settings.q == "auto" else settings.q) if settings.loss == "lq" else None
    return [named_member(model, q) if isinstance(model, str) else own_member(model, q)]


def likeliest(given_labels: np.ndarray, probs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of the members that stand in for each other (`Card.instead_of`) the one whose predictions, out of fold,
    make the given labels likeliest; and all others.

    >>> sure, unsure = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.6, 0.4], [0.5, 0.5]])
    >>> list(likeliest(np.array([0, 1]), {"linear": unsure, "linear-10": sure, "forest": unsure}))
    ['linear-10', 'forest']
    """

    def kind(name: str) -> str:
        return (CLASSIFIERS[name].instead_of if name in CLASSIFIERS else None) or name

    def likelihood(name: str) -> float:
        p_y = probs[name][np.arange(len(given_labels)), given_labels]
        return float(np.log(np.maximum(p_y, _LEAST_P_Y)).sum())

    kinds = dict.fromkeys(map(kind, probs))
    best = [max((name for name in probs if kind(name) == one), key=likelihood) for one in kinds]
    return {name: probs[name] for name in best}


def choose(
    given_labels: np.ndarray,
    probs: Mapping[str, np.ndarray],
    prior: np.ndarray,
    class_weight: ClassWeight,
) -> tuple[Choice, dict[str, Choice]]:
    """All members, or those whose mean agrees clearly better with the given labels; and each member alone.

    All that is compared is out of fold, so a model that learns the noise of the rows it was fitted to gains
    nothing by it. Of members that stand in for each other one is taken (`likeliest`).

    >>> right, wrong = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.3, 0.7], [0.6, 0.4]])
    >>> best, _ = choose(np.array([0, 1]), {"a": wrong, "b": right}, np.array([0.5, 0.5]), "auto")
    >>> best.names, best.score
    (('a', 'b'), 1.0)
    """

    def judge(*some: str) -> tuple[Choice, np.ndarray]:
        """With it, bool [N]: where they say the given label."""
        mean = np.mean([probs[name] for name in some], axis=0)
        tau, score = choose_tau(given_labels, mean, prior, class_weight)
        return Choice(some, tau, score), temper(mean, prior, tau).argmax(1) == given_labels

    names = list(likeliest(given_labels, probs))
    together, agrees = judge(*names)
    best = together
    for some in (some for size in range(len(names) - 1, 0, -1) for some in combinations(names, size)):
        fewer, agree = judge(*some)
        error = error_of_difference(given_labels, agrees != agree, len(prior))
        if fewer.score > max(best.score, together.score + _CLEARLY * error):
            best = fewer
    return best, {name: judge(name)[0] for name in probs}


def expected_seconds(members: Sequence[Member], dataset: NoisyDataset, folds: int) -> dict[str, float]:
    """About how long each member takes for its folds and one fit more; of a user's own nothing is known."""
    fits = -(-folds // cores()) + 1  # folds go side by side
    return {
        card.name: fits * card.seconds(len(dataset), _num_cells(card, dataset), dataset.num_classes)
        for card in (CLASSIFIERS[member.name] for member in members if member.name in CLASSIFIERS)
    }


def _num_cells(card: Card, dataset: NoisyDataset) -> int:
    """Of the rows as the card is given them, those that are not zero."""
    if isinstance(dataset.inputs, SparseRows):
        return dataset.inputs.num_cells(card.part)
    if card.rows is columns and dataset.encoder is not None:
        return len(dataset) * len(dataset.encoder.columns)
    return int(np.prod(dataset.inputs.shape))
