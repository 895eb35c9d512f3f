"""Networks that learn what a classifier of pretrained features makes of the labels, to answer beside it.

A hidden layer tells classes apart that a plane does not. From the given labels it would learn the wrong ones
by heart. So it learns the probabilities of labels (`tolerant.train.rounds.relabel`) by what the classifier
says of rows that it has not seen, and sees no row but blended with another. There are two, each of which
learns a half of the rows and doubts the labels of the other half. Together they and the classifier doubt
better, and are right more often, than the classifier alone.

(Photographs that no benchmark reports, the last map and the earlier ones of `lite0`; one network that learnt
all rows; means over labels of one person, the wrong ones of two, uniform noise of 0.4, class-dependent noise
of 0.4, and right labels, one draw each: 600 rows 75.8 % by the discriminant, 77.7 with the network; 1,500
rows 81.8 and 82.3; 7,000 rows 86.2 and 87.1. 3,000 rows: 83.5 %, and 84.3 with one and with two; the average
precision of the wrong labels is 0.908, and 0.918 with two. A hundred classes of 40 rows: the networks doubt
better (0.939 and 0.948), but with them 57.9 % are right instead of 59.4. So there they do not answer. Of
low-dimensional rows, where a plane of few columns is all that the posterior can teach, a network only blurs
it: two moons in 12 columns lose half a point. So it is for pretrained features alone.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tolerant.own_data.classifiers.discriminant import BLOCK, block
from tolerant.own_data.classifiers.rows import take
from tolerant.own_data.out_of_fold import OutOfFold, fold_parts
from tolerant.own_data.task import Task
from tolerant.threads import one_thread
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Before, Job
from tolerant.train.engine.recipe import Recipe
from tolerant.train.engine.result import TrainResult
from tolerant.train.rounds.relabel import Relabel

# float32: weights (D, H) and biases [H] of the hidden layer, (H, C) and [C] of the last.
Layers = list[np.ndarray]
_HIDDEN = 128
_HALVES = 2
_LEAST_OF_CLASS = 50  # rows a class, in the mean: with fewer the networks doubt, but do not answer
_MOST_CELLS = 25_000_000  # of rows in memory at once: 100 MiB, 10,000 rows of `lite0`, which teach enough
_ROWS_SEEN, _LEAST_EPOCHS, _MOST_EPOCHS = 84_000, 12, 40
_ONCE = Relabel(start_epoch=_MOST_EPOCHS, every=1, sure=0.0)  # by the classifier, before the first epoch


class Taught:
    """A classifier and the networks that it has taught: the mean of what it says and what they say."""

    def __init__(self, teacher: Any, networks: list[Layers]) -> None:
        self.teacher = teacher
        self.networks = networks

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.teacher.classes_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """float64 [N, C], of the classes that the classifier knows."""
        known = [say(layers, X)[:, self.classes_] for layers in self.networks]
        own = np.mean([each / each.sum(axis=1, keepdims=True) for each in known], axis=0)
        found: np.ndarray = (self.teacher.predict_proba(X) + own) / 2
        return found


def say(layers: Layers, X: Any) -> np.ndarray:
    """float32 [N, C]: what a network says."""
    into, bias, out, last = layers
    found = [np.empty((0, len(last)), np.float32)]
    for start in range(0, X.shape[0], BLOCK):
        logits = np.maximum(block(X, start) @ into + bias, 0.0) @ out + last
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        found.append(odds / odds.sum(axis=1, keepdims=True))
    return np.concatenate(found)


def can_answer(num_rows: int, num_classes: int) -> bool:
    """Whether networks that have learnt so many rows are right often enough to answer beside a teacher."""
    return num_rows >= _LEAST_OF_CLASS * num_classes


def teach(scored: OutOfFold, task: Task) -> tuple[list[Layers], OutOfFold]:
    """Networks, each for a half of the rows, by what classifiers have said of these out of fold; and what
    each says of the other half. None of rows so few that a half has but one class."""
    parts = fold_parts(task.dataset, _HALVES, task.settings.seed, task.sample_weight)
    networks, said = [], OutOfFold.none_of(task.dataset)
    for learnt, held_out in parts if len(parts) == _HALVES else []:
        networks.append(_learn(scored, task, learnt))
        said.probs[held_out] = say(networks[-1], take(task.dataset.inputs, held_out))
        said.held_out[held_out] = True
    return networks, said.unweighted(task.dataset.given_labels, task.sample_weight)


def _learn(scored: OutOfFold, task: Task, used: np.ndarray) -> Layers:
    most = max(1, _MOST_CELLS // task.dataset.inputs.shape[1])
    if len(used) > most:
        used = np.sort(np.random.default_rng(task.settings.seed).permutation(used)[:most])
    weight, trusted = (None if each is None else each[used] for each in (task.sample_weight, task.reviewed))
    recipe = Recipe(
        epochs=min(max(_ROWS_SEEN // len(used), _LEAST_EPOCHS), _MOST_EPOCHS),
        batch_size=min(128, len(used)),
        lr=0.02,
        nesterov=True,
        weight_decay=5e-4,
        schedule="cosine",
        warm_up=0.15,
        milestones=(),
        augment="none",
        scale="std",
        mixup=1.0,
        average=0.99,
        precision="fp32",
        validation_fraction=0.0,
        select="last",
        score_every=0,
        seed=task.settings.seed,
    )
    job = Job(
        dataset=task.dataset.subset(used),
        model="mlp",
        model_args={"hidden": (_HIDDEN,)},
        loss="cce",
        recipe=recipe,
        relabel=_ONCE,
        before=Before(1, torch.from_numpy(scored.probs[used])),
        trusted=trusted,
        sample_weight=weight,
    )
    with one_thread():
        result = Fleet(side_by_side=1, device="cpu", progress="quiet").run_one(job)
    return _layers(result)


def _layers(result: TrainResult) -> Layers:
    """Of rows as they come: what happens to inputs is part of the first weights."""
    hidden, last = (each for each in result.model.modules() if isinstance(each, nn.Linear))
    into, bias, out, end = (
        each.detach().double().numpy() for each in (hidden.weight.T, hidden.bias, last.weight.T, last.bias)
    )
    scale, mean = (np.asarray(each, np.float64) for each in (result.preprocess.scale, result.preprocess.mean))
    return [each.astype(np.float32) for each in (scale[:, None] * into, bias - mean @ into, out, end)]
