"""A network that learns what a classifier of pretrained features makes of the labels, to answer beside it.

A hidden layer tells classes apart that a plane does not. From the given labels it would learn the wrong ones
by heart. So it learns the probabilities of labels (`tolerant.train.rounds.relabel`) by what the classifier
says of rows that it has not seen, and sees no row but blended with another. Together they are right more
often than the classifier alone, with few rows too, where the network alone is not.

(Photographs that no benchmark reports, the last map and the earlier ones of `lite0`; means over labels of one
person, the wrong ones of two, uniform noise of 0.4, class-dependent noise of 0.4, and right labels, one draw
each: 600 rows 75.8 % by the discriminant, 77.7 with the network; 1,500 rows 81.8 and 82.3; 7,000 rows 86.2
and 87.1. Of low-dimensional rows, where a plane of few columns is all that the posterior can teach, the
network only blurs it: two moons in 12 columns lose half a point. So it is for pretrained features alone.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tolerant.own_data.classifiers.discriminant import BLOCK, block
from tolerant.own_data.out_of_fold import OutOfFold
from tolerant.own_data.task import Task
from tolerant.threads import one_thread
from tolerant.train.engine.fleet import Fleet
from tolerant.train.engine.job import Before, Job
from tolerant.train.engine.recipe import Recipe
from tolerant.train.engine.result import TrainResult
from tolerant.train.rounds.relabel import Relabel

_HIDDEN = 128
_MOST_CELLS = 25_000_000  # of rows in memory at once: 100 MiB, 10,000 rows of `lite0`, which teach enough
_ROWS_SEEN, _LEAST_EPOCHS, _MOST_EPOCHS = 84_000, 12, 40
_ONCE = Relabel(start_epoch=_MOST_EPOCHS, every=1, sure=0.0)  # by the classifier, before the first epoch


class Taught:
    """A classifier and the network that it has taught: the mean of what both say."""

    def __init__(self, teacher: Any, layers: list[np.ndarray]) -> None:
        self.teacher = teacher
        self.layers = layers
        """float32: weights (D, H) and biases [H] of the hidden layer, (H, C) and [C] of the last."""

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.teacher.classes_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """float64 [N, C], of the classes that the classifier knows."""
        blocks = [self._network(block(X, start)) for start in range(0, X.shape[0], BLOCK)]
        own = np.concatenate([np.empty((0, len(self.classes_))), *blocks])
        found: np.ndarray = (self.teacher.predict_proba(X) + own) / 2
        return found

    def _network(self, x: np.ndarray) -> np.ndarray:
        into, bias, out, last = self.layers
        logits = np.maximum(x @ into + bias, 0.0) @ out + last
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))[:, self.classes_]
        return odds / odds.sum(axis=1, keepdims=True)


def teach(teacher: Any, scored: OutOfFold, task: Task, used: np.ndarray) -> Taught:
    """A network for the rows ``used``, by what such classifiers have said of them out of fold."""
    most = max(1, _MOST_CELLS // task.dataset.inputs.shape[1])
    if len(used) > most:
        used = np.sort(np.random.default_rng(task.settings.seed).permutation(used)[:most])
    rows = task.dataset if len(used) == len(task.dataset) else task.dataset.subset(used)
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
        dataset=rows,
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
    return Taught(teacher, _layers(result))


def _layers(result: TrainResult) -> list[np.ndarray]:
    """Of rows as they come: what happens to inputs is part of the first weights."""
    hidden, last = (each for each in result.model.modules() if isinstance(each, nn.Linear))
    into, bias, out, end = (
        each.detach().double().numpy() for each in (hidden.weight.T, hidden.bias, last.weight.T, last.bias)
    )
    scale, mean = (np.asarray(each, np.float64) for each in (result.preprocess.scale, result.preprocess.mean))
    return [each.astype(np.float32) for each in (scale[:, None] * into, bias - mean @ into, out, end)]
